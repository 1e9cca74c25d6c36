// SPDX-License-Identifier: Apache-2.0
// Acquire where each rank has only its slices: the memory comes and goes, its address stays.
#include <sys/mman.h>
#include <unistd.h>

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

// Of one size, so that only the name tells.
TEST(Gather, RanksThatAskForDifferentParameters) {
  run_ranks(2, [](int32_t rank, otr_comm* comm) {
    Engine engine(comm, kConfig);
    engine.add("one", {100}, dyadic(100, 1));
    engine.add("two", {100}, dyadic(100, 2));
    engine.commit();
    const int64_t id = rank;
    otr_tensor out{};
    EXPECT_FAILS(OTR_E_MISMATCH, otr_engine_acquire(engine.get(), &id, 1, nullptr, &out),
                 "acquire \"one\"", "acquire \"two\"");
  });
}

}  // namespace
