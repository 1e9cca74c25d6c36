// SPDX-License-Identifier: Apache-2.0
// Every provider: each rank's parts come to the ranks that they are for.
#include <functional>
#include <numeric>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/all_to_all.h"
#include "tests/comm/conformance.h"
#include "tests/sanitizers.h"

namespace outrigger::comm::test {
namespace {

using Sizes = std::function<size_t(int32_t from, int32_t to)>;

struct Round {
  std::vector<size_t> sent, expected;
  std::vector<std::byte> parts;

  Round(const Communicator& c, const Sizes& size, uint64_t salt) {
    for (int32_t r = 0; r < c.size(); r++) {
      sent.push_back(size(c.rank(), r));
      expected.push_back(size(r, c.rank()));
      const auto part = filled(c.rank() * c.size() + r, sent.back(), salt);
      parts.insert(parts.end(), part.begin(), part.end());
    }
  }
  // All that came, and nothing behind it.
  void run(Communicator& c, AllToAll& all_to_all, uint64_t salt) const {
    const size_t bytes = std::accumulate(expected.begin(), expected.end(), size_t{0});
    std::vector<std::byte> received(bytes + 8, std::byte{0xee});
    all_to_all.run(parts.data(), sent, received.data(), expected);
    std::vector<std::byte> right;
    for (int32_t r = 0; r < c.size(); r++) {
      const auto part = filled(r * c.size() + c.rank(), expected[static_cast<size_t>(r)], salt);
      right.insert(right.end(), part.begin(), part.end());
    }
    right.resize(bytes + 8, std::byte{0xee});
    require(received == right, "other bytes came");
  }
};

class AllToAllTest : public testing::TestWithParam<Ranks> {};
INSTANTIATE_TEST_SUITE_P(Providers, AllToAllTest, testing::ValuesIn(providers()),
                         [](const auto& info) { return name_of(info.param); });

bool has_two_levels(const Ranks& ranks) {
  return ranks.provider == Provider::hierarchical ||
         ranks.provider == Provider::hierarchical_threads;
}

// Even, uneven, none at all, one pair alone, pieces of a window and more, several times over.
TEST_P(AllToAllTest, EveryPartComesToItsRank) {
  if (has_two_levels(GetParam())) {
    const auto outcomes = run(GetParam(), [](Communicator& c) { const AllToAll object(c); });
    for (const Outcome& outcome : outcomes) {
      // Of one host alone it is one level.
      if (outcome.status == OTR_OK) continue;
      EXPECT_EQ(outcome.status, OTR_E_UNSUPPORTED) << outcome.text;
      expect_says(outcome.text, {"two levels", "otr_comm_split"});
    }
    return;
  }
  run_all_well(GetParam(), [](Communicator& c) {
    AllToAll all_to_all(c);
    const int32_t last = c.size() - 1;
    const std::vector<Sizes> all = {
        [](int32_t, int32_t) { return size_t{0}; },
        [](int32_t, int32_t) { return size_t{1000}; },
        [](int32_t from, int32_t to) { return static_cast<size_t>(from * 1000 + to * 7); },
        [&](int32_t from, int32_t to) { return from == last && to == 0 ? size_t{3000001} : 0; },
        [](int32_t from, int32_t to) {
          return static_cast<size_t>((from + 2 * to) * 700001 % 1500000);
        },
        [](int32_t, int32_t) { return (size_t{1} << 20) - 64; },
        [](int32_t, int32_t) { return (size_t{1} << 20) - 63; },
        [](int32_t from, int32_t to) { return static_cast<size_t>(from == to ? 5 : 0); },
    };
    uint64_t salt = 0;
    for (int repeat = 0; repeat < (outrigger::test::kSanitized ? 1 : 2); repeat++) {
      for (const Sizes& size : all) {
        salt++;
        Round(c, size, salt).run(c, all_to_all, salt);
      }
    }
  });
}

// All ranks hear of it, the group goes on, and so does the object.
TEST_P(AllToAllTest, OtherSizesThanAreSentAreAMismatchOnAllRanks) {
  if (has_two_levels(GetParam())) return;
  run_all_well(GetParam(), [](Communicator& c) {
    AllToAll all_to_all(c);
    const auto ten = [](int32_t, int32_t) { return size_t{10}; };
    Round wrong(c, ten, 3);
    const int32_t last = c.size() - 1;
    if (c.rank() == last) wrong.expected[0] = 11;
    std::string text;
    try {
      wrong.run(c, all_to_all, 3);
    } catch (const Error& error) {
      require(error.status() == OTR_E_MISMATCH, error.what());
      text = error.what();
    }
    const std::string right = outrigger::format_text(
        "'otr_comm_all_to_all' on rank {}: rank 0 sends 10 bytes, and 11 are expected", last);
    require(text == right, text);
    Round(c, ten, 4).run(c, all_to_all, 4);
  });
}

}  // namespace
}  // namespace outrigger::comm::test
