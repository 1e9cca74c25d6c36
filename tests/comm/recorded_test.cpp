// SPDX-License-Identifier: Apache-2.0
// Communicators that a flight recorder keeps: what the file has of each operation, and of failures.
#include "core/comm/recorded.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/comm/flights.h"
#include "tests/comm/ranks.h"

namespace outrigger::comm::test {
namespace {

// What require() is for expectations: it is told by the rank.
template <typename A, typename B>
void equal(const A& is, const B& wanted, const char* what) {
  require(is == wanted, outrigger::format_text("{}: {} instead of {}", what, is, wanted));
}

class RecordedTest : public testing::TestWithParam<Ranks> {};

TEST_P(RecordedTest, EveryOperationIsKeptByValue) {
  const Folder folder;
  const int64_t before = nanoseconds_now();
  run_all_well(GetParam(), [&](Communicator& all) {
    const auto recorder = std::make_shared<FlightRecorder>(folder.place());
    const auto comm = recorded(all.duplicate("kept"), recorder, "kept");
    auto moment = std::make_shared<Moment>();
    comm->barrier("first");
    moment->step = 7;
    moment->micro_step = 13;
    comm->follow(moment);
    std::vector<std::byte> data(24), gathered(24 * static_cast<size_t>(all.size()));
    comm->broadcast(data, 0, "second");
    comm->all_gather(data, gathered, "third");
    try {
      comm->broadcast(data, 999, "refused");
    } catch (const Error& error) {
      equal(error.status(), OTR_E_ARGUMENT, "status");
    }
    comm->combine(data, [](size_t, auto, auto) {}, "fifth");
    const auto copy = comm->duplicate("copy");
    moment->step = 8;
    copy->barrier("of the copy");

    const Content content = read(recorder->path());
    const std::array<const char*, 7> what{"barrier", "broadcast", "all_gather", "broadcast",
                                          "combine", "duplicate", "barrier"};
    const std::array<const char*, 7> labels{"first", "second", "third",      "refused",
                                            "fifth", "copy",   "of the copy"};
    const std::array<uint64_t, 7> numbers{1, 2, 3, 4, 4, 5, 1}, bytes{0, 24, 24, 24, 24, 0, 0};
    const std::array<int64_t, 7> steps{0, 7, 7, 7, 7, 7, 8};
    equal(content.entries.size(), what.size(), "entries");
    for (size_t i = 0; i < what.size(); ++i) {
      const FlightEntry& e = content.entries[i];
      equal(e.serial, i + 1, "serial");
      equal(text(e.what), what[i], "what");
      equal(text(e.label), labels[i], "label");
      equal(e.number, numbers[i], "number");
      equal(e.bytes, bytes[i], "bytes");
      equal(e.step, steps[i], "step");
      equal(e.micro_step, i == 0 ? 0 : 13, "micro step");
      equal(e.status, i == 3 ? OTR_E_ARGUMENT : OTR_OK, "status");
      equal(e.group, i == 6 ? copy->identity() : comm->identity(), "group");
      require(e.begun <= e.ended, "times");
      require(e.begun + content.header.to_calendar >= before - 1000000, "began before the test");
      require(e.ended + content.header.to_calendar <= nanoseconds_now() + 1000000, "in the future");
    }
    const FlightGroup& group = content.groups[0];
    equal(group.identity, comm->identity(), "identity");
    equal(group.rank, all.rank(), "rank");
    equal(group.size, all.size(), "size");
    equal(text(group.name), "kept", "name");
    equal(text(group.provider), comm->provider(), "provider");
    equal(group.current.number, 5U, "last begun");
    require(group.current.ended != 0, "under way");
    equal(text(content.groups[1].name), "copy", "name");
    // The same number on all ranks, and another for each object.
    require(comm->identity() != copy->identity() && comm->identity() != all.identity(), "alike");
    for (const uint64_t mine : {comm->identity(), copy->identity(), all.identity()}) {
      std::vector<uint64_t> theirs(static_cast<size_t>(all.size()));
      all.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(theirs)),
                     "identities");
      for (const uint64_t other : theirs) equal(other, mine, "identity");
    }
  });
  EXPECT_EQ(folder.files().size(), 0U) << "a clean end leaves nothing";
}

TEST_P(RecordedTest, AFailureKeepsTheFileWithItsText) {
  const Folder folder;
  const auto outcomes = run(GetParam(), [&](Communicator& all) {
    const auto recorder = std::make_shared<FlightRecorder>(folder.place());
    const auto comm = recorded(all.duplicate("kept"), recorder, "kept");
    comm->barrier("all are here");
    if (comm->rank() == 0) comm->abort("enough of this");
    comm->barrier("never over");
  });
  EXPECT_EQ(folder.files().size(), outcomes.size());
  for (const std::string& file : folder.files()) {
    const Content content = read(file);
    EXPECT_EQ(content.header.failed, 2U);
    ASSERT_FALSE(content.entries.empty());
    const FlightEntry& last = content.entries.back();
    // The caller's functions have no more to tell than that they failed.
    const bool is_told =
        content.groups[0].rank == 0 || text(content.groups[0].provider) != "custom";
    EXPECT_EQ(content.header.failed_status, is_told ? OTR_E_ABORTED : OTR_E_HOST);
    EXPECT_EQ(last.status, content.header.failed_status);
    // Messages may overtake: another rank may hear of the abort while it is in the first barrier.
    EXPECT_EQ(text(last.label), content.entries.size() == 1 ? "all are here" : "never over");
    EXPECT_NE(text(content.header.failure).find(is_told ? "enough of this" : "operation "),
              std::string::npos)
        << text(content.header.failure);
    EXPECT_EQ(content.header.failed_group, last.group);
  }
}

TEST(FlightRecorder, WhoOnlyAsksLearnsOfAFailureToo) {
  const Folder folder;
  auto ranks = make_threads(2, {});
  {
    const auto recorder = std::make_shared<FlightRecorder>(folder.place());
    const auto comm = recorded(std::move(ranks[0]), recorder, "main");
    comm->check();
    ranks[1]->abort("enough");
    EXPECT_THROW(comm->check(), Error);
    comm->cancel();
  }
  ASSERT_EQ(folder.files().size(), 1U);
  EXPECT_EQ(read(folder.files()[0]).header.failed_status, OTR_E_ABORTED);
  {
    auto others = make_threads(2, {});
    const auto recorder = std::make_shared<FlightRecorder>(folder.place());
    const auto comm = recorded(std::move(others[0]), recorder, "main");
    comm->cancel();  // as an engine does that is destroyed
    EXPECT_THROW(comm->check(), Error);
  }
  EXPECT_EQ(folder.files().size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Providers, RecordedTest,
                         testing::Values(Ranks{Provider::self, 1}, Ranks{Provider::threads, 3},
                                         Ranks{Provider::shm, 2}, Ranks{Provider::custom, 2},
                                         Ranks{Provider::gather_only, 3},
                                         Ranks{Provider::transport, 2},
                                         Ranks{Provider::hierarchical, 4},
                                         Ranks{Provider::hierarchical_threads, 4}),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace outrigger::comm::test
