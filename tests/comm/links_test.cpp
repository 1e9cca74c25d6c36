// SPDX-License-Identifier: Apache-2.0
// Hosts with cables between them: what crosses for a sum, and what becomes of the ranks when a host
// dies or a cable stalls.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/hierarchical.h"
#include "kernels/kernels.h"
#include "tests/comm/levels.h"
#include "tests/comm/links.h"

namespace outrigger::comm::test {
namespace {

using kernels::Format;

struct Hosts {
  int32_t hosts, each;
  [[nodiscard]] int32_t world() const { return hosts * each; }
};

constexpr int64_t kSlice = 512;  // elements that a rank owns

// Whose sums depend on the order of additions.
float value(int32_t rank, int64_t i) {
  const double size = std::ldexp(1.0 + static_cast<double>(i * 37 % 101) / 101,
                                 static_cast<int>((i + rank * 7) % 12));
  return static_cast<float>((rank * 3 + i) % 2 == 0 ? size : -size);
}

float rounded(float x, Format format) {
  if (format == Format::float32) return x;
  uint16_t half = 0;
  float back = 0;
  kernels::convert(&half, format, &x, Format::float32, 1);
  kernels::convert(&back, Format::float32, &half, format, 1);
  return back;
}

// The tree's sum, in float32.
float sum_of(const Hosts& shape, int64_t i, Format format) {
  float sum = 0;
  for (int32_t h = 0; h < shape.hosts; h++) {
    float on_host = rounded(value(h * shape.each, i), format);
    for (int32_t r = 1; r < shape.each; r++) {
      on_host += rounded(value(h * shape.each + r, i), format);
    }
    sum = h == 0 ? on_host : sum + on_host;
  }
  return sum;
}

// A gradient of a bucket of world * kSlice elements, in a window of the communicator's.
struct Bucket {
  Bucket(Communicator& c, Format format)
      : format(format),
        size(kernels::size_of(format)),
        window(c.create_window(WindowKind::per_rank, static_cast<size_t>(c.size() * kSlice) * size,
                               "bucket")) {
    std::vector<float> values;
    for (int64_t i = 0; i < c.size() * kSlice; i++) values.push_back(value(c.rank(), i));
    kernels::convert(window->block(c.rank()), format, values.data(), Format::float32,
                     c.size() * kSlice);
  }
  void reduce(Communicator& c, bool in_blocks = false) {
    sum.assign(kSlice, 0);
    const uint64_t ticket =
        c.reduce({*window,
                  0,
                  static_cast<size_t>(kSlice) * size,
                  device,
                  {{}, format, sum.data(), Format::float32, false, kSlice, c.rank() * kSlice},
                  nullptr,
                  nullptr,
                  nullptr,
                  in_blocks},
                 "grads");
    c.wait_drained(ticket, "grads");
  }
  Format format;
  size_t size;
  std::shared_ptr<Window> window;
  device::Host device{nullptr};
  std::vector<float> sum;
};

// Runs on hosts over links, with two levels or one.
std::vector<Outcome> run_linked(const Hosts& shape, Links& links, bool two, const Body& body,
                                double timeout = 20) {
  return run({Provider::threads, shape.world(), timeout}, [&](Communicator& c) {
    LinkedLevels levels(c.duplicate("linked"), links, shape.each);
    if (two) {
      body(*make_hierarchical(*levels.all, *levels.host, *levels.across));
    } else {
      body(*levels.all);
    }
  });
}

class OnLinks : public testing::TestWithParam<Hosts> {};
INSTANTIATE_TEST_SUITE_P(Shapes, OnLinks,
                         testing::Values(Hosts{2, 2}, Hosts{3, 2}, Hosts{2, 3}, Hosts{4, 1},
                                         Hosts{1, 4}, Hosts{2, 4}, Hosts{3, 3}),
                         [](const auto& info) {
                           return outrigger::format_text("{}x{}", info.param.hosts,
                                                         info.param.each);
                         });

TEST_P(OnLinks, SumsAreTheTreesWhateverCrossesAndHowLongItTakes) {
  const Hosts shape = GetParam();
  for (const Format format : {Format::float32, Format::bfloat16, Format::float16}) {
    Links links(std::chrono::microseconds(300), 50e6);
    const auto outcomes = run_linked(shape, links, true, [&](Communicator& c) {
      Bucket bucket(c, format);
      for (int round = 0; round < 3; round++) {
        bucket.reduce(c);
        for (int64_t i = 0; i < kSlice; i++) {
          const float expected = sum_of(shape, c.rank() * kSlice + i, format);
          require(std::memcmp(&bucket.sum[static_cast<size_t>(i)], &expected, sizeof expected) == 0,
                  outrigger::format_text("element {} of rank {}", i, c.rank()));
        }
      }
    });
    for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.status, OTR_OK) << outcome.text;
  }
}

// docs/interfaces.md, section 1: an element costs 4 bytes for each foreign host, where one level
// costs each of the host's ranks' gradient; and nothing else crosses. In blocks either is a byte,
// and a scale for 256 of them.
TEST_P(OnLinks, BetweenHostsGoesOneSumOfEachElement) {
  const Hosts shape = GetParam();
  for (const auto& [format, in_blocks] :
       {std::pair(Format::float32, false), std::pair(Format::bfloat16, false),
        std::pair(Format::float32, true), std::pair(Format::bfloat16, true)}) {
    for (const bool two : {true, false}) {
      Links links;
      constexpr int kRounds = 3;
      const auto outcomes = run_linked(shape, links, two, [&](Communicator& c) {
        Bucket bucket(c, format);
        bucket.reduce(c, in_blocks);  // makes the buffers of the sums
        c.barrier("from here");
        if (c.rank() == 0) links.reset();
        c.barrier("count");
        for (int round = 0; round < kRounds; round++) bucket.reduce(c, in_blocks);
      });
      for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.status, OTR_OK) << outcome.text;
      const auto slice = static_cast<uint64_t>(kSlice);
      const uint64_t bytes = in_blocks ? slice + slice / 256 * 4
                             : two     ? slice * sizeof(float)
                                       : slice * kernels::size_of(format);
      const auto each = static_cast<uint64_t>(shape.each);
      const uint64_t expected = kRounds * each * bytes * (two ? 1 : each);
      for (int32_t to = 0; to < shape.hosts; to++) {
        for (int32_t from = 0; from < shape.hosts; from++) {
          EXPECT_EQ(links.bytes(from, to), from == to ? 0 : expected)
              << (two ? "two levels, " : "one level, ") << from << " to " << to;
        }
      }
      // One exchange for each rank and sum; those of the last barrier may come after the reset.
      const auto ranks = static_cast<uint64_t>(shape.world());
      const bool crosses = !two || shape.hosts > 1;
      EXPECT_LE(links.operations, ranks * (crosses ? kRounds : 0) + ranks);
      EXPECT_GE(links.operations, ranks * (crosses ? kRounds : 0));
    }
  }
}

// What all ranks shall have crosses to a host once, and not to each of its ranks.
TEST_P(OnLinks, AGatheredSliceCrossesOnceToEachHost) {
  const Hosts shape = GetParam();
  constexpr size_t kBytes = kSlice * sizeof(float);
  for (const bool two : {true, false}) {
    for (const bool in_parts : {true, false}) {
      Links links;
      const auto outcomes = run_linked(shape, links, two, [&](Communicator& c) {
        Bucket bucket(c, Format::float32);
        std::byte* const block = bucket.window->block(c.rank());
        std::vector<Part> parts;
        for (int32_t r = 0; r < c.size(); r++) {
          parts.push_back({r, {block + static_cast<size_t>(r) * kBytes, kBytes}});
        }
        c.barrier("from here");
        if (c.rank() == 0) links.reset();
        c.barrier("count");
        if (in_parts) {
          c.all_gather_parts(parts, "parameters");
        } else {
          c.all_gather_window(*bucket.window, 0, kBytes, "parameters");
        }
        const auto* all = reinterpret_cast<const float*>(block);
        for (int64_t i = 0; i < c.size() * kSlice; i++) {
          require(all[i] == value(static_cast<int32_t>(i / kSlice), i), "gathered");
        }
      });
      for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.status, OTR_OK) << outcome.text;
      const uint64_t slices = static_cast<uint64_t>(shape.each) * kBytes;
      for (int32_t to = 0; to < shape.hosts; to++) {
        for (int32_t from = 0; from < shape.hosts; from++) {
          const uint64_t readers = two ? 1 : static_cast<uint64_t>(shape.each);
          EXPECT_EQ(links.bytes(from, to), from == to ? 0 : slices * readers) << in_parts;
        }
      }
    }
  }
}

// ---- Hosts that die, cables that stall ----------------------------------------------------------

// What every rank comes to: creation, windows, sums, gathers, small values, a duplicate.
void come_to_everything(Communicator& c) {
  Bucket bucket(c, Format::bfloat16);
  for (int round = 0; round < 2; round++) {
    bucket.reduce(c);
    c.all_gather_window(*bucket.window, 0, kSlice * 2, "parameters");
    c.barrier("step");
  }
  const auto copy = c.duplicate("copy");
  Bucket other(*copy, Format::float32);
  other.reduce(*copy);
  copy->barrier("end");
  copy->barrier("of all");
}

// How many operations between hosts a rank comes to in all.
int64_t operations_of(const Hosts& shape) {
  Links links;
  for (const Outcome& outcome : run_linked(shape, links, true, come_to_everything)) {
    EXPECT_EQ(outcome.status, OTR_OK) << outcome.text;
  }
  return static_cast<int64_t>(links.operations) / shape.world();
}

constexpr Hosts kBroken[] = {{2, 2}, {3, 2}, {3, 1}};

// Wherever a host dies, every rank of the others hears of it, by one text, at once.
TEST(BrokenHost, DeathIsNamedAlikeByAllRanksOfAllHosts) {
  for (const Hosts& shape : kBroken) {
    const int64_t operations = operations_of(shape);
    EXPECT_GT(operations, 15);
    for (int32_t host = 0; host < shape.hosts; host += shape.hosts - 1) {
      for (int64_t operation = 0; operation < operations; operation++) {
        Links links;
        links.break_at(host, operation);
        const double start = now();
        std::vector<Outcome> outcomes = run_linked(shape, links, true, come_to_everything);
        EXPECT_LT(now() - start, 5);
        const auto first = outcomes.begin() + host * shape.each;
        for (auto of_host = first; of_host < first + shape.each; ++of_host) {
          EXPECT_NE(of_host->status, OTR_OK);
        }
        outcomes.erase(first, first + shape.each);
        const bool is_last = operation == operations - 1;
        SCOPED_TRACE(outrigger::format_text("{}x{}, host {} at operation {} of {}", shape.hosts,
                                            shape.each, host, operation, operations));
        const std::string text = one_text(outcomes, OTR_E_PEER_DEAD);
        EXPECT_FALSE(text.empty() && !is_last);
      }
    }
  }
}

// A cable that stalls beyond the timeout is a timeout for all, soon after it.
TEST(BrokenHost, AStallIsNamedAlikeByAllRanksOfAllHosts) {
  constexpr double kTimeout = 0.3;
  const Hosts shape{3, 2};
  const int64_t operations = operations_of(shape);
  // The first is where they begin to make what they tell each other by.
  for (int64_t operation = 1; operation < operations - 1; operation += 3) {
    Links links;
    links.timeout = Links::Seconds(kTimeout);
    links.break_at(1, operation, Links::Seconds(30));
    const double start = now();
    const auto outcomes = run_linked(shape, links, true, come_to_everything, kTimeout);
    EXPECT_LT(now() - start, 5);
    SCOPED_TRACE(operation);
    EXPECT_FALSE(one_text(outcomes, OTR_E_TIMEOUT).empty());
  }
}

}  // namespace
}  // namespace outrigger::comm::test
