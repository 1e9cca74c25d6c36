// SPDX-License-Identifier: Apache-2.0
// Memory that a host was shown, read after its time: it means nothing, and ends no process.
#include <algorithm>
#include <barrier>

#include "../sanitizers.h"
#include "support.h"

namespace {

using namespace otr_test;

constexpr int64_t kShown = int64_t{1} << 20;  // blocks of their own, which the system gets back

// Reads all of it.
void look(const otr_tensor& tensor, size_t bytes) {
  const auto* const data = static_cast<volatile unsigned char*>(tensor.data);
  for (size_t i = 0; i < bytes; i += 512) static_cast<void>(data[i]);
}

// … and writes into it.
void touch(const otr_tensor& tensor, size_t bytes) {
  auto* const data = static_cast<volatile unsigned char*>(tensor.data);
  for (size_t i = 0; i < bytes; i += 512) data[i] = static_cast<unsigned char>(data[i] + 1);
}

int64_t resident_total(const Engine& engine) {
  otr_memory_entry entries[64] = {};
  entries[0].struct_size = sizeof entries[0];
  size_t count = 64;
  EXPECT_OK(otr_engine_memory(engine.get(), entries, &count));
  return entries[count - 1].resident_bytes;
}

otr_tensor weight_of(const Engine& engine, uint32_t flags = 0) {
  otr_call_info info;
  EXPECT_OK(otr_call_info_init(&info, sizeof info));
  info.flags = flags;
  const int64_t id = 0;
  otr_tensor out{};
  EXPECT_OK(otr_engine_acquire(engine.get(), &id, 1, &info, &out));
  return out;
}

void give_up(const Engine& engine) {
  const int64_t id = 0;
  EXPECT_OK(otr_engine_release(engine.get(), &id, 1, nullptr));
}

otr_tensor slot_of(const Owned<otr_pass>& pass) {
  otr_tensor slot{};
  EXPECT_OK(otr_pass_get_slot(pass.get(), 0, &slot));
  return slot;
}

void hand_back(const Owned<otr_pass>& pass, const otr_tensor& slot) {
  EXPECT_OK(otr_pass_add_grad(pass.get(), 0, &slot, nullptr));
}

class Shown : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Shown, testing::ValuesIn(kKinds), name_of);

TEST_P(Shown, AddressesStayUntilTheEngineAndItsPassesGo) {
  const int64_t before = pss();
  Solo solo(config_of(GetParam()));
  solo.engine.add("w", {kShown}, Values(kShown, 1));
  solo.engine.commit();
  const otr_tensor weight = weight_of(solo.engine);
  const size_t stored = kShown * weight.dtype.bits / 8;

  // A slot at its place, and one that finds the place taken.
  auto first = solo.engine.begin(), second = solo.engine.begin();
  const otr_tensor slots[] = {slot_of(first), slot_of(second)};
  EXPECT_NE(slots[0].data, slots[1].data);
  for (const otr_tensor& slot : slots) std::fill_n(static_cast<char*>(slot.data), stored, '\0');
  hand_back(first, slots[0]);
  hand_back(second, slots[1]);
  Engine::end(first);
  Engine::end(second);
  EXPECT_EQ(solo.engine.step().outcome, OTR_STEP_APPLIED);
  for (const otr_tensor& slot : slots) look(slot, stored);

  const otr_tensor wide = weight_of(solo.engine, OTR_ACQUIRE_FLOAT32);
  give_up(solo.engine);
  look(wide, size_t{4} * kShown);
  const otr_tensor held = weight_of(solo.engine);
  EXPECT_EQ(value_at(held, kShown / 2), solo.engine.read(0, OTR_VALUE_PUBLISHED)[kShown / 2]);

  EXPECT_OK(otr_engine_finalize(solo.engine.get()));
  EXPECT_EQ(resident_total(solo.engine), 0);
  if (before >= 0 && !outrigger::test::kSanitized) {
    EXPECT_LT(pss() - before, int64_t{1} << 20) << "the memory behind the addresses is given back";
  }
  EXPECT_EQ(value_at(held, kShown / 2), 0);
  touch(held, stored);
  touch(wide, size_t{4} * kShown);
  for (const otr_tensor& slot : slots) touch(slot, stored);
  first.reset();
  solo.engine.reset();  // the second pass has it still
  touch(held, stored);
  touch(slots[1], stored);
}

// Where parameters are gathered, and where the ranks of a process have them together.
TEST(Shown, OfSeveralRanks) {
  for (const char* shared : {"true", "false"}) {
    SCOPED_TRACE(shared);
    std::barrier both(2);
    run_ranks(2, [&](int32_t rank, otr_comm* comm) {
      Engine engine(comm, std::string(R"({"zero_optimization": {"stage": 3}, "outrigger":
                                          {"share_parameters": )") +
                              shared + "}}");
      engine.add("w", {kShown}, Values(kShown, 2));
      engine.commit();
      const otr_tensor weight = weight_of(engine);
      both.arrive_and_wait();
      if (rank == 0) {
        EXPECT_OK(otr_engine_finalize(engine.get()));
        EXPECT_EQ(resident_total(engine), 0);
#ifdef NDEBUG  // else a gathered parameter that is read too late ends the program, on purpose
        touch(weight, 4 * kShown);
#endif
      } else {
        EXPECT_EQ(value_at(weight, kShown - 1), 2);
        EXPECT_OK(otr_engine_finalize(engine.get()));
      }
    });
  }
}

TEST(Shown, OneRankLeavesAndTheOtherReadsOn) {
  std::barrier both(2);
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, R"({"zero_optimization": {"stage": 1}})");
    engine.add("w", {kShown}, Values(kShown, 3));
    engine.commit();
    const otr_tensor weight = weight_of(engine);
    both.arrive_and_wait();
    if (rank == 0) engine.reset();
    both.arrive_and_wait();
    if (rank == 1) {
      EXPECT_EQ(value_at(weight, 0), 3);
      EXPECT_EQ(value_at(weight, kShown - 1), 3);
    }
  });
}

// Memory that was shown is shown again: as many slots as are out at a time, not as many as ever
// were.
TEST(Shown, IsUsedAgain) {
  Solo solo(config_of(kKinds[3]));
  solo.engine.add("w", {kShown}, Values(kShown, 1));
  solo.engine.commit();
  std::vector<void*> seen;
  for (int window = 0; window < 8; ++window) {
    const otr_tensor wide = weight_of(solo.engine);
    give_up(solo.engine);
    auto first = solo.engine.begin(), second = solo.engine.begin();
    const otr_tensor slots[] = {slot_of(first), slot_of(second)};
    for (const otr_tensor& slot : slots) {
      std::fill_n(static_cast<float*>(slot.data), kShown, 1.0F);
      if (std::ranges::find(seen, slot.data) == seen.end()) seen.push_back(slot.data);
    }
    hand_back(second, slots[1]);
    hand_back(first, slots[0]);
    Engine::end(first);
    Engine::end(second);
    EXPECT_EQ(solo.engine.step().outcome, OTR_STEP_APPLIED);
    static_cast<void>(wide);
  }
  EXPECT_LE(seen.size(), 5U) << "four buffers, and what a slot was given beside them";
}

}  // namespace
