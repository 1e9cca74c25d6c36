// SPDX-License-Identifier: Apache-2.0
// The passes of a composition: what a host does between two steps, with everything a pass offers.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "composition.h"

namespace otr_test {

inline constexpr int64_t kW = 0, kB = 1, kUnused = 2, kAlias = 4;  // ids
inline constexpr double kSeed = 1.0 / 64;                          // the size of a loss's gradient

inline otr_call_info plain_info() {
  otr_call_info info;
  EXPECT_OK(otr_call_info_init(&info, sizeof info));
  return info;
}

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
  Member(const Setup& chosen, otr_comm* comm, const Place& place)
      : setup(chosen), engine(comm, chosen.config), comm_size(0) {
    EXPECT_OK(otr_comm_size(comm, &comm_size));
    if (!place.on_device()) return;
    EXPECT_OK(
        otr_engine_set_device(engine.get(), place.device.device_type, place.device.device_id));
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

using Members = std::vector<std::unique_ptr<Member>>;

class Passes {
 public:
  // shared: the same on all ranks; own: this rank's.
  Passes(Random& shared, Random& own, const Place& place, Forms& forms, Members& members)
      : shared_(shared), own_(own), place_(place), forms_(forms), members_(members) {}

  void met(const char* form) { ++forms_[form]; }

  void add(otr_pass* pass, int64_t id, const Tensor& grad, const otr_call_info* info = nullptr) {
    const Moved there(place_, grad);
    EXPECT_OK(otr_pass_add_grad(pass, id, &there, info));
  }

  void micro_batch() {
    const int64_t samples = shared_.from(1, 2);
    std::vector<Trace> traces;
    Values h = own_.values(samples * kWidth, 1);
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

 private:
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
    const Moved first_there(place_, first), second_there(place_, second);
    const otr_tensor outputs[2] = {first_there.get(), second_there.get()};
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
    Passes& run;
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
      Values out = run.place_.values(seeds[0]);
      if (count == 2) {
        for (double& x : out) x += run.place_.values(seeds[1])[0];
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
      const Tensor grad(shape, scaled), zeros = Tensor::filled(shape, 0);
      const Moved from(run.place_, grad), to(run.place_, zeros);
      EXPECT_OK(otr_pass_unscale(pass, &from, &to));
      plain.scaled = run.place_.values(to.get());
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
      const Moved there(place_, grad);
      EXPECT_FAILS(OTR_E_STATE, otr_pass_add_grad(pass, kB, &there, &tag), "counted");
      return;
    }
    if (own_.one_in(2)) {
      otr_tensor slot;
      EXPECT_OK(otr_pass_get_slot(pass, kB, &slot));
      place_.fill(slot, grad.values());
      EXPECT_OK(otr_pass_add_grad(pass, kB, &slot, &tag));
    } else {
      add(pass, kB, grad, &tag);
    }
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
      place_.fill(slot, grad);
      EXPECT_OK(otr_pass_add_grad(pass, id, &slot, nullptr));
    } else {
      add(pass, id, Tensor(shape, grad, form == 1 ? "float64" : "float32"));
    }
  }

  Random &shared_, &own_;
  Place place_;
  Forms& forms_;
  Members& members_;
  std::vector<std::unique_ptr<OpenPass>> open_;
  Incoming untagged_;  // what the last pass left, without factors
};

}  // namespace otr_test
