// SPDX-License-Identifier: Apache-2.0
// Every provider as a group: small values between ranks.
#include <algorithm>
#include <thread>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/combine.h"
#include "tests/comm/conformance.h"

namespace outrigger::comm::test {
namespace {

class GroupConformance : public testing::TestWithParam<Ranks> {};
INSTANTIATE_TEST_SUITE_P(Providers, GroupConformance, testing::ValuesIn(providers()),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(GroupConformance, TellsWhoItIs) {
  const Ranks group = GetParam();
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
TEST_P(GroupConformance, BarrierHoldsEveryone) {
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

TEST_P(GroupConformance, BroadcastsFromEveryRoot) {
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

TEST_P(GroupConformance, GathersInRankOrder) {
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
TEST_P(GroupConformance, GathersLargePartsThatChangeAtOnce) {
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

// Any number of parts of a rank, empty ones, long ones, in any order.
TEST_P(GroupConformance, GathersPartsOfDifferentSizes) {
  run_all_well(GetParam(), [](Communicator& c) {
    struct Wanted {
      int32_t rank;
      size_t bytes;
    };
    const int32_t last = c.size() - 1, middle = c.size() / 2;
    std::vector<std::vector<Wanted>> calls = {
        {},
        {{0, 0}},
        {{last, 7}},
        {{last, 1000003}},
        {{0, 1}, {last, 2}, {0, 3}, {middle, 0}, {middle, 300001}, {0, 262144}, {last, 131072}},
        {{middle, 5}, {middle, 700000}, {middle, 1}},
        {{0, 6 << 20}, {last, 100}},
    };
    for (const size_t n : kSizes) {  // of every rank
      calls.emplace_back();
      for (int32_t r = 0; r < c.size(); r++) calls.back().push_back({r, n});
    }
    for (size_t call = 0; call < calls.size(); call++) {
      std::vector<std::vector<std::byte>> memory;
      std::vector<Part> parts;
      for (size_t i = 0; i < calls[call].size(); i++) {
        const auto& [rank, bytes] = calls[call][i];
        memory.push_back(rank == c.rank() ? filled(rank, bytes, call * 10 + i)
                                          : std::vector<std::byte>(bytes));
        parts.push_back({rank, memory.back()});
      }
      c.all_gather_parts(parts, "parts");
      for (size_t i = 0; i < parts.size(); i++) {
        require(memory[i] == filled(parts[i].rank, memory[i].size(), call * 10 + i),
                outrigger::format_text("call {}, part {}", call, i));
      }
    }
    try {
      std::byte one{};
      c.all_gather_parts(std::vector<Part>{{c.size(), {&one, 1}}}, "parts");
      require(false, "a rank outside of the group was accepted");
    } catch (const Error& error) {
      require(error.status() == OTR_E_ARGUMENT, error.what());
    }
    c.barrier("in step");
  });
}

// What ranks first to last of so many give to be combined: of each byte that of the first rank that
// gives one, zero if none does. Most ranks give none.
OTR_PRIVATE_BYTES void give(std::byte* bytes, size_t n, int32_t ranks, int32_t first,
                            int32_t last) {
  for (size_t i = 0; i < n; i++) {
    bytes[i] = std::byte{0};
    const auto giver = std::max(first, static_cast<int32_t>(i % static_cast<size_t>(ranks + 1)));
    if (giver > last) continue;
    bytes[i] = static_cast<std::byte>(1 + (i * 7 + static_cast<size_t>(giver) * 31) % 255);
  }
}

// A merge that keeps the first rank's byte that is not zero: it is associative, and depends on the
// order of ranks. Parts are cut at kMergeUnit and come with where they begin.
TEST_P(GroupConformance, CombinesInRankOrder) {
  run_all_well(GetParam(), [](Communicator& c) {
    for (const size_t n : kSizes) {
      std::vector<std::byte> value(n), expected(n);
      give(value.data(), n, c.size(), c.rank(), c.rank());
      give(expected.data(), n, c.size(), 0, c.size() - 1);
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
      // Every other rank's, once, on each rank or along a tree.
      const size_t once = n * static_cast<size_t>(c.size() - 1);
      uint64_t on_all = merged;
      combine_value(c, on_all, [](uint64_t& into, uint64_t from) { into += from; }, "merged");
      require(merged <= once && on_all >= once, "every other rank's, once");
      if (value == expected) continue;
      const auto at = std::mismatch(value.begin(), value.end(), expected.begin()).first;
      require(false, outrigger::format_text("{} bytes, byte {}", n, at - value.begin()));
    }
  });
}

TEST_P(GroupConformance, ComparesWithTheFirstRank) {
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

TEST_P(GroupConformance, KnowsWhatAnyRankSays) {
  run_all_well(GetParam(), [](Communicator& c) {
    for (int32_t r = 0; r < c.size(); r++) require(any(c, c.rank() == r, "one"), "one of them");
    require(!any(c, false, "none"), "none of them");
  });
}

TEST_P(GroupConformance, ManySmallOperationsInTurn) {
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

// Odd and even ranks in groups of their own, backwards; the last rank in none.
TEST_P(GroupConformance, SplitsIntoGroups) {
  run_all_well(GetParam(), [](Communicator& c) {
    const bool last = c.size() > 1 && c.rank() == c.size() - 1;
    const auto work = [&] { return split(c, last ? -1 : c.rank() % 2, -c.rank()); };
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

}  // namespace
}  // namespace outrigger::comm::test
