// SPDX-License-Identifier: Apache-2.0
// The communicator's parts alone: shared layouts, the failure board, windows' layout, spinning.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/combine.h"
#include "core/comm/control.h"
#include "core/comm/failure.h"
#include "core/comm/host_window.h"
#include "core/comm/member.h"
#include "core/comm/wait.h"
#include "core/topology/memory.h"
#include "tests/comm/ranks.h"

namespace outrigger::comm::test {
namespace {

struct Control {
  explicit Control(int32_t world) : region(Region::make_private(control_bytes(world))) {
    initialise_control(*region, world);
  }
  [[nodiscard]] JobBlock& job() const { return *reinterpret_cast<JobBlock*>(region->data()); }
  std::shared_ptr<Region> region;
};

int32_t status_thrown(const FailureBoard& board, std::string* text = nullptr) {
  try {
    board.check();
  } catch (const Error& error) {
    if (text != nullptr) *text = error.what();
    return error.status();
  }
  return OTR_OK;
}

// However many ranks and threads post at once, everyone reads the same whole text.
TEST(FailureBoard, TheFirstPostWinsForEveryone) {
  for (int round = 0; round < 200; round++) {
    constexpr int32_t kWorld = 4;
    const Control control(kWorld);
    std::vector<std::unique_ptr<FailureBoard>> boards;
    for (int32_t r = 0; r < kWorld; r++) {
      boards.push_back(std::make_unique<FailureBoard>(control.job(), kWorld, r));
    }
    std::vector<std::thread> threads;
    std::vector<std::string> seen(2 * kWorld);
    for (size_t t = 0; t < seen.size(); t++) {
      threads.emplace_back([&, t] {
        FailureBoard& mine = *boards[t % kWorld];  // two threads a rank
        mine.post(OTR_E_ABORTED, static_cast<int32_t>(t), t,
                  std::string(100, static_cast<char>('a' + t)));
        static_cast<void>(status_thrown(mine, &seen[t]));
      });
    }
    for (auto& thread : threads) thread.join();
    for (const auto& text : seen) EXPECT_EQ(text, seen.front());
    EXPECT_EQ(seen.front(), std::string(100, seen.front().front()));
  }
}

TEST(FailureBoard, LongTextsAreCutNotOverrun) {
  const Control control(2);
  FailureBoard board(control.job(), 2, 1);
  board.post(OTR_E_TIMEOUT, 0, 1, std::string(5000, 'x'));
  std::string text;
  EXPECT_EQ(status_thrown(board, &text), OTR_E_TIMEOUT);
  EXPECT_EQ(text, std::string(sizeof(FailureRecord::text) - 1, 'x'));
}

// A peer that runs wild can write anything here.
TEST(FailureBoard, DamagedMemoryIsAnErrorNotACrash) {
  const Control control(2);
  const FailureBoard board(control.job(), 2, 0);
  for (const uint32_t by : {3u, 4000000000u}) {
    control.job().failed_by = by;
    EXPECT_EQ(status_thrown(board), OTR_E_INTERNAL);
  }
  FailureRecord& record = control.job().member(1).failure;
  record.text.fill('z');  // no end
  control.job().failed_by = 2;
  for (const int32_t status : {0, 1, 77, -1, INT32_MIN}) {
    record.status = status;
    EXPECT_EQ(status_thrown(board), OTR_E_INTERNAL);
  }
  record.status = OTR_E_MISMATCH;
  std::string text;
  EXPECT_EQ(status_thrown(board, &text), OTR_E_MISMATCH);
  EXPECT_EQ(text.size(), record.text.size());
}

TEST(Control, IsRefusedWithAnotherLayout) {
  const Control control(2);
  check_control(*control.region, 2);
  EXPECT_THROW(check_control(*control.region, 3), Error);
  control.job().version++;
  EXPECT_THROW(check_control(*control.region, 2), Error);
}

// No two ranks' parts of the staging area overlap, nor do the two halves, nor slots, records of
// failures and staging.
TEST(Control, StagingPartsAreDisjointAndInside) {
  for (const int32_t world : {2, 3, 7, 64, kMaxWorld}) {
    alignas(kLine) static std::byte origin[1];  // only addresses are computed
    auto& channel = *reinterpret_cast<ChannelBlock*>(origin);
    const size_t part = ChannelBlock::staging_bytes(world);
    EXPECT_GE(part, size_t{4096});
    EXPECT_EQ(static_cast<void*>(&channel.failure(world, 0)), &channel.slot(world));
    const std::byte* end = reinterpret_cast<std::byte*>(&channel.failure(world, world));
    for (uint64_t step = 0; step < 2; step++) {
      for (int32_t r = 0; r < world; r++) {
        EXPECT_EQ(channel.staging(world, r, step), end);
        end += part;
      }
    }
    EXPECT_EQ(static_cast<size_t>(end - origin), ChannelBlock::bytes(world));
    EXPECT_EQ(channel.staging(world, 1, 5), channel.staging(world, 1, 1));
  }
}

TEST(Operation, LongLabelsDifferByTheirHash) {
  Operation a, b;
  a.set_label(std::string(200, 'x') + "1");
  b.set_label(std::string(200, 'x') + "2");
  EXPECT_EQ(a.label_text(), b.label_text());
  EXPECT_FALSE(a.same_call(b));
  b.set_label(std::string(200, 'x') + "1");
  EXPECT_TRUE(a.same_call(b));
  a.number = 7;  // not part of the call
  EXPECT_TRUE(a.same_call(b));
  a.set_label("short");
  EXPECT_EQ(a.label_text(), "short");
}

// Ranks compare digests, so each field that they must have in common changes it.
TEST(Operation, DigestIsOfAllThatRanksHaveInCommon) {
  Operation one;
  one.set_label("weights");
  Operation other = one;
  other.number = 7;
  other.label[3] = '!';  // its hash stands for it
  EXPECT_EQ(one.digest(), other.digest());
  const std::vector<std::function<void(Operation&)>> changes = {
      [](Operation& o) { o.kind = OperationKind::reduce; },
      [](Operation& o) { o.root = 1; },
      [](Operation& o) { o.bytes = 1; },
      [](Operation& o) { o.offset = 1; },
      [](Operation& o) { o.window[0] = 1; },
      [](Operation& o) { o.window[1] = 1; },
      [](Operation& o) { o.set_label("weight"); },
  };
  std::set<uint64_t> digests = {one.digest()};
  for (const auto& change : changes) {
    Operation changed = one;
    change(changed);
    EXPECT_FALSE(changed.same_call(one));
    EXPECT_TRUE(digests.insert(changed.digest()).second) << digests.size();
  }
}

TEST(Operation, PassesThroughSharedMemoryWhole) {
  Operation in;
  in.number = 3;
  in.kind = OperationKind::reduce;
  in.root = -1;
  in.bytes = UINT64_MAX;
  in.window[1] = 9;
  in.set_label("gradients");
  PostedOperation posted;
  posted.store(in);
  const Operation out = posted.load();
  EXPECT_TRUE(out.same_call(in));
  EXPECT_EQ(out.number, 3u);
  EXPECT_EQ(out.text(), in.text());
  // The text goes along only where it is another one.
  in.number = 5;
  in.bytes = 7;
  EXPECT_FALSE(posted.load().same_call(in));
  posted.store(in);
  EXPECT_TRUE(posted.load().same_call(in));
  EXPECT_EQ(posted.load().number, 5u);
  for (const char* label : {"gradient", "gradients", "gradients of a longer name", ""}) {
    in.set_label(label);
    EXPECT_FALSE(posted.load().same_call(in)) << label;
    posted.store(in);
    EXPECT_TRUE(posted.load().same_call(in)) << label;
    EXPECT_EQ(posted.load().label_text(), label);
  }
  in.kind = static_cast<OperationKind>(1234);
  expect_says(in.text(), {"unknown kind 1234"});
}

// Every page of a window is touched first by exactly one rank: its owner.
TEST(WindowLayout, PartsCoverEachBlockOnce) {
  for (const int32_t world : {1, 2, 3, 5}) {
    for (const size_t bytes :
         {size_t{0}, size_t{1}, page_size() - 1, page_size() + 1, kHugePage - 1, kHugePage,
          3 * kHugePage + 5, 40 * kHugePage + 12345}) {
      SCOPED_TRACE(outrigger::format_text("{} ranks, {} bytes", world, bytes));
      const auto common = WindowLayout::make(WindowKind::common, world, bytes);
      size_t at = 0;
      for (int32_t r = 0; r < world; r++) {
        const auto part = common.first_touch(r);
        EXPECT_EQ(part.offset, at);
        EXPECT_EQ(part.offset % page_size(), 0u);
        at += part.bytes;
      }
      EXPECT_EQ(at, common.total);
      EXPECT_GE(common.total, bytes);

      const auto own = WindowLayout::make(WindowKind::per_rank, world, bytes);
      for (int32_t r = 0; r < world; r++) {
        const auto part = own.first_touch(r);
        EXPECT_EQ(part.offset, static_cast<size_t>(r) * own.stride);
        EXPECT_EQ(part.bytes, bytes);
        EXPECT_LE(part.offset + bytes, own.total);
      }
      EXPECT_GE(own.stride, bytes);
      EXPECT_EQ(own.stride % (bytes < kHugePage - page_size() ? page_size() : kHugePage), 0u);
    }
  }
}

TEST(Spin, GivesUpSpinningWhereItDoesNotPayAndComesBack) {
  Spin spin(std::chrono::milliseconds(1));
  const auto looks = [&](int64_t ready_at) {
    int64_t n = 0;
    static_cast<void>(spin.wait([&] { return n++ == ready_at; }));
    return n;
  };
  for (int i = 0; i < 20; i++) looks(INT64_MAX);
  EXPECT_EQ(looks(INT64_MAX), 0);  // sleeps at once
  int waits = 0;
  while (looks(10) != 11 && waits < 100) waits++;
  EXPECT_LT(waits, 40);        // a probe noticed that it pays again
  EXPECT_EQ(looks(100), 101);  // and room was left for a little more
  Spin never(std::chrono::microseconds(0));
  EXPECT_FALSE(never.wait([] { return true; }));
}

// Ranks that sleep at once, so that every arrival meets some who sleep and some who are about to.
// One whom the last arrival does not wake sleeps through a slice, some thousand times what a
// wake-up takes.
TEST(Bell, IsHeardByAllWhoSleep) {
  constexpr int32_t kWorld = 3, kRounds = 1000;
  auto group = make_threads(kWorld, {.spin = 0});
  const auto begun = Clock::now();
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < kWorld; ++r) {
    threads.emplace_back([&c = *group[static_cast<size_t>(r)]] {
      const auto window = c.create_window(WindowKind::per_rank, 4096, "w");
      for (int32_t i = 0; i < kRounds; ++i) {
        c.barrier("all");
        static_cast<void>(c.exchange(*window, 0, 64, "reads"));
        c.wait_drained(c.end_exchange(), "reads");
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_LT(Clock::now() - begun, kRounds * kSlice / 4);
}

// Ranks are merged in any groups of neighbours.
TEST(Compared, IsTheSameInAnyGrouping) {
  for (uint32_t values = 0; values < 243; ++values) {  // of five ranks, each 0, 1 or 2
    std::vector<Compared<uint32_t>> ranks;
    for (uint32_t left = values; ranks.size() < 5; left /= 3) {
      ranks.push_back({left % 3, left % 3, static_cast<int32_t>(ranks.size())});
    }
    const auto merged = [](std::span<const Compared<uint32_t>> some) {
      Compared<uint32_t> all = some.front();
      for (const auto& one : some.subspan(1)) merge(all, one);
      return all;
    };
    const Compared<uint32_t> expected = merged(ranks);
    const std::span<const Compared<uint32_t>> all(ranks);
    for (size_t cut = 1; cut < all.size(); ++cut) {
      Compared<uint32_t> left = merged(all.first(cut));
      merge(left, merged(all.subspan(cut)));
      ASSERT_EQ(left.first, ranks[0].first);
      ASSERT_EQ(left.rank, expected.rank) << values << ", cut at " << cut;
      ASSERT_EQ(left.other, expected.other) << values << ", cut at " << cut;
    }
    const auto differs =
        std::ranges::find_if(ranks, [&](const auto& rank) { return rank.first != ranks[0].first; });
    ASSERT_EQ(expected.rank, differs == ranks.end() ? -1 : differs->lowest) << values;
  }
}

TEST(FreeMemory, IsKnownAndRefusesMore) {
  const topology::FreeMemory free = topology::free_memory();
  EXPECT_GT(free.bytes(), uint64_t{1} << 20);
  EXPECT_LT(free.bytes(), uint64_t{1} << 50);
  EXPECT_FALSE(free.source().empty());
  try {
    require_free_memory(size_t{1} << 50);
    ADD_FAILURE() << "a petabyte was free";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), OTR_E_OUT_OF_MEMORY);
    expect_says(error.what(), {"1048576.0 GiB are needed", "free: ", "MemAvailable"});
  }
  EXPECT_EQ(topology::memory_text(12), "12 bytes");
  EXPECT_EQ(topology::memory_text(uint64_t{50} << 20), "50.0 MiB");
}

}  // namespace
}  // namespace outrigger::comm::test
