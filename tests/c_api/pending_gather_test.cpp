// SPDX-License-Identifier: Apache-2.0
// A forward behind a pending step of ranks that have copies of the parameters: each comes when its
// bucket has been gathered, whatever becomes of the others.
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "blocking.h"

namespace {

using namespace otr_test;

constexpr int64_t kFirst = 512, kLast = 2048;  // elements; a bucket each

// Holds the gathers of so many bytes a rank up while it is closed.
struct Gate {
  void pass(size_t bytes) {
    std::unique_lock lock(mutex);
    if (bytes == held) ++held_up;
    changed.notify_all();
    changed.wait(lock, [&] { return bytes != held || !closed; });
  }
  void set(bool close) {
    const std::lock_guard lock(mutex);
    closed = close;
    changed.notify_all();
  }
  void wait_for_held() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return held_up > 0; });
  }
  std::mutex mutex;
  std::condition_variable changed;
  size_t held = 0;
  bool closed = false;
  int held_up = 0;
};

struct Channel {
  Owned<otr_comm> comm;
  Gate* gate;
};
int32_t all_gather(void* user, const void* mine, size_t bytes, void* all) {
  const auto& channel = *static_cast<Channel*>(user);
  channel.gate->pass(bytes);
  return otr_comm_all_gather(channel.comm.get(), mine, bytes, all);
}
// Of gradients; past the gate.
int32_t all_to_all(void* user, const void* parts, size_t bytes, void* received) {
  otr_comm* const comm = static_cast<Channel*>(user)->comm.get();
  int32_t rank = -1;
  EXPECT_OK(otr_comm_rank(comm, &rank));
  std::vector<char> all(4 * bytes);
  const int32_t status = otr_comm_all_gather(comm, parts, 2 * bytes, all.data());
  for (size_t from = 0; from < 2; ++from) {
    std::memcpy(static_cast<char*>(received) + from * bytes,
                all.data() + (2 * from + static_cast<size_t>(rank)) * bytes, bytes);
  }
  return status;
}
int32_t duplicate(void* user, void** out) {
  const auto& channel = *static_cast<Channel*>(user);
  otr_comm* made = nullptr;
  const int32_t status = otr_comm_duplicate(channel.comm.get(), &made);
  if (status == OTR_OK) *out = new Channel{Owned<otr_comm>(made), channel.gate};
  return status;
}
void stop(void* user, const char* reason) {
  otr_comm_abort(static_cast<Channel*>(user)->comm.get(), reason);
}
void give_back(void* user) { delete static_cast<Channel*>(user); }

// Of the caller's functions: its ranks share no memory.
Owned<otr_comm> custom(otr_context* context, otr_comm* base, Gate& gate) {
  otr_comm_table table;
  EXPECT_OK(otr_comm_table_init(&table, sizeof table));
  EXPECT_OK(otr_comm_rank(base, &table.rank));
  EXPECT_OK(otr_comm_size(base, &table.world_size));
  otr_comm *channel = nullptr, *made = nullptr;
  EXPECT_OK(otr_comm_duplicate(base, &channel));
  table.user_data = new Channel{Owned<otr_comm>(channel), &gate};
  table.all_gather = all_gather;
  table.all_to_all = all_to_all;
  table.duplicate = duplicate;
  table.abort = stop;
  table.destroy = give_back;
  EXPECT_OK(otr_comm_create_custom(context, &table, &made));
  return Owned<otr_comm>(made);
}

struct Ranked {
  Ranked(otr_comm* base, Gate& gate, const Kind& kind)
      : context(make_context(1)),
        comm(custom(context.get(), base, gate)),
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
    gates[rank].set(rank == 1);
    ranked.pass(rank, 0);
    EXPECT_OK(otr_engine_step_begin(ranked.engine.get()));
    if (rank == 1) {
      gates[rank].wait_for_held();
      EXPECT_OK(otr_engine_abort(ranked.engine.get(), "no more"));
      gates[rank].set(false);
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
