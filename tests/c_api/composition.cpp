// SPDX-License-Identifier: Apache-2.0
#include "composition.h"

#include <cmath>
#include <memory>

namespace otr_test {
namespace {

constexpr int64_t kW = 0, kB = 1, kUnused = 2, kAlias = 4;
constexpr double kLr = 0.5, kInput = 1, kSeed = 1.0 / 64;
constexpr int32_t kWindows = 3;

otr_call_info plain_info() {
  otr_call_info info;
  EXPECT_OK(otr_call_info_init(&info, sizeof info));
  return info;
}

enum class Spoil : uint8_t { nothing, abandoned, infinite };

// A gradient on its way into a pass.
struct Incoming {
  Values scaled;  // as the library and the host's arithmetic made it
  Values exact;   // as it is without any scale
  double rounding = 0x1p-22;
  // Given with the tag of the pass that it comes from, and what that pass has taken care of.
  bool tagged = false;
  otr_call_info tag{};
  int32_t ranks = 0, divided = 0;
  double total = 0;  // of a second output, the sum of the first one's elements; untagged only
};

// What a pass leaves to the engine before it.
struct Leaving {
  Incoming tagged, plain;
};

struct OpenPass {
  Owned<otr_pass> handle;
  std::vector<std::function<void()>> later;
};

// One engine, its weights as the host sees them, and its window.
struct Member {
  Member(const Setup& chosen, otr_comm* comm)
      : setup(chosen), engine(comm, chosen.config), comm_size(0) {
    EXPECT_OK(otr_comm_size(comm, &comm_size));
  }
  [[nodiscard]] int32_t mean_ranks() const { return setup.sum ? 1 : comm_size; }
  // What a gradient that nobody has divided yet is divided by.
  [[nodiscard]] double divisor() const { return setup.counted ? steps : setup.accumulation; }

  Setup setup;
  Engine engine;
  int32_t comm_size;
  Layer layer;
  int32_t steps = 1;            // of this window
  std::vector<int32_t> cuts;    // after which micro-batches it steps
  std::vector<Board::Sum> own;  // of this rank, by parameter
};

class Run {
 public:
  Run(uint64_t seed, int32_t rank, int32_t world, otr_context* context, otr_comm* comm,
      Board& board, Forms& forms)
      : shared_(seed, 0),
        own_(seed, 1 + static_cast<uint64_t>(rank)),
        rank_(rank),
        board_(board),
        forms_(forms),
        alone_(make_self(context)) {
    const int32_t engines = shared_.from(1, 3);
    const double clip = shared_.one_in(3) ? 0.0039 : 0;
    for (int32_t e = 0; e < engines; ++e) {
      const Setup setup = draw_setup(shared_, world, clip);
      members_.push_back(std::make_unique<Member>(setup, setup.own_group ? alone_.get() : comm));
      declare(*members_.back());
    }
  }

  void windows() {
    for (int32_t w = 0; w < kWindows; ++w) window();
  }

 private:
  void met(const char* form) {
    if (rank_ == 0) forms_.met(form);
  }

  void declare(Member& m) {
    m.layer = {shared_.values(kWidth * kWidth, 0.5), shared_.values(kWidth, 0.5), m.setup.twice};
    otr_param_options options = param_options();
    options.contributions = m.setup.declared ? 2 : 1;
    m.engine.add("w", {kWidth, kWidth}, m.layer.w, &options);
    m.engine.add("b", {kWidth}, m.layer.b);
    m.engine.add("unused", {2}, {1, 2});
    options = param_options();
    options.trainable = 0;
    m.engine.add("frozen", {2}, {3, 4}, &options);
    if (m.setup.alias) {
      options = param_options();
      options.alias_of = kW;
      int64_t id = -1;
      EXPECT_OK(otr_engine_add_parameter(m.engine.get(), "tied", nullptr, &options, &id));
      EXPECT_EQ(id, kAlias);
    }
    m.engine.commit();
    refresh(m);
  }

  // The host computes with the weights as they are.
  static void refresh(Member& m) {
    m.layer.w = m.engine.read(kW);
    m.layer.b = m.engine.read(kB);
  }

  static void forget(Member& m) {
    m.own = {{Values(kWidth * kWidth, 0), 0}, {Values(kWidth, 0), 0}};
  }

  // ---- One window ----

  void window() {
    if (shared_.one_in(5)) discarded();
    int32_t batches = 1;
    for (const auto& m : members_) {
      forget(*m);
      m->steps = m->setup.by_caller ? shared_.from(1, 4) : m->setup.accumulation;
      if (m->setup.by_caller && m->steps != m->setup.accumulation) met("window of the caller");
      batches = std::max(batches, m->steps);
    }
    batches += shared_.below(2);
    for (const auto& m : members_) {
      std::vector<int32_t> places;
      for (int32_t k = 0; k + 1 < batches; ++k) places.push_back(k);
      shared_.shuffle(places);
      m->cuts.assign(places.begin(), places.begin() + m->steps - 1);
      if (m->setup.by_caller) {
        EXPECT_OK(otr_engine_set_boundary(m->engine.get(),
                                          m->steps == 1 ? OTR_BOUNDARY_YES : OTR_BOUNDARY_NO));
      }
    }
    for (int32_t k = 0; k < batches; ++k) {
      micro_batch();
      for (const auto& m : members_) {
        if (std::count(m->cuts.begin(), m->cuts.end(), k) == 0) continue;
        flush();
        EXPECT_EQ(m->engine.step().outcome, OTR_STEP_ACCUMULATED);
        m->cuts.erase(std::find(m->cuts.begin(), m->cuts.end(), k));
        if (m->cuts.empty() && m->setup.by_caller) {
          EXPECT_OK(otr_engine_set_boundary(m->engine.get(), OTR_BOUNDARY_YES));
        }
      }
      if (shared_.one_in(2)) flush();
    }
    const auto spoiled = static_cast<size_t>(shared_.below(static_cast<int32_t>(members_.size())));
    const int32_t draw = shared_.below(8);
    const Spoil how = draw == 0 ? Spoil::abandoned : draw == 1 ? Spoil::infinite : Spoil::nothing;
    if (how != Spoil::nothing) spoil(*members_[spoiled], how);
    flush();
    step_all(how, spoiled);
  }

  // Passes and steps whose window is dropped.
  void discarded() {
    met("discard");
    for (const auto& m : members_) {
      forget(*m);
      m->steps = 1;
      if (m->setup.by_caller) {
        EXPECT_OK(otr_engine_set_boundary(m->engine.get(), OTR_BOUNDARY_NO));
      }
    }
    micro_batch();
    flush();
    for (const auto& m : members_) {
      if (m->setup.by_caller || m->setup.accumulation > 1) {
        EXPECT_EQ(m->engine.step().outcome, OTR_STEP_ACCUMULATED);
      } else if (shared_.one_in(2)) {
        otr_step_report report = OTR_STEP_REPORT_INIT;
        EXPECT_OK(otr_engine_reduce(m->engine.get(), &report));
      }
      EXPECT_OK(otr_engine_discard(m->engine.get()));
    }
  }

  void spoil(Member& m, Spoil how) {
    const int32_t by = shared_.below(2) % static_cast<int32_t>(board_.sums.size());
    Owned<otr_pass> pass = m.engine.begin();
    const bool here = rank_ == by || m.setup.own_group;
    const double value = how == Spoil::infinite ? INFINITY : 1;
    if (here) Engine::add(pass, kB, {kWidth}, Values(kWidth, value));
    met(how == Spoil::infinite ? "infinite" : "abandoned");
    if (how == Spoil::infinite || !here) Engine::end(pass);
  }

  // ---- One micro-batch ----

  void micro_batch() {
    const int64_t samples = shared_.from(1, 2);
    std::vector<Trace> traces;
    Values h = own_.values(samples * kWidth, kInput);
    for (const auto& m : members_) {
      traces.push_back(forward(m->layer, h));
      h = traces.back().out;
    }
    std::vector<Incoming> above;
    for (size_t e = members_.size(); e-- > 0;) {
      // A loss of this engine's output; over the last there is always one, at times several.
      int32_t losses = e + 1 == members_.size() ? 1 : 0;
      while (shared_.one_in(4)) ++losses;
      if (losses > 1) met("several losses");
      for (int32_t i = 0; i < losses; ++i) {
        Incoming loss;
        loss.scaled = own_.values(samples * kWidth, kSeed);
        loss.exact = loss.scaled;
        if (shared_.one_in(3)) {
          loss.total = own_.value(kSeed);
          for (double& x : loss.exact) x += loss.total;
        }
        above.push_back(std::move(loss));
      }
      std::vector<Incoming> below;
      for (const Incoming& in : above) {
        const Leaving out = backward(*members_[e], traces[e], in);
        if (e == 0) continue;
        below.push_back(shared_.one_in(2) ? out.tagged : out.plain);
      }
      merge(below);
      above = std::move(below);
    }
    if (shared_.one_in(5)) {
      met("empty pass");
      const Owned<otr_pass> pass = members_[0]->engine.begin();
      if (shared_.one_in(2)) Engine::end(pass);
    }
  }

  // The host itself adds gradients of one output, where both are the true ones.
  void merge(std::vector<Incoming>& gradients) {
    if (gradients.size() != 2 || gradients[0].tagged || gradients[1].tagged) return;
    met("gradients added by the host");
    add_to(gradients[0].scaled, gradients[1].scaled);
    add_to(gradients[0].exact, gradients[1].exact);
    gradients[0].rounding = 2 * std::max(gradients[0].rounding, gradients[1].rounding);
    gradients.pop_back();
  }

  // The whole of one pass, as the callback or by calls.
  Leaving backward(Member& m, const Trace& trace, Incoming in) {
    if (in.tagged && in.divided > 0 && m.setup.counted) {
      met("refused tag");
      otr_pass* none = nullptr;
      EXPECT_FAILS(OTR_E_STATE, otr_pass_begin(m.engine.get(), nullptr, 0, &in.tag, &none),
                   "counted");
      in = untagged_;  // the way out: without the factors
    } else if (in.tagged) {
      met("tag");
    }
    const auto samples = static_cast<int64_t>(in.scaled.size()) / kWidth;
    const bool two = in.total != 0;
    otr_call_info info = in.tagged ? in.tag : plain_info();
    const char* dtype = seed_dtype(m, in, info);
    const Tensor first({samples, kWidth}, in.scaled, dtype), second({}, {in.total});
    const otr_tensor outputs[2] = {first.get(), second.get()};
    Work work{*this, m, trace, in, nullptr, {}};
    if (shared_.one_in(4)) {
      met("callback");
      EXPECT_OK(
          otr_engine_backward(m.engine.get(), outputs, two ? 2 : 1, &info, Work::run_back, &work));
    } else {
      otr_pass* pass = nullptr;
      EXPECT_OK(otr_pass_begin(m.engine.get(), outputs, two ? 2 : 1, &info, &pass));
      open_.push_back(std::make_unique<OpenPass>());
      open_.back()->handle.reset(pass);
      if (open_.size() > 1) met("passes open at once");
      otr_tensor seeds[2];
      for (int64_t i = 0; i < (two ? 2 : 1); ++i) {
        EXPECT_OK(otr_pass_get_output_grad(pass, i, &seeds[i]));
      }
      work.open = open_.back().get();
      work.pull_back(pass, seeds, two ? 2 : 1);
    }
    if (two) met("two outputs");
    untagged_ = work.leaving.plain;
    return work.leaving;
  }

  // float16 only where all of it fits, scaled and not.
  const char* seed_dtype(const Member& m, Incoming& in, otr_call_info& info) {
    const int32_t draw = shared_.below(6);
    if (draw == 0) return "float64";
    if (draw > 2) return "float32";
    met("kept dtype");
    info.flags = OTR_PASS_KEEP_DTYPE;
    const double factor = in.tagged ? 2 * m.setup.scale / in.tag.loss_scale : m.setup.scale;
    const double most = largest(in.scaled);
    const bool fits = most * std::max(1.0, factor) < 3e4 && most * std::min(1.0, factor / 6) > 1e-3;
    // Ranks have other values: what they do with them may differ.
    const bool half = draw == 1 && fits;
    in.rounding += half ? 0x1p-9 : 0x1p-6;
    return half ? "float16" : "bfloat16";
  }

  // What the host does inside of a pass.
  struct Work {
    Run& run;
    Member& m;
    const Trace& trace;
    const Incoming& in;
    OpenPass* open;  // null: in the callback
    Leaving leaving;

    static int32_t run_back(otr_pass* pass, const otr_tensor* seeds, int64_t count, void* user) {
      static_cast<Work*>(user)->pull_back(pass, seeds, count);
      return 0;
    }

    void pull_back(otr_pass* pass, const otr_tensor* seeds, int64_t count) {
      Values out = values_of(seeds[0]);
      if (count == 2) {
        for (double& x : out) x += value_at(seeds[1], 0);
      }
      const Pulled scaled = pull(m.layer, trace, out), exact = pull(m.layer, trace, in.exact);
      const int32_t ranks = in.tagged ? in.ranks : m.mean_ranks();
      const int32_t divided = in.tagged && in.divided > 0 ? in.divided
                              : m.setup.counted           ? 0
                                                          : m.setup.accumulation;
      const double share = 1.0 / ranks / (divided > 0 ? divided : m.divisor());
      for (size_t i = 0; i < exact.w.size(); ++i) {
        run.expect(m, kW, exact.w[i], share, in.rounding);
        run.hand_over(m, pass, open, m.setup.alias && i == 1 ? kAlias : kW, scaled.w[i]);
      }
      run.expect(m, kB, exact.b, share, in.rounding);
      run.hand_over(m, pass, open, kB, scaled.b);
      if (run.shared_.one_in(6)) run.made_elsewhere(m, pass);
      leave(pass, scaled.in, exact.in, ranks, divided);
    }

    void leave(otr_pass* pass, const Values& scaled, const Values& exact, int32_t ranks,
               int32_t divided) {
      Incoming& tagged = leaving.tagged;
      tagged = {scaled, exact, in.rounding, true, plain_info(), ranks, divided};
      EXPECT_OK(otr_pass_get_tag(pass, &tagged.tag));
      // The gradient of which the mean over this engine's ranks is the loss's, whoever began.
      const double own = static_cast<double>(m.mean_ranks()) / ranks;
      Incoming& plain = leaving.plain;
      plain.exact = times(exact, own);
      const Shape shape{static_cast<int64_t>(scaled.size())};
      const Tensor from(shape, scaled), to = Tensor::filled(shape, 0);
      EXPECT_OK(otr_pass_unscale(pass, &from, &to));
      plain.scaled = to.values();
      plain.rounding = in.rounding;
      const double bound = 8 * in.rounding * largest(plain.exact);
      for (size_t i = 0; i < plain.exact.size(); ++i) {
        EXPECT_NEAR(plain.scaled[i], plain.exact[i], bound) << "an input's gradient";
      }
      if (in.tagged) run.met("unscaled behind a tag");
    }
  };

  static void expect(Member& m, int64_t id, const Values& exact, double share, double rounding) {
    Board::Sum& sum = m.own[static_cast<size_t>(id)];
    add_to(sum.mean, times(exact, share));
    sum.bound += 8 * (rounding + m.setup.rounding) * largest(exact) * share;
  }

  // A gradient that no pass here made, with a tag that says what it carries.
  void made_elsewhere(Member& m, otr_pass* pass) {
    met("gradient with a tag");
    otr_call_info tag = plain_info();
    tag.loss_scale = shared_.one_in(2) ? 8 : 1024;
    tag.accumulation = shared_.below(4);
    tag.ranks = shared_.below(3);
    const double carried = tag.loss_scale / (tag.accumulation > 0 ? tag.accumulation : 1);
    const Values exact = own_.values(kWidth, kSeed);
    const Tensor grad({kWidth}, times(exact, carried));
    if (tag.accumulation > 0 && m.setup.counted) {
      EXPECT_FAILS(OTR_E_STATE, otr_pass_add_grad(pass, kB, &grad, &tag), "counted");
      return;
    }
    otr_tensor given = grad.get();
    if (own_.one_in(2)) {
      EXPECT_OK(otr_pass_get_slot(pass, kB, &given));
      for (int64_t i = 0; i < kWidth; ++i) set_value(given, i, value_at(grad.get(), i));
    }
    EXPECT_OK(otr_pass_add_grad(pass, kB, &given, &tag));
    const double divisor = tag.accumulation > 0 ? tag.accumulation : m.divisor();
    expect(m, kB, exact, 1 / divisor / (tag.ranks > 0 ? tag.ranks : m.mean_ranks()), 0x1p-22);
  }

  // Now, or when others are open too; whole, or in two parts.
  void hand_over(const Member& m, otr_pass* pass, OpenPass* open, int64_t id, const Values& grad) {
    std::vector<Values> parts{grad};
    if (own_.one_in(4)) {
      met("in two parts");
      parts = {times(grad, 0.75), times(grad, 0.25)};
    }
    for (const Values& part : parts) {
      const int32_t form = own_.below(4);
      const auto add = [this, &m, pass, id, part, form] { add_as(m, pass, id, part, form); };
      if (open != nullptr && own_.one_in(2)) {
        open->later.emplace_back(add);
      } else {
        add();
      }
    }
  }

  void add_as(const Member& m, otr_pass* pass, int64_t id, const Values& grad, int32_t form) {
    const Shape shape = m.engine.shape_of(id);
    if (form == 0) {
      met("slot");
      otr_tensor slot;
      EXPECT_OK(otr_pass_get_slot(pass, id, &slot));
      for (size_t i = 0; i < grad.size(); ++i) set_value(slot, static_cast<int64_t>(i), grad[i]);
      EXPECT_OK(otr_pass_add_grad(pass, id, &slot, nullptr));
    } else {
      const Tensor tensor(shape, grad, form == 1 ? "float64" : "float32");
      EXPECT_OK(otr_pass_add_grad(pass, id, &tensor, nullptr));
    }
  }

  // What was put off, in an order of this rank's own; then the ends.
  void flush() {
    std::vector<std::function<void()>> all;
    for (auto& pass : open_) {
      for (auto& add : pass->later) all.push_back(std::move(add));
    }
    own_.shuffle(all);
    for (const auto& add : all) add();
    own_.shuffle(open_);
    for (const auto& pass : open_) Engine::end(pass->handle);
    open_.clear();
  }

  // ---- The end of a window ----

  void step_all(Spoil how, size_t spoiled) {
    auto& mine = board_.sums[static_cast<size_t>(rank_)];
    mine.clear();
    for (const auto& m : members_) mine.push_back(m->own);
    board_.barrier.arrive_and_wait();
    std::vector<std::vector<Board::Sum>> means;
    for (size_t e = 0; e < members_.size(); ++e) means.push_back(mean_of(e));
    board_.barrier.arrive_and_wait();

    bool together = members_.size() > 1 && shared_.one_in(3);
    for (const auto& m : members_) together = together && !m->setup.own_group;
    if (together) {
      joint_step(means, how, spoiled);
      return;
    }
    for (size_t e = 0; e < members_.size(); ++e) {
      const int32_t reason = how == Spoil::nothing || e != spoiled ? OTR_SKIP_NONE
                             : how == Spoil::infinite              ? OTR_SKIP_NONFINITE
                                                                   : OTR_SKIP_ABANDONED;
      if (shared_.one_in(2)) reduce(*members_[e], means[e], reason);
      check_step(*members_[e], means[e], reason, norm_of(means[e]),
                 [&] { return members_[e]->engine.step(); });
    }
  }

  // The mean gradients of an engine, from what its ranks have put on the board.
  std::vector<Board::Sum> mean_of(size_t e) {
    if (members_[e]->setup.own_group) return members_[e]->own;
    std::vector<Board::Sum> mean = board_.sums[0][e];
    for (size_t rank = 1; rank < board_.sums.size(); ++rank) {
      for (size_t id = 0; id < mean.size(); ++id) {
        add_to(mean[id].mean, board_.sums[rank][e][id].mean);
        mean[id].bound += board_.sums[rank][e][id].bound;
      }
    }
    return mean;
  }

  struct Norm {
    double squares = 0, bound = 0;
  };
  static Norm norm_of(const std::vector<Board::Sum>& mean) {
    Norm norm;
    for (const Board::Sum& sum : mean) {
      for (const double g : sum.mean) norm.squares += g * g;
      norm.bound += sum.bound * std::sqrt(static_cast<double>(sum.mean.size()));
    }
    return norm;
  }

  void joint_step(const std::vector<std::vector<Board::Sum>>& means, Spoil how, size_t spoiled) {
    met("joint step");
    std::vector<otr_engine*> engines;
    std::vector<otr_step_report> reports(members_.size(), OTR_STEP_REPORT_INIT);
    Norm norm;
    for (size_t e = 0; e < members_.size(); ++e) {
      engines.push_back(members_[e]->engine.get());
      norm.squares += norm_of(means[e]).squares;
      norm.bound += norm_of(means[e]).bound;
    }
    EXPECT_OK(otr_step_many(engines.data(), static_cast<int64_t>(engines.size()), nullptr,
                            reports.data()));
    for (size_t e = 0; e < members_.size(); ++e) {
      const int32_t reason = how == Spoil::nothing    ? OTR_SKIP_NONE
                             : e != spoiled           ? OTR_SKIP_JOINT
                             : how == Spoil::infinite ? OTR_SKIP_NONFINITE
                                                      : OTR_SKIP_ABANDONED;
      check_step(*members_[e], means[e], reason, norm, [&] { return reports[e]; });
    }
  }

  // Reads the gradients between the halves of the step, and at times replaces one.
  void reduce(Member& m, std::vector<Board::Sum>& mean, int32_t reason) {
    otr_step_report report = OTR_STEP_REPORT_INIT;
    EXPECT_OK(otr_engine_reduce(m.engine.get(), &report));
    EXPECT_EQ(report.reason, reason);
    if (reason != OTR_SKIP_NONE) return;
    met("gradient read");
    for (const int64_t id : {kW, kB}) {
      const Board::Sum& sum = mean[static_cast<size_t>(id)];
      near(m.engine.read(id, OTR_VALUE_GRAD), sum.mean, sum.bound, "a gradient that is read");
    }
    if (!shared_.one_in(2)) return;
    const int64_t id = shared_.one_in(2) ? kW : kB;
    Board::Sum& sum = mean[static_cast<size_t>(id)];
    sum.mean = shared_.values(static_cast<int64_t>(sum.mean.size()), kSeed);
    sum.bound = 4 * m.setup.rounding * kSeed;
    if (shared_.one_in(2)) {
      met("gradient replaced");
      const Tensor source(m.engine.shape_of(id), sum.mean);
      EXPECT_OK(otr_engine_parameter_write(m.engine.get(), id, OTR_VALUE_GRAD, &source));
    } else {
      met("gradient replaced by each rank");
      int64_t first = 0, count = 0;
      EXPECT_OK(otr_engine_local_range(m.engine.get(), id, &first, &count));
      const auto begin = sum.mean.begin() + first;
      const Tensor source({count}, Values(begin, begin + count));
      EXPECT_OK(otr_engine_local_write(m.engine.get(), id, OTR_VALUE_GRAD, &source));
    }
    near(m.engine.read(id, OTR_VALUE_GRAD), sum.mean, sum.bound, "a gradient that was replaced");
  }

  template <typename Step>
  void check_step(Member& m, const std::vector<Board::Sum>& mean, int32_t reason, const Norm& norm,
                  const Step& step) {
    const Layer before = m.layer;
    const otr_step_report report = step();
    EXPECT_EQ(report.reason, reason);
    EXPECT_EQ(report.outcome, reason == OTR_SKIP_NONE ? OTR_STEP_APPLIED : OTR_STEP_SKIPPED);
    refresh(m);
    const Values* const old[] = {&before.w, &before.b};
    const Values* const now[] = {&m.layer.w, &m.layer.b};
    double clip = 0;
    if (reason == OTR_SKIP_NONE) {
      const double length = std::sqrt(norm.squares);
      EXPECT_NEAR(report.grad_norm, length, norm.bound + 1e-6 * length);
      clip = m.setup.clip > 0 ? std::min(1.0, m.setup.clip / (report.grad_norm + 1e-6)) : 1;
      EXPECT_NEAR(report.clip_coefficient, clip, 1e-6);
      if (clip < 1) met("clipped");
    }
    for (const size_t id : {size_t{0}, size_t{1}}) {
      Values expected = *old[id];
      add_to(expected, times(mean[id].mean, -kLr * clip));
      near(*now[id], expected, kLr * clip * mean[id].bound + 0x1p-22, "a weight");
    }
    EXPECT_EQ(m.engine.read(kUnused), (Values{1, 2}));
  }

  static void near(const Values& got, const Values& expected, double bound, const char* what) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], bound) << what << i;
  }

  Random shared_, own_;  // the same on all ranks; this rank's
  int32_t rank_;
  Board& board_;
  Forms& forms_;
  Owned<otr_comm> alone_;
  std::vector<std::unique_ptr<Member>> members_;
  std::vector<std::unique_ptr<OpenPass>> open_;
  Incoming untagged_;
};

}  // namespace

void run_composition(uint64_t seed, int32_t rank, int32_t world, otr_context* context,
                     otr_comm* comm, Board& board, Forms& forms) {
  Run(seed, rank, world, context, comm, board, forms).windows();
}

}  // namespace otr_test
