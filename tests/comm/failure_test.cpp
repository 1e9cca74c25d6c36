// SPDX-License-Identifier: Apache-2.0
// What every provider must do when a rank goes its own way: all ranks get the same error, and it
// names the culprit.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/device/host.h"
#include "tests/comm/ranks.h"

namespace outrigger::comm::test {
namespace {

class Failure : public testing::TestWithParam<Ranks> {
 protected:
  // All outcomes have the status and one and the same text.
  static std::string common_text(const std::vector<Outcome>& outcomes, int32_t status) {
    for (const auto& outcome : outcomes) {
      EXPECT_EQ(outcome.status, status) << outcome.text;
      EXPECT_EQ(outcome.text, outcomes.front().text);
    }
    return outcomes.front().text;
  }
};

INSTANTIATE_TEST_SUITE_P(Providers, Failure,
                         testing::Values(Ranks{Provider::threads, 3, 30},
                                         Ranks{Provider::shm, 3, 30}),
                         [](const auto& info) { return name_of(info.param); });

using Call = std::function<void(Communicator&)>;

// Rank 1 makes another call than ranks 0 and 2.
struct Mismatch {
  const char* name;
  Call common, odd;
  std::vector<std::string> says;
};

std::vector<Mismatch> mismatches() {
  const auto broadcast = [](size_t n, int32_t root, std::string label) -> Call {
    return [=](Communicator& c) {
      std::vector<std::byte> data(n, std::byte{1});
      c.broadcast(data, root, label);
    };
  };
  const auto gather = [](size_t n, std::string label) -> Call {
    return [=](Communicator& c) {
      std::vector<std::byte> mine(n), all(n * static_cast<size_t>(c.size()));
      c.all_gather(mine, all, label);
    };
  };
  const auto combine = [](size_t n) -> Call {
    return [=](Communicator& c) {
      std::vector<std::byte> value(n);
      c.combine(value, [](auto...) { require(false, "merged"); }, "facts");
    };
  };
  const auto barrier = [](std::string label) -> Call {
    return [=](Communicator& c) { c.barrier(label); };
  };
  const auto parts = [](const std::vector<std::pair<int32_t, size_t>>& sizes) -> Call {
    return [=](Communicator& c) {
      std::vector<std::byte> memory(64);
      std::vector<Part> all;
      for (const auto& [rank, bytes] : sizes) all.push_back({rank, {memory.data(), bytes}});
      c.all_gather_parts(all, "p");
    };
  };
  const auto window = [](WindowKind kind, size_t n) -> Call {
    return [=](Communicator& c) { static_cast<void>(c.create_window(kind, n, "w")); };
  };
  const auto scatter = [](int which, size_t offset, size_t slice) -> Call {
    return [=](Communicator& c) {
      const auto a = c.create_window(WindowKind::per_rank, 1000, "a");
      const auto b = c.create_window(WindowKind::per_rank, 1000, "b");
      static_cast<void>(c.exchange(which == 0 ? *a : *b, offset, slice, "grads"));
      require(false, "slices were exchanged");
    };
  };
  return {
      {"kind",
       barrier("x"),
       broadcast(8, 0, "x"),
       {"barrier 'x'", "broadcast 'x' of 8 bytes from rank 0"}},
      {"label", barrier("step"), barrier("save"), {"barrier 'step'", "barrier 'save'"}},
      {"long label",
       barrier(std::string(100, 'a') + "1"),
       barrier(std::string(100, 'a') + "2"),
       {"barrier 'aaaa"}},
      {"root", broadcast(8, 0, "x"), broadcast(8, 1, "x"), {"from rank 0", "from rank 1"}},
      {"parts", parts({{0, 8}, {1, 4}}), parts({{0, 4}, {1, 8}}), {"2 parts, 12 bytes", "sizes"}},
      {"size", broadcast(8, 0, "x"), broadcast(9, 0, "x"), {"of 8 bytes", "of 9 bytes"}},
      {"chunks",
       broadcast(8, 0, "x"),
       broadcast(5000000, 0, "x"),
       {"of 8 bytes", "of 5000000 bytes"}},
      {"gather size",
       gather(4, "x"),
       gather(400000, "x"),
       {"of 4 bytes a rank", "of 400000 bytes a rank"}},
      {"combine size", combine(4), combine(5), {"'facts' of 4 bytes", "'facts' of 5 bytes"}},
      {"window size",
       window(WindowKind::common, 10),
       window(WindowKind::common, 11),
       {"10 bytes", "11 bytes"}},
      {"window kind",
       window(WindowKind::common, 10),
       window(WindowKind::per_rank, 10),
       {"common", "a rank"}},
      {"slice", scatter(0, 0, 4), scatter(0, 0, 8), {"of 4 bytes a slice", "of 8 bytes a slice"}},
      {"offset", scatter(0, 0, 4), scatter(0, 64, 4), {"at offset 0", "at offset 64"}},
      {"window", scatter(0, 0, 4), scatter(1, 0, 4), {"of the window made by operation "}},
      {"duplicate",
       [](Communicator& c) { static_cast<void>(c.duplicate("one")); },
       [](Communicator& c) { static_cast<void>(c.duplicate("two")); },
       {"'one'", "'two'"}},
  };
}

TEST_P(Failure, MismatchNamesBothCallsBeforeDataMoves) {
  for (const auto& mismatch : mismatches()) {
    SCOPED_TRACE(mismatch.name);
    const auto outcomes = run(GetParam(), [&](Communicator& c) {
      c.barrier("in step");
      (c.rank() == 1 ? mismatch.odd : mismatch.common)(c);
    });
    const auto text = common_text(outcomes, OTR_E_MISMATCH);
    expect_says(text, {"rank 0", "rank 1", "operation "});
    for (const auto& part : mismatch.says) expect_says(text, {part});
  }
}

TEST_P(Failure, MismatchLeavesResultsAlone) {
  const auto leaves_alone = [](size_t n, const auto& call) {
    const auto outcomes = run(GetParam(), [&](Communicator& c) {
      std::vector<std::byte> data(n, static_cast<std::byte>(c.rank() + 1)), before = data;
      try {
        call(c, std::span(data));
      } catch (const Error&) {
        require(data == before, "data moved");
        throw;
      }
    });
    common_text(outcomes, OTR_E_MISMATCH);
  };
  leaves_alone(8, [](Communicator& c, std::span<std::byte> data) {
    c.broadcast(data.first(c.rank() == 1 ? 7 : 8), 0, "x");
  });
  leaves_alone(8, [](Communicator& c, std::span<std::byte> data) {
    c.combine(data.first(c.rank() == 1 ? 7 : 8), [](auto...) { require(false, "merged"); }, "x");
  });
  leaves_alone(size_t{12} << 20, [](Communicator& c, std::span<std::byte> data) {  // in many parts
    const std::vector<std::byte> mine(data.size() / 3);
    c.all_gather(mine, data, c.rank() == 1 ? "x" : "y");
  });
}

// A thread that fails tells the others of its rank why at once, and the other ranks that it did.
TEST_P(Failure, TheRankThatAbortsHearsItsOwnError) {
  const auto outcomes = run(GetParam(), [](Communicator& c) {
    const auto other = c.duplicate("other");
    if (c.rank() == 1) {
      const Error lost(OTR_E_DEVICE_FAULT, "the device is lost");
      std::thread([&] { other->abort_for(lost, "its fold threw"); }).join();
    }
    c.barrier("of all");
  });
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const bool is_own = rank == 1;
    EXPECT_EQ(outcomes[rank].status, is_own ? OTR_E_DEVICE_FAULT : OTR_E_ABORTED);
    expect_says(outcomes[rank].text,
                {is_own ? "the device is lost" : "rank 1 aborted", is_own ? "lost" : "its fold"});
  }
}

TEST_P(Failure, AbortEndsPendingAndLaterCallsOfAllDuplicates) {
  const double start = now();
  const auto outcomes = run(GetParam(), [](Communicator& c) {
    const auto other = c.duplicate("other");
    if (c.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      std::thread([&] { c.abort("out of coffee"); }).join();  // from any thread
    } else if (c.rank() == 1) {
      try {
        other->barrier("pending on the duplicate");
      } catch (const Error& error) {
        require(error.status() == OTR_E_ABORTED, error.what());
      }
    }
    std::vector<std::string> texts;
    const std::vector<Call> later{
        [](Communicator& x) { x.barrier("b"); }, [](Communicator& x) { x.check(); },
        [](Communicator& x) { static_cast<void>(x.duplicate("d")); },
        [](Communicator& x) { static_cast<void>(x.create_window(WindowKind::common, 1, "w")); }};
    for (const auto& call : later) {
      for (Communicator* comm : {&c, other.get()}) {
        try {
          call(*comm);
          require(false, "went on");
        } catch (const Error& error) {
          texts.push_back(error.what());
        }
      }
    }
    for (const auto& text : texts) require(text == texts.front(), text + " / " + texts.front());
    c.barrier("once more");
  });
  expect_says(common_text(outcomes, OTR_E_ABORTED), {"rank 2", "out of coffee"});
  EXPECT_LT(now() - start, 5);
}

int32_t status_of(Communicator& comm) {
  try {
    comm.barrier("on the duplicate");
  } catch (const Error& error) {
    return error.status();
  }
  return OTR_OK;
}

// Only this rank's calls on this object end; the others see it leave once it is destroyed.
TEST_P(Failure, CancelEndsOneObjectOnOneRank) {
  run_all_well(GetParam(), [](Communicator& c) {
    auto other = c.duplicate("other");
    c.barrier("together");
    if (c.rank() == 1) {
      const double start = now();
      std::thread canceller([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        other->cancel();
      });
      require(status_of(*other) == OTR_E_ABORTED, "the pending call went on");
      require(now() - start < 1, "the pending call ended late");
      canceller.join();
      require(status_of(*other) == OTR_E_ABORTED, "the next call went on");
    }
    c.barrier("the job goes on");
    if (c.rank() == 1) {
      other.reset();
      return;
    }
    require(status_of(*other) == OTR_OK, "rank 1 had come to the first one");
    require(status_of(*other) == OTR_E_PEER_DEAD, "rank 1 has left");
  });
}

TEST_P(Failure, TimeoutNamesTheSilentRankAndWhatItDidLast) {
  Ranks group = GetParam();
  group.timeout = 1;
  const auto outcomes = run(group, [](Communicator& c) {
    c.barrier("together");
    const double start = now();
    // Alive, and its handle, too, until the others have given up.
    if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1400));
    try {
      c.barrier("alone");
    } catch (const Error&) {
      if (c.rank() != 1) {
        require(now() - start > 0.9, outrigger::format_text("gave up after {} s", now() - start));
        require(now() - start < 1.35, outrigger::format_text("gave up after {} s", now() - start));
      }
      throw;
    }
  });
  expect_says(common_text(outcomes, OTR_E_TIMEOUT),
              {"1 of 3 ranks", "barrier 'alone'", "rank 1 last began", "barrier 'together'"});
}

TEST_P(Failure, TimeoutOfADrain) {
  Ranks group = GetParam();
  group.timeout = 1;
  const auto outcomes = run(group, [](Communicator& c) {
    const auto window = c.create_window(WindowKind::per_rank, 100, "w");
    static_cast<void>(c.exchange(*window, 0, 4, "read slowly"));
    if (c.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(1400));
    const auto ticket = c.end_exchange();
    require(c.rank() == 2 || !c.is_drained(ticket), "drained too early");
    c.wait_drained(ticket, "reuse of the bucket");
    c.barrier("end");
  });
  expect_says(common_text(outcomes, OTR_E_TIMEOUT),
              {"rank 2", "wait_drained 'reuse of the bucket'"});
}

TEST_P(Failure, ARankThatLeavesIsReportedToThoseWhoWait) {
  const auto outcomes = run(GetParam(), [](Communicator& c) {
    c.barrier("together");
    if (c.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return;
    }
    const double start = now();
    try {
      c.barrier("without rank 1");
    } catch (const Error&) {
      require(now() - start < 1.1, "took too long");
      throw;
    }
  });
  EXPECT_EQ(outcomes[1].status, OTR_OK);
  for (const size_t rank : {0, 2}) {
    EXPECT_EQ(outcomes[rank].status, OTR_E_PEER_DEAD);
    expect_says(outcomes[rank].text, {"rank 1", "left", "without rank 1"});
  }
}

TEST_P(Failure, ARankThatLeavesOneObjectLeavesTheOthers) {
  run_all_well(GetParam(), [](Communicator& c) {
    auto first = c.duplicate("first"), second = c.duplicate("second");
    if (c.rank() == 1) {
      first.reset();
      second->barrier("after rank 1 has left the first");
      second->give_up(c.rank());
    } else {
      for (int call = 0; call < 2; ++call) {
        require(status_of(*first) == OTR_E_PEER_DEAD, "rank 1 has left");
      }
      second->barrier("after rank 1 has left the first");
      require(status_of(*second) == OTR_E_PEER_DEAD, "rank 1 has given it up");
    }
    c.barrier("the job goes on");
  });
}

// Who waits for a rank that gave up because of another is told of that one.
TEST_P(Failure, TheFirstToGoIsNamedByAll) {
  const auto outcomes = run(GetParam(), [](Communicator& c) {
    const auto copy = c.duplicate("copy");
    if (c.rank() == 2) {
      copy->give_up(1);
      copy->give_up(2);  // the first cause stays
    } else {
      try {
        copy->barrier("rank 2 does not come");
      } catch (const Error& error) {
        require(error.culprit() == 1, "the culprit");
        throw;
      }
    }
  });
  for (const size_t rank : {0, 1}) {
    EXPECT_EQ(outcomes[rank].status, OTR_E_PEER_DEAD);
    expect_says(outcomes[rank].text, {"rank 2", "because of rank 1"});
  }
}

// Leaving a duplicate, or everything after the last common call, harms nobody.
TEST_P(Failure, LeavingInGoodOrderIsNoFailure) {
  for (int i = 0; i < 20; i++) {
    run_all_well(GetParam(), [](Communicator& c) {
      auto copy = c.duplicate("copy");
      copy->barrier("last on the copy");
      copy.reset();
      for (int32_t k = 0; k < 10; k++) c.barrier("on");
    });
  }
}

class FaultyHost final : public device::Host {
 public:
  explicit FaultyHost(bool faulty) : Host(nullptr), faulty_(faulty) {}
  kernels::NormSum fold(const device::SliceFold& slice, device::Nonfinite& origin) override {
    if (faulty_) fail(OTR_E_INTERNAL, "fold fault");
    return Host::fold(slice, origin);
  }

 private:
  bool faulty_;
};

TEST_P(Failure, AFoldThatThrowsAbortsTheJob) {
  const auto outcomes = run(GetParam(), [](Communicator& c) {
    const auto window = c.create_window(WindowKind::per_rank, 4096, "w");
    constexpr auto kFloat32 = kernels::Format::float32;
    FaultyHost device(c.rank() == 0);
    float accumulator[256] = {};
    const auto ticket = c.reduce({*window,
                                  0,
                                  sizeof accumulator,
                                  device,
                                  {{}, kFloat32, accumulator, kFloat32, false, 256, 0}},
                                 "grads");
    c.wait_drained(ticket, "reuse");
  });
  EXPECT_EQ(outcomes[0].status, OTR_E_INTERNAL)
      << outcomes[0].text;  // its own error, as it threw it
  for (const int r : {1, 2}) {
    EXPECT_EQ(outcomes[static_cast<size_t>(r)].status, OTR_E_ABORTED);
    expect_says(outcomes[static_cast<size_t>(r)].text, {"rank 0", "fold fault"});
  }
}

// More than the host has: every rank gets the same refusal, and the communicator goes on.
TEST_P(Failure, HugeWindowIsRefusedOnAllRanks) {
  for (const size_t bytes : {size_t{1} << 40, size_t{1} << 46, size_t{1} << 62, SIZE_MAX}) {
    for (const auto kind : {WindowKind::per_rank, WindowKind::common}) {
      run_all_well(GetParam(), [&](Communicator& c) {
        try {
          static_cast<void>(c.create_window(kind, bytes, "huge"));
          require(false, "was granted");
        } catch (const Error& error) {
          require(error.status() == OTR_E_OUT_OF_MEMORY, error.what());
        }
        const auto window = c.create_window(kind, 1000, "modest");
        require(window->block(c.rank())[999] == std::byte{0}, "usable");
        c.barrier("still in step");
      });
    }
  }
}

TEST(SelfFailure, AbortIsSticky) {
  const auto self = make_self();
  self->abort("enough");
  EXPECT_THROW(self->barrier("x"), Error);
  EXPECT_THROW(self->check(), Error);
}

}  // namespace
}  // namespace outrigger::comm::test
