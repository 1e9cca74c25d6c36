// SPDX-License-Identifier: Apache-2.0
// A forward behind a pending step of ranks that have copies of the parameters: each comes when its
// bucket has been gathered, whatever becomes of the others.
#include "blocking.h"
#include "gated.h"

namespace {

using namespace otr_test;

constexpr int64_t kFirst = 512, kLast = 2048;  // elements; a bucket each

struct Ranked {
  Ranked(otr_comm* base, Gate& gate, const Kind& kind)
      : context(make_context(1)),
        comm(gated(context.get(), base, gate)),
        engine(comm.get(), config_of(kind)) {
    engine.add("first", {kFirst}, dyadic(kFirst, 1));
    engine.add("last", {kLast}, dyadic(kLast, 2));
    engine.commit();
  }
  void pass(int32_t rank, int i) {
    engine.pass({{0, dyadic(kFirst, i + rank)}, {1, dyadic(kLast, 2 * i + 3 * rank)}});
  }
  Owned<otr_context> context;
  Owned<otr_comm> comm;
  Engine engine;
};

size_t slice_bytes(const Kind& kind, int64_t elements) {
  const bool half = std::string_view(kind.precision) != "float32";
  return static_cast<size_t>(elements) / 2 * (half ? 2 : 4);
}

// Ranks have copies, of which each updates a part.
std::vector<Kind> kinds_with_copies() {
  std::vector<Kind> some;
  for (const Kind& kind : kKinds) {
    if (kind.stage == 1 || kind.stage == 2) some.push_back(kind);
  }
  return some;
}

class PendingGather : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, PendingGather, testing::ValuesIn(kinds_with_copies()), name_of);

// The last bucket is held up: the first parameter is there all the same, as the step leaves it.
TEST_P(PendingGather, ShowsAParameterBeforeTheOthersHaveCome) {
  std::vector<Values> wanted, seen;
  for (const bool begun : {false, true}) {
    Gate gates[2];
    run_ranks(2, [&](int32_t rank, otr_comm* base) {
      Gate& gate = gates[rank];
      Ranked ranked(base, gate, GetParam());
      std::vector<Values>& all = begun ? seen : wanted;
      const auto show = [&](int64_t id) {
        const Values values = use(ranked.engine, id);
        if (rank == 0) all.push_back(values);
      };
      gate.held = slice_bytes(GetParam(), kLast);
      for (int i = 0; i < 3; ++i) {
        ranked.pass(rank, i);
        if (!begun) {
          EXPECT_EQ(ranked.engine.step().outcome, OTR_STEP_APPLIED);
          show(0);
          show(1);
          continue;
        }
        gate.held_up = 0;
        gate.set(true);
        EXPECT_OK(otr_engine_step_begin(ranked.engine.get()));
        gate.wait_for_held();
        show(0);
        otr_step_report report = OTR_STEP_REPORT_INIT;
        EXPECT_OK(otr_engine_report(ranked.engine.get(), 0, &report));
        EXPECT_EQ(report.outcome, OTR_STEP_PENDING);
        gate.set(false);
        show(1);
        EXPECT_EQ(ranked.engine.report().outcome, OTR_STEP_APPLIED);
      }
    });
  }
  ASSERT_EQ(wanted.size(), 6U);
  EXPECT_EQ(seen, wanted);
  EXPECT_NE(wanted[0], wanted[2]);
}

// A rank that gives up while its bucket is under way: the caller's function fails on the other one,
// where who waits for the parameter is told.
TEST(PendingGathers, EndWithTheRankThatGoes) {
  Gate gates[2];
  run_ranks(2, [&](int32_t rank, otr_comm* base) {
    const Kind kind = kinds_with_copies().front();
    Ranked ranked(base, gates[rank], kind);
    gates[rank].held = slice_bytes(kind, kLast);
    gates[rank].set(true);
    ranked.pass(rank, 0);
    EXPECT_OK(otr_engine_step_begin(ranked.engine.get()));
    if (rank == 1) {
      for (Gate& gate : gates) gate.wait_for_held();
      EXPECT_OK(otr_engine_abort(ranked.engine.get(), "no more"));
      for (Gate& gate : gates) gate.set(false);
      return;
    }
    const int64_t id = 1;
    otr_tensor weight;
    EXPECT_FAILS(OTR_E_HOST, otr_engine_acquire(ranked.engine.get(), &id, 1, nullptr, &weight),
                 "all_gather", "publish parameters", "published parameters");
    otr_step_report report = OTR_STEP_REPORT_INIT;
    EXPECT_FAILS(OTR_E_HOST, otr_engine_report(ranked.engine.get(), -1, &report), "all_gather");
  });
}

}  // namespace
