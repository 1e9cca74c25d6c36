// SPDX-License-Identifier: Apache-2.0
#include "composition.h"

#include <cmath>
#include <memory>

#include "composition_passes.h"

namespace otr_test {
namespace {

constexpr double kLr = 0.5;
constexpr int32_t kWindows = 3;

enum class Spoil : uint8_t { nothing, abandoned, infinite };

class Run {
 public:
  Run(uint64_t seed, int32_t rank, int32_t world, const Place& place, otr_comm* comm)
      : shared_(seed, 0),
        own_(seed, 1 + static_cast<uint64_t>(rank)),
        rank_(rank),
        world_(world),
        board_(comm),
        alone_(make_self(place.context)),
        passes_(shared_, own_, place, forms_, members_) {
    const int32_t engines = shared_.from(1, 3);
    const double clip = shared_.one_in(3) ? 0.0039 : 0;
    for (int32_t e = 0; e < engines; ++e) {
      const Setup setup = draw_setup(shared_, world, clip, place.on_device());
      members_.push_back(
          std::make_unique<Member>(setup, setup.own_group ? alone_.get() : comm, place));
      declare(*members_.back());
    }
  }

  Forms windows() {
    for (int32_t w = 0; w < kWindows; ++w) window();
    return forms_;
  }

 private:
  void met(const char* form) { passes_.met(form); }

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
      passes_.micro_batch();
      for (const auto& m : members_) {
        if (std::count(m->cuts.begin(), m->cuts.end(), k) == 0) continue;
        passes_.flush();
        EXPECT_EQ(m->engine.step().outcome, OTR_STEP_ACCUMULATED);
        m->cuts.erase(std::find(m->cuts.begin(), m->cuts.end(), k));
        if (m->cuts.empty() && m->setup.by_caller) {
          EXPECT_OK(otr_engine_set_boundary(m->engine.get(), OTR_BOUNDARY_YES));
        }
      }
      if (shared_.one_in(2)) passes_.flush();
    }
    const auto spoiled = static_cast<size_t>(shared_.below(static_cast<int32_t>(members_.size())));
    const int32_t draw = shared_.below(8);
    const Spoil how = draw == 0 ? Spoil::abandoned : draw == 1 ? Spoil::infinite : Spoil::nothing;
    if (how != Spoil::nothing) spoil(*members_[spoiled], how);
    passes_.flush();
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
    passes_.micro_batch();
    passes_.flush();
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
    const int32_t by = shared_.below(2) % world_;
    Owned<otr_pass> pass = m.engine.begin();
    const bool here = rank_ == by || m.setup.own_group;
    const double value = how == Spoil::infinite ? INFINITY : 1;
    if (here) passes_.add(pass.get(), kB, Tensor({kWidth}, Values(kWidth, value)));
    met(how == Spoil::infinite ? "infinite" : "abandoned");
    if (how == Spoil::infinite || !here) Engine::end(pass);
  }

  // ---- The end of a window ----

  void step_all(Spoil how, size_t spoiled) {
    Board::Sums mine;
    for (const auto& m : members_) mine.push_back(m->own);
    const std::vector<Board::Sums> sums = board_.exchange(mine);
    std::vector<std::vector<Board::Sum>> means;
    for (size_t e = 0; e < members_.size(); ++e) means.push_back(mean_of(sums, e));

    if (members_.size() > 1 && shared_.one_in(3)) {
      joint_step(sums, means, how, spoiled);
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

  // The mean gradients of an engine, from those of its ranks.
  [[nodiscard]] std::vector<Board::Sum> mean_of(const std::vector<Board::Sums>& sums,
                                                size_t e) const {
    if (members_[e]->setup.own_group) return members_[e]->own;
    std::vector<Board::Sum> mean = sums[0][e];
    for (size_t rank = 1; rank < sums.size(); ++rank) {
      for (size_t id = 0; id < mean.size(); ++id) {
        add_to(mean[id].mean, sums[rank][e][id].mean);
        mean[id].bound += sums[rank][e][id].bound;
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

  void joint_step(const std::vector<Board::Sums>& sums,
                  const std::vector<std::vector<Board::Sum>>& means, Spoil how, size_t spoiled) {
    met("joint step");
    std::vector<otr_engine*> engines;
    std::vector<otr_step_report> reports(members_.size(), OTR_STEP_REPORT_INIT);
    Norm norm;
    bool group = shared_.one_in(2);
    for (size_t e = 0; e < members_.size(); ++e) {
      engines.push_back(members_[e]->engine.get());
      const bool own = members_[e]->setup.own_group;
      group = group || own;
      for (size_t rank = 0; rank < (own ? sums.size() : 1); ++rank) {
        const Norm part = norm_of(own ? sums[rank][e] : means[e]);
        norm.squares += part.squares;
        norm.bound += part.bound;
      }
    }
    if (group) met("joint step of a group");
    EXPECT_OK(otr_step_many(engines.data(), static_cast<int64_t>(engines.size()),
                            group ? board_.comm() : nullptr, reports.data()));
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
  int32_t rank_, world_;
  Board board_;
  Owned<otr_comm> alone_;
  Forms forms_;
  Members members_;
  Passes passes_;
};

}  // namespace

Forms run_composition(uint64_t seed, int32_t rank, int32_t world, const Place& place,
                      otr_comm* comm) {
  return Run(seed, rank, world, place, comm).windows();
}

}  // namespace otr_test
