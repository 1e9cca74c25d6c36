// SPDX-License-Identifier: Apache-2.0
// What every provider must do when nothing goes wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/combine.h"
#include "core/device/host.h"
#include "tests/comm/group.h"

namespace outrigger::comm::test {
namespace {

class Conformance : public testing::TestWithParam<Group> {};

INSTANTIATE_TEST_SUITE_P(Providers, Conformance,
                         testing::Values(Group{Provider::self, 1}, Group{Provider::threads, 1},
                                         Group{Provider::threads, 2}, Group{Provider::threads, 3},
                                         Group{Provider::threads, 4}, Group{Provider::threads, 5},
                                         Group{Provider::shm, 1}, Group{Provider::shm, 2},
                                         Group{Provider::shm, 3}, Group{Provider::shm, 4},
                                         Group{Provider::shm, 3, 30, LivenessSource::locks},
                                         Group{Provider::custom, 1}, Group{Provider::custom, 3},
                                         Group{Provider::gather_only, 3}),
                         [](const auto& info) { return name_of(info.param); });

// Nothing, a byte, odd, one chunk of staging exactly and around it, several chunks.
constexpr size_t kSizes[] = {0, 1, 7, 4096, 131071, 131072, 131073, 262144, 262145, 1000003};

// A byte that depends on who wrote it and where.
std::byte pattern(int32_t rank, size_t i, uint64_t salt) {
  return static_cast<std::byte>((static_cast<size_t>(rank) * 97 + i * 31 + (i >> 8) + salt * 13) &
                                0xff);
}

std::vector<std::byte> filled(int32_t rank, size_t n, uint64_t salt) {
  std::vector<std::byte> data(n);
  for (size_t i = 0; i < n; i++) data[i] = pattern(rank, i, salt);
  return data;
}

TEST_P(Conformance, TellsWhoItIs) {
  const Group group = GetParam();
  run_all_well(group, [&](Communicator& c) {
    require(c.size() == group.world, "size");
    require(c.rank() >= 0 && c.rank() < c.size(), "rank");
    const std::string provider(c.provider());
    require(name_of(group).starts_with(provider), "provider " + provider);
    board().numbers[static_cast<size_t>(c.rank())]++;
    c.check();
  });
  for (int32_t r = 0; r < group.world; r++) EXPECT_EQ(board().numbers[static_cast<size_t>(r)], 1);
}

// No rank leaves a barrier before the last has come.
TEST_P(Conformance, BarrierHoldsEveryone) {
  run_all_well(GetParam(), [](Communicator& c) {
    auto& came = board().numbers[0];
    for (int64_t i = 1; i <= 300; i++) {
      came++;
      c.barrier("hold");
      require(came >= i * c.size(),
              outrigger::format_text("left barrier {} after {} arrivals", i, came.load()));
      c.barrier("go on");
      require(came <= (i + 1) * c.size(), "overtaken");
    }
  });
}

TEST_P(Conformance, BroadcastsFromEveryRoot) {
  run_all_well(GetParam(), [](Communicator& c) {
    uint64_t salt = 0;
    for (const size_t n : kSizes) {
      for (int32_t root = 0; root < c.size(); root++) {
        auto data = filled(c.rank(), n, ++salt);
        c.broadcast(data, root, "weights");
        require(data == filled(root, n, salt), outrigger::format_text("{} bytes from {}", n, root));
      }
    }
  });
}

TEST_P(Conformance, GathersInRankOrder) {
  run_all_well(GetParam(), [](Communicator& c) {
    for (const size_t n : kSizes) {
      const auto mine = filled(c.rank(), n, n);
      std::vector<std::byte> all(n * static_cast<size_t>(c.size()));
      c.all_gather(mine, all, "parts");
      for (int32_t r = 0; r < c.size(); r++) {
        const auto expected = filled(r, n, n);
        require(
            n == 0 || std::memcmp(all.data() + static_cast<size_t>(r) * n, expected.data(), n) == 0,
            outrigger::format_text("{} bytes of rank {}", n, r));
      }
    }
  });
}

// Large parts go in several pieces, and past the caches where all of them are 8 MiB and more. Each
// rank changes its own as soon as its call returns.
TEST_P(Conformance, GathersLargePartsThatChangeAtOnce) {
  run_all_well(GetParam(), [](Communicator& c) {
    const auto ranks = static_cast<size_t>(c.size());
    for (const size_t bytes : {size_t{600} << 10, (size_t{8} << 20) / ranks}) {
      const size_t n = bytes + 7;
      std::vector<std::byte> mine, all(n * ranks);
      for (uint64_t round = 0; round < 5; round++) {
        const auto next = filled(c.rank(), n, round);
        mine.assign(next.begin(), next.end());  // in the same place
        c.all_gather(mine, all, "large");
        std::memset(mine.data(), 0xee, mine.size());
        for (int32_t r = 0; r < c.size(); r++) {
          const auto expected = filled(r, n, round);
          require(std::memcmp(all.data() + static_cast<size_t>(r) * n, expected.data(), n) == 0,
                  outrigger::format_text("{} bytes, round {}: part of rank {}", n, round, r));
        }
      }
    }
  });
}

// A merge that keeps the first rank's byte that is not zero: it is associative, and depends on the
// order of ranks. Parts are cut at kMergeUnit and come with where they begin.
TEST_P(Conformance, CombinesInRankOrder) {
  run_all_well(GetParam(), [](Communicator& c) {
    const auto byte_of = [&](int32_t rank, size_t i) {  // zero on most ranks
      const bool gives = i % static_cast<size_t>(c.size() + 1) <= static_cast<size_t>(rank);
      return gives ? static_cast<std::byte>(1 + (i * 7 + static_cast<size_t>(rank) * 31) % 255)
                   : std::byte{0};
    };
    for (const size_t n : kSizes) {
      std::vector<std::byte> value(n);
      for (size_t i = 0; i < n; i++) value[i] = byte_of(c.rank(), i);
      size_t merged = 0;
      bool well = true;
      const auto merge = [&](size_t offset, std::span<std::byte> into,
                             std::span<const std::byte> from) {
        well = well && offset % kMergeUnit == 0 && into.size() == from.size() &&
               into.data() == value.data() + offset;
        merged += from.size();
        for (size_t i = 0; i < from.size(); i++) {
          if (into[i] == std::byte{0}) into[i] = from[i];
        }
      };
      c.combine(value, merge, "facts");
      require(well, outrigger::format_text("{} bytes: parts", n));
      require(merged == n * static_cast<size_t>(c.size() - 1), "every other rank's, once");
      for (size_t i = 0; i < n; i++) {
        std::byte expected{0};
        for (int32_t r = 0; r < c.size() && expected == std::byte{0}; r++) {
          expected = byte_of(r, i);
        }
        require(value[i] == expected, outrigger::format_text("{} bytes, byte {}", n, i));
      }
    }
  });
}

TEST_P(Conformance, ComparesWithTheFirstRank) {
  run_all_well(GetParam(), [](Communicator& c) {
    // Value i is another one on ranks i, i + 2, …; the last is the same on all.
    std::vector<uint64_t> mine;
    for (int32_t i = 0; i < c.size(); i++) {
      const bool differs = c.rank() >= i && (c.rank() - i) % 2 == 0;
      mine.push_back(differs ? 1000 + static_cast<uint64_t>(c.rank()) : 7);
    }
    mine.push_back(7);
    const auto all = compare(c, std::span<const uint64_t>(mine), "values");
    for (int32_t i = 0; i <= c.size(); i++) {
      const auto& found = all[static_cast<size_t>(i)];
      // Where rank 0 is the odd one, rank 1 is the first that differs from it.
      const int32_t first = i == c.size() ? -1 : i > 0 ? i : c.size() > 1 ? 1 : -1;
      require(found.rank == first, outrigger::format_text("value {}: rank {}", i, found.rank));
      require(found.lowest == 0 && found.first == (i == 0 ? 1000U : 7U), "rank 0's");
      if (first >= 0) {
        require(found.other == (i == 0 ? 7U : 1000U + static_cast<uint64_t>(i)), "the other");
      }
    }
  });
}

TEST_P(Conformance, KnowsWhatAnyRankSays) {
  run_all_well(GetParam(), [](Communicator& c) {
    for (int32_t r = 0; r < c.size(); r++) require(any(c, c.rank() == r, "one"), "one of them");
    require(!any(c, false, "none"), "none of them");
  });
}

TEST_P(Conformance, ManySmallOperationsInTurn) {
  run_all_well(GetParam(), [](Communicator& c) {
    for (int32_t i = 0; i < 1000; i++) {
      int32_t value = c.rank() == i % c.size() ? i : -1;
      c.broadcast(std::as_writable_bytes(std::span(&value, 1)), i % c.size(), "value");
      require(value == i, "broadcast value");
      const int32_t mine = i * 10 + c.rank();
      std::vector<int32_t> all(static_cast<size_t>(c.size()));
      c.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)),
                   "all");
      for (int32_t r = 0; r < c.size(); r++)
        require(all[static_cast<size_t>(r)] == i * 10 + r, "gathered");
    }
  });
}

TEST_P(Conformance, WindowsAreZeroAlignedAndVisible) {
  run_all_well(GetParam(), [](Communicator& c) {
    for (const size_t n :
         {size_t{0}, size_t{1}, size_t{4096}, size_t{100000}, (size_t{5} << 20) + 1}) {
      for (const auto kind : {WindowKind::per_rank, WindowKind::common}) {
        if (kind == WindowKind::common && !c.shares_memory()) continue;
        const auto window = c.create_window(kind, n, "window");
        require(window->bytes() == n, "bytes");
        for (int32_t r = 0; r < c.size(); r++) {
          const std::byte* block = window->block(r);
          if (!c.shares_memory() && r != c.rank()) {
            require(block == nullptr, "another rank's block is not to be seen");
            continue;
          }
          require(reinterpret_cast<uintptr_t>(block) % 4096 == 0, "alignment");
          require(kind != WindowKind::common || block == window->block(0), "common is one block");
          require(n == 0 || (block[0] == std::byte{0} && std::memcmp(block, block + 1, n - 1) == 0),
                  "zero-filled");
        }
        c.barrier("seen empty");
        // per_rank: all of one's own; common: every size()-th byte; of large blocks a sample.
        const size_t stride = n > 200000 ? 97 : 1;
        const auto me = static_cast<size_t>(c.rank()), world = static_cast<size_t>(c.size());
        std::byte* mine = window->block(c.rank());
        for (size_t i = 0; i < n; i += stride) {
          if (kind == WindowKind::per_rank || i % world == me) mine[i] = pattern(c.rank(), i, n);
        }
        c.barrier("written");
        for (int32_t r = 0; r < c.size(); r++) {
          size_t wrong = 0;
          if (window->block(r) == nullptr) continue;
          for (size_t i = 0; i < n; i += stride) {
            const auto writer = kind == WindowKind::per_rank ? r : static_cast<int32_t>(i % world);
            wrong += window->block(r)[i] != pattern(writer, i, n);
          }
          require(wrong == 0,
                  outrigger::format_text("{} of {} bytes in block {} are wrong", wrong, n, r));
        }
        c.barrier("read");
      }
    }
  });
}

TEST_P(Conformance, WindowOutlivesItsCommunicator) {
  run_all_well(GetParam(), [](Communicator& c) {
    auto copy = c.duplicate("short life");
    const auto window = copy->create_window(WindowKind::per_rank, 1000, "window");
    c.barrier("made");
    copy.reset();
    std::memset(window->block(c.rank()), c.rank() + 1, 1000);
    c.barrier("written");
    for (int32_t r = 0; r < c.size(); r++) {
      if (window->block(r) == nullptr) continue;
      require(window->block(r)[999] == static_cast<std::byte>(r + 1), "still shared");
    }
    c.barrier("read");
  });
}

// Fills, reads, and fills again as soon as the ticket is drained: nobody may read the next round.
TEST_P(Conformance, ExchangedSlicesAreDrainedBeforeReuse) {
  run_all_well(GetParam(), [](Communicator& c) {
    const auto world = static_cast<size_t>(c.size());
    constexpr size_t kSlice = 1000, kOffset = 512;
    const auto window =
        c.create_window(WindowKind::per_rank, kOffset + world * kSlice * sizeof(int32_t), "w");
    auto* mine = reinterpret_cast<int32_t*>(window->block(c.rank()) + kOffset);
    const auto value = [](int32_t round, int32_t rank, size_t i) {
      return round * 1000 + rank * 10 + static_cast<int32_t>(i % 7);
    };
    for (int32_t round = 0; round < 300; round++) {
      for (size_t i = 0; i < world * kSlice; i++) mine[i] = value(round, c.rank(), i);
      const auto slices = c.exchange(*window, kOffset, kSlice * sizeof(int32_t), "gradients");
      require(slices.size() == world, "one slice a rank");
      const size_t first = static_cast<size_t>(c.rank()) * kSlice;
      for (size_t r = 0; r < world; r++) {
        const auto* slice = static_cast<const int32_t*>(slices[r]);
        size_t wrong = 0;
        for (size_t i = 0; i < kSlice; i++)
          wrong += slice[i] != value(round, static_cast<int32_t>(r), first + i);
        require(wrong == 0, outrigger::format_text("round {}: {} values of rank {}'s slice are "
                                                   "wrong",
                                                   round, wrong, r));
      }
      const uint64_t ticket = c.end_exchange();
      if (round % 3 == 0) {
        while (!c.is_drained(ticket)) std::this_thread::yield();
      } else {
        c.wait_drained(ticket, "reuse");
      }
      require(c.is_drained(ticket), "drained");
    }
  });
}

// s = float32(g_0); s += float32(g_1); …; then the accumulator rounds. Values whose sum depends on
// the order, other ones on each rank.
TEST_P(Conformance, ReducesInRankOrder) {
  run_all_well(GetParam(), [](Communicator& c) {
    const auto world = static_cast<size_t>(c.size());
    constexpr size_t kSlice = 256, kSlices = 3;  // three reductions in one window
    const auto value = [](int32_t rank, size_t i) {
      const double size = std::ldexp(1.0 + static_cast<double>((i * 37 + 11) % 101) / 101,
                                     static_cast<int>((i + static_cast<size_t>(rank) * 5) % 30));
      return static_cast<float>((rank + i) % 2 == 0 ? size : -size);
    };
    const size_t bytes = world * kSlice * sizeof(float);
    const auto window = c.create_window(WindowKind::per_rank, kSlices * bytes, "w");
    auto* mine = reinterpret_cast<float*>(window->block(c.rank()));
    for (size_t i = 0; i < kSlices * world * kSlice; i++) mine[i] = value(c.rank(), i);
    // One element of the last slice of all is not finite on the last rank.
    const size_t bad = kSlices * world * kSlice - 3;
    if (c.rank() == c.size() - 1) mine[bad] = HUGE_VALF;
    device::Host host(nullptr);
    kernels::NormSum norm;
    device::Nonfinite origin;
    for (size_t n = 0; n < kSlices; n++) {
      const size_t first = (n * world + static_cast<size_t>(c.rank())) * kSlice;
      std::vector<float> sums(kSlice, 0.5F);
      constexpr auto kFloat32 = kernels::Format::float32;
      c.reduce({*window,
                n * bytes,
                kSlice * sizeof(float),
                host,
                {{}, kFloat32, sums.data(), kFloat32, n > 0, kSlice, static_cast<int64_t>(first)},
                &norm,
                &origin},
               "gradients");
      for (size_t i = 0; i < kSlice; i++) {
        if (first + i == bad) continue;
        float sum = value(0, first + i);
        for (int32_t r = 1; r < c.size(); r++) sum += value(r, first + i);
        if (n > 0) sum += 0.5F;
        require(sums[i] == sum, outrigger::format_text("sum {} of reduction {}", i, n));
      }
    }
    const bool last = c.rank() == c.size() - 1;
    require(norm.nonfinite == (last ? 1 : 0), "elements that are not finite");
    require(origin.flat == (last ? static_cast<int64_t>(bad) : -1), "the first of them");
    require(origin.rank == (last ? c.size() - 1 : -1), "whose it is");
    require(kernels::value_of(norm) > 0, "squares");
  });
}

TEST_P(Conformance, GathersWindowSlices) {
  run_all_well(GetParam(), [](Communicator& c) {
    const auto world = static_cast<size_t>(c.size());
    for (const size_t slice : {size_t{0}, size_t{1}, size_t{777}, size_t{300000}}) {
      const size_t offset = slice == 777 ? 64 : 0;
      const auto window =
          c.create_window(WindowKind::per_rank, offset + world * slice, "parameters");
      std::byte* mine = window->block(c.rank());
      for (uint64_t round = 0; round < 5; round++) {
        const auto own = filled(c.rank(), slice, round);
        std::copy(own.begin(), own.end(), mine + offset + static_cast<size_t>(c.rank()) * slice);
        c.all_gather_window(*window, offset, slice, "publish");
        for (int32_t r = 0; r < c.size(); r++) {
          const auto expected = filled(r, slice, round);
          require(std::equal(expected.begin(), expected.end(),
                             mine + offset + static_cast<size_t>(r) * slice),
                  outrigger::format_text("slice {} of {} bytes in round {}", r, slice, round));
        }
      }
    }
  });
}

// Two threads a rank, each with an order of its own, windows and nested duplicates included.
TEST_P(Conformance, DuplicatesWorkSideBySide) {
  run_all_well(GetParam(), [](Communicator& c) {
    const auto other = c.duplicate("background");
    const auto shared =
        c.create_window(WindowKind::per_rank, 4096, "made on one, used on the other");
    const auto work = [&](Communicator& comm, int32_t base) {
      for (int32_t i = 0; i < 100; i++) {
        const int32_t mine = base + i * 10 + comm.rank();
        std::vector<int32_t> all(static_cast<size_t>(comm.size()));
        comm.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)),
                        "all");
        for (int32_t r = 0; r < comm.size(); r++) {
          require(all[static_cast<size_t>(r)] == base + i * 10 + r, "gathered");
        }
        if (i % 20 == 0) {
          const bool common = comm.shares_memory();
          const auto window = comm.create_window(common ? WindowKind::common : WindowKind::per_rank,
                                                 10000, "window");
          const auto nested = comm.duplicate("nested");
          std::byte* block = window->block(common ? 0 : comm.rank());
          if (!common || comm.rank() == 0) block[9999] = static_cast<std::byte>(base + 1);
          nested->barrier("written");
          require(block[9999] == static_cast<std::byte>(base + 1), "window of its own");
          comm.barrier("nested is done");
        }
      }
    };
    std::string trouble;
    std::thread background([&] {
      try {
        work(*other, 100000);
        static_cast<void>(other->exchange(*shared, 0, 4, "shared"));
        const auto ticket = other->end_exchange();
        other->wait_drained(ticket, "shared");
      } catch (const std::exception& error) {
        trouble = error.what();
      }
    });
    work(c, 0);
    background.join();
    require(trouble.empty(), trouble);
    c.barrier("done");
  });
}

TEST_P(Conformance, RefusesBadArgumentsAndGoesOn) {
  run_all_well(GetParam(), [](Communicator& c) {
    const auto refused = [](const char* what, auto&& call) {
      try {
        call();
      } catch (const Error& error) {
        require(error.status() == OTR_E_ARGUMENT, std::string(what) + ": " + error.what());
        return;
      }
      require(false, std::string(what) + " was accepted");
    };
    std::vector<std::byte> data(8);
    const auto window = c.create_window(WindowKind::per_rank, 64, "w");
    std::shared_ptr<Window> common;
    if (c.shares_memory()) common = c.create_window(WindowKind::common, 64, "w");
    refused("root below", [&] { c.broadcast(data, -1, "x"); });
    refused("root above", [&] { c.broadcast(data, c.size(), "x"); });
    refused("gather size", [&] { c.all_gather(data, std::span(data).first(7), "x"); });
    refused("slices too large", [&] { static_cast<void>(c.exchange(*window, 0, 65, "x")); });
    refused("offset too large", [&] { static_cast<void>(c.exchange(*window, 65, 0, "x")); });
    refused("overflow", [&] { static_cast<void>(c.exchange(*window, 1, SIZE_MAX, "x")); });
    if (common) refused("common window", [&] { c.all_gather_window(*common, 0, 1, "x"); });
    refused("window of another job", [&] {
      const auto self = make_self();
      const auto foreign = self->create_window(WindowKind::per_rank, 64, "w");
      static_cast<void>(c.exchange(*foreign, 0, 1, "x"));
    });
    if (common) refused("ticket from nowhere", [&] { c.wait_drained(1u << 20, "x"); });
    c.barrier("still in step");
  });
}

// Odd and even ranks in groups of their own, backwards; the last rank in none.
TEST_P(Conformance, SplitsIntoGroups) {
  run_all_well(GetParam(), [](Communicator& c) {
    const bool last = c.size() > 1 && c.rank() == c.size() - 1;
    const auto work = [&] { return split(c, last ? -1 : c.rank() % 2, -c.rank()); };
    if (!c.shares_memory()) {
      try {
        static_cast<void>(work());
      } catch (const Error& error) {
        require(error.status() == OTR_E_UNSUPPORTED, error.what());
        return;
      }
      require(false, "a custom communicator was split");
    }
    for (int round = 0; round < 3; round++) {
      const auto part = work();
      require((part == nullptr) == last, "the last rank is in no group");
      if (!last) {
        const int32_t ranks = c.size() > 1 ? c.size() - 1 : 1;
        const int32_t members = (ranks - c.rank() % 2 + 1) / 2;
        require(part->size() == members, "size");
        require(part->rank() == members - 1 - c.rank() / 2, "rank");
        std::vector<int32_t> all(static_cast<size_t>(members));
        const int32_t mine = c.rank();
        part->all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)),
                         "members");
        for (int32_t r = 0; r < members; r++) {
          require(all[static_cast<size_t>(r)] == 2 * (members - 1 - r) + mine % 2, "order");
        }
      }
      c.barrier("and the parent goes on");
    }
  });
}

TEST(MakeCommunicators, RefuseBadArguments) {
  const auto status_of = [](auto&& make) {
    try {
      static_cast<void>(make());
    } catch (const Error& error) {
      return error.status();
    }
    return int32_t{OTR_OK};
  };
  EXPECT_EQ(status_of([] { return make_threads(0, {}); }), OTR_E_ARGUMENT);
  EXPECT_EQ(status_of([] { return make_threads(-1, {}); }), OTR_E_ARGUMENT);
  EXPECT_EQ(status_of([] { return make_threads(1 << 20, {}); }), OTR_E_ARGUMENT);
  EXPECT_EQ(status_of([] { return make_threads(2, {.timeout = 0}); }), OTR_E_ARGUMENT);
  EXPECT_EQ(status_of([] { return make_threads(2, {.timeout = std::nan("")}); }), OTR_E_ARGUMENT);
  EXPECT_EQ(status_of([] { return make_threads(2, {.spin = -2}); }), OTR_E_ARGUMENT);
  EXPECT_EQ(status_of([] { return make_shm(2, 2, "job", {}); }), OTR_E_ARGUMENT);
  EXPECT_EQ(status_of([] { return make_shm(-1, 2, "job", {}); }), OTR_E_ARGUMENT);
  EXPECT_EQ(status_of([] { return make_shm(0, 0, "job", {}); }), OTR_E_ARGUMENT);
  EXPECT_EQ(status_of([] { return make_shm(0, 1, "", {}); }), OTR_E_ARGUMENT);
}

}  // namespace
}  // namespace outrigger::comm::test
