// SPDX-License-Identifier: Apache-2.0
// Acquire where each rank has only its slices: the memory comes and goes, its address stays.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "support.h"

namespace {

using namespace otr_test;

constexpr int64_t kCount = 40000;  // of float32: some pages
const char* const kConfig =
    R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.125}},
        "zero_optimization": {"stage": 3}, "outrigger": {"share_parameters": false}})";

otr_tensor acquire(const Engine& engine, int64_t id) {
  otr_tensor out{};
  EXPECT_OK(otr_engine_acquire(engine.get(), &id, 1, nullptr, &out));
  return out;
}

void release(const Engine& engine, int64_t id) {
  EXPECT_OK(otr_engine_release(engine.get(), &id, 1, nullptr));
}

int64_t windows(const Engine& engine) {
  otr_memory_entry entries[64] = {};
  entries[0].struct_size = sizeof entries[0];
  size_t count = 64;
  EXPECT_OK(otr_engine_memory(engine.get(), entries, &count));
  for (size_t i = 0; i < count; ++i) {
    if (std::string_view(entries[i].purpose) == "acquired copies") return entries[i].resident_bytes;
  }
  ADD_FAILURE() << "the ledger has no such purpose";
  return -1;
}

int64_t resident_pages(const void* data, size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> there((bytes + page - 1) / page);
  EXPECT_EQ(mincore(const_cast<void*>(data), bytes, there.data()), 0);
  return std::count_if(there.begin(), there.end(), [](unsigned char each) { return each & 1; });
}

TEST(Gather, MemoryComesAndGoesAtOneAddress) {
  run_ranks(2, [](int32_t, otr_comm* comm) {
    Engine engine(comm, kConfig);
    engine.add("big", {kCount}, dyadic(kCount, 1));
    engine.add("small", {3}, {1, 2, 3});
    engine.commit();
    const int64_t before = windows(engine);
    const otr_tensor first = acquire(engine, 0);
    const otr_tensor small = acquire(engine, 1);
    EXPECT_EQ(values_of(first), dyadic(kCount, 1));
    EXPECT_EQ(windows(engine), before + (kCount + 3) * 4);
    EXPECT_GT(resident_pages(first.data, kCount * 4), 30);

    release(engine, 0);
    EXPECT_EQ(windows(engine), before + 3 * 4);
    EXPECT_EQ(resident_pages(first.data, kCount * 4), 0) << "the pages go back to the system";
    EXPECT_EQ(values_of(small), (Values{1, 2, 3}));

    EXPECT_EQ(acquire(engine, 0).data, first.data);
    EXPECT_EQ(values_of(first), dyadic(kCount, 1)) << "what a host had kept is right again";

    engine.pass({{0, dyadic(kCount, 5)}});
    engine.step();
    EXPECT_EQ(windows(engine), before) << "a step ends every acquire";
    EXPECT_EQ(acquire(engine, 0).data, first.data);
    EXPECT_EQ(values_of(first), engine.read(0, OTR_VALUE_PUBLISHED));
    EXPECT_NE(values_of(first), dyadic(kCount, 1));
    release(engine, 0);
    EXPECT_OK(otr_engine_finalize(engine.get()));
  });
}

void prefetch(const Engine& engine, std::vector<int64_t> ids) {
  EXPECT_OK(
      otr_engine_prefetch(engine.get(), ids.data(), static_cast<int64_t>(ids.size()), nullptr));
}

// Of one size, so that only the name tells.
void expect_named(bool prefetches) {
  run_ranks(2, [=](int32_t rank, otr_comm* comm) {
    Engine engine(comm, kConfig);
    engine.add("one", {100}, dyadic(100, 1));
    engine.add("two", {100}, dyadic(100, 2));
    engine.commit();
    const int64_t id = rank;
    if (prefetches) prefetch(engine, {id});
    otr_tensor out{};
    EXPECT_FAILS(OTR_E_MISMATCH, otr_engine_acquire(engine.get(), &id, 1, nullptr, &out),
                 "acquire \"one\"", "acquire \"two\"");
  });
}

TEST(Gather, RanksThatAskForDifferentParameters) { expect_named(false); }

// The first are alike, and all of one size.
TEST(Gather, RanksThatAskForDifferentParametersFurtherOn) {
  for (const bool prefetches : {false, true}) {
    run_ranks(2, [=](int32_t rank, otr_comm* comm) {
      Engine engine(comm, kConfig);
      for (const char* name : {"one", "two", "three"}) engine.add(name, {100}, dyadic(100, 1));
      engine.commit();
      const std::vector<int64_t> ids{0, rank == 0 ? 1 : 2, rank == 0 ? 2 : 1};
      if (prefetches) prefetch(engine, ids);
      otr_tensor out[3]{};
      EXPECT_FAILS(OTR_E_MISMATCH, otr_engine_acquire(engine.get(), ids.data(), 3, nullptr, out),
                   "acquire \"one\", \"two\"", "acquire \"one\", \"three\"");
    });
  }
}

void declare(Engine& engine) {
  engine.add("big", {kCount}, dyadic(kCount, 1));
  engine.add("small", {3}, {1, 2, 3});
  engine.add("last", {600}, dyadic(600, 2));
  engine.commit();
}

TEST(Prefetch, IsThereForTheAcquire) {
  run_ranks(3, [](int32_t, otr_comm* comm) {
    Engine engine(comm, kConfig);
    declare(engine);
    const int64_t before = windows(engine);
    for (int step = 0; step < 3; ++step) {
      prefetch(engine, {2, 0, 2});
      prefetch(engine, {0});
      EXPECT_EQ(windows(engine), before + (kCount + 600) * 4);
      // In another order, and between others.
      EXPECT_EQ(values_of(acquire(engine, 1)), engine.read(1, OTR_VALUE_PUBLISHED));
      EXPECT_EQ(values_of(acquire(engine, 0)), engine.read(0, OTR_VALUE_PUBLISHED));
      prefetch(engine, {0, 1});  // they are there
      EXPECT_EQ(values_of(acquire(engine, 2)), engine.read(2, OTR_VALUE_PUBLISHED));
      for (int64_t id = 0; id < 3; ++id) release(engine, id);
      EXPECT_EQ(windows(engine), before);
      prefetch(engine, {1, 0});  // what nobody acquires goes with the step
      engine.pass({{0, dyadic(kCount, 5)}, {2, dyadic(600, 3)}});
      EXPECT_EQ(engine.step().outcome, OTR_STEP_APPLIED);
      EXPECT_EQ(windows(engine), before);
    }
    prefetch(engine, {0});
    EXPECT_OK(otr_engine_finalize(engine.get()));
  });
}

TEST(Prefetch, FollowsAWeightThatIsWritten) {
  run_ranks(2, [](int32_t, otr_comm* comm) {
    Engine engine(comm, kConfig);
    declare(engine);
    prefetch(engine, {0, 1, 2});
    const Tensor next = Tensor::filled({kCount}, 0.75);
    EXPECT_OK(otr_engine_parameter_write(engine.get(), 0, OTR_VALUE_MASTER, &next));
    EXPECT_EQ(values_of(acquire(engine, 0)), Values(kCount, 0.75));
    EXPECT_EQ(values_of(acquire(engine, 2)), dyadic(600, 2));
  });
}

TEST(Prefetch, OfDifferentParametersIsNamed) { expect_named(true); }

// Rank 1 does neither fetch nor wait; destroying the engine does not wait for it, nor it for
// others.
TEST(Prefetch, OnItsWayWhenTheEngineGoes) {
  run_ranks(2, [](int32_t rank, otr_comm* comm) {
    Engine engine(comm, kConfig);
    declare(engine);
    if (rank == 0) prefetch(engine, {0, 1, 2});
    engine.reset();
    EXPECT_OK(otr_comm_barrier(comm)) << "the job goes on";
  });
}

TEST(Prefetch, WaitedForIsInterruptedAndTheCallMadeAgain) {
  static std::atomic<bool> stop, goes_on;
  stop = goes_on = false;
  const auto context = make_context(1, [](void*) -> int32_t { return stop ? 1 : 0; });
  run_ranks(context.get(), 2, [](int32_t rank, otr_comm* comm) {
    Engine engine(comm, kConfig);
    declare(engine);
    EXPECT_OK(otr_comm_barrier(comm));
    const int64_t id = 0;
    otr_tensor out{};
    if (rank == 0) {
      prefetch(engine, {0});
      stop = true;
      EXPECT_FAILS(OTR_E_INTERRUPTED, otr_engine_acquire(engine.get(), &id, 1, nullptr, &out),
                   "prefetched", "rank 1");
      stop = false;
      goes_on = true;
    } else {
      while (!goes_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      prefetch(engine, {0});
    }
    EXPECT_EQ(values_of(acquire(engine, 0)), dyadic(kCount, 1));
    EXPECT_OK(otr_comm_barrier(comm));
    goes_on = false;
    EXPECT_OK(otr_comm_barrier(comm));

    if (rank == 1) {
      while (!goes_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    prefetch(engine, {2});
    engine.pass({{2, dyadic(600, 3)}});
    if (rank == 0) {
      stop = true;
      EXPECT_FAILS(OTR_E_INTERRUPTED, otr_engine_step(engine.get(), nullptr), "prefetched");
      stop = false;
      goes_on = true;
    }
    EXPECT_EQ(engine.step().outcome, OTR_STEP_APPLIED);
    EXPECT_OK(otr_engine_check(engine.get()));
  });
}

}  // namespace
