// SPDX-License-Identifier: Apache-2.0
// Both exchanges, over every provider as their channel: order, tickets, and how it ends.
#include <algorithm>

#include "core/comm/combine.h"
#include "tests/comm/conformance.h"
#include "tests/comm/sums.h"

namespace outrigger::comm::test {
namespace {

class ExchangeConformance : public ExchangeTest {};
INSTANTIATE_TEST_SUITE_P(Providers, ExchangeConformance,
                         testing::Combine(testing::ValuesIn(providers()), kRuns), name_of_case);

TEST_P(ExchangeConformance, RunsOperationsInTheirOrder) {
  run_all_well(group(), [this](Communicator& c) {
    const auto exchange = exchange_of(c);
    Sums sums(*exchange, c, 2);
    const auto world = static_cast<size_t>(c.size()), me = static_cast<size_t>(c.rank());
    std::vector<int> ran;  // the sequence's until it was waited for
    uint32_t bits = 0;
    std::vector<std::byte> whole(world * 100);
    std::vector<Part> parts;
    for (size_t r = 0; r < world; ++r) {
      parts.push_back({static_cast<int32_t>(r), std::span(whole).subspan(r * 100, 100)});
    }
    float total = 0;
    Exchange::Ticket last = 0;
    for (int round = 0; round < 20; ++round) {
      for (size_t place = 0; place < 2; ++place) {
        const auto value = static_cast<float>(round + 1);
        total += value + ranks_mean(c);
        require(exchange->begin(sums.reduction(place, value)) == ++last, "tickets count");
      }
      last = exchange->begin(PartsGather{
          parts, "parts",
          [&, round] {
            ran.push_back(4 * round);
            const auto mine = filled(c.rank(), 100, static_cast<uint64_t>(round));
            std::copy(mine.begin(), mine.end(), whole.begin() + static_cast<int64_t>(100 * me));
          },
          [&, round] {
            ran.push_back(4 * round + 1);
            for (size_t i = 0; i < whole.size(); ++i) {
              require(whole[i] == pattern(static_cast<int32_t>(i / 100), i % 100,
                                          static_cast<uint64_t>(round)),
                      "gathered");
            }
          }});
      last = exchange->begin(
          Combination{std::as_writable_bytes(std::span(&bits, 1)),
                      [](size_t, auto into, auto from) { merge_bits(into, from); }, "bits",
                      [&, round] {
                        ran.push_back(4 * round + 2);
                        bits = 1U << c.rank();
                      },
                      [&, round]() -> std::vector<Reduction> {
                        ran.push_back(4 * round + 3);
                        require(bits == (1U << c.size()) - 1, "merged");
                        return {};
                      }});
    }
    exchange->wait(last);
    require(exchange->is_done(last) && !exchange->is_done(last + 1), "done");
    exchange->wait_all();
    exchange->check();
    require(ran.size() == 80 && std::is_sorted(ran.begin(), ran.end()), "order");
    sums.require_sum(total);
    kernels::NormSum norm;
    kernels::sum_of_squares(norm, sums.sum, kernels::Format::float32, kSlice, 0);
    require(kernels::value_of(sums.norm) == kernels::value_of(norm), "the norm is the sum's");
    c.barrier("read");
    // A gather of windows is in the sequence, too: it moves what was filled before it.
    sums.fill(0, 7);
    size_t came = 0;
    exchange->begin(WindowGather{*sums.window, 0, kBytes, "slices", [&] {
                                   const auto* first =
                                       reinterpret_cast<const float*>(sums.window->block(c.rank()));
                                   for (size_t r = 0; r < world; ++r) {
                                     if (first[r * kSlice] == 7 + static_cast<float>(r)) ++came;
                                   }
                                 }});
    exchange->wait_all();
    require(came == world, "slices");
  });
}

// What a merged value leads to is a part of its operation, windows made for it included.
TEST_P(ExchangeConformance, WhatFollowsComesBeforeWhatIsBegunLater) {
  run_all_well(group(), [this](Communicator& c) {
    const auto exchange = exchange_of(c);
    std::unique_ptr<Sums> sums;
    float total = 0;
    uint8_t value = 1;
    Combination first{std::as_writable_bytes(std::span(&value, 1)),
                      [](size_t, auto into, auto from) { merge_bits(into, from); }, "value"};
    first.then = [&] {
      sums = std::make_unique<Sums>(*exchange, c, 1);
      std::vector<Reduction> all;
      for (int i = 1; i <= 3; ++i) {
        all.push_back(sums->reduction(0, static_cast<float>(i)));
        total += static_cast<float>(i) + ranks_mean(c);
      }
      return all;
    };
    const auto ticket = exchange->begin(std::move(first));
    Combination second = nothing("later");
    second.prepare = [&] {
      require(exchange->is_done(ticket), "the first one is over");
      sums->require_sum(total);
    };
    exchange->begin(std::move(second));
    exchange->wait(ticket);
    require(total > 0, "done without what follows");
    exchange->wait_all();
    while (!exchange->is_drained(ticket)) pause(1);
  });
}

TEST_P(ExchangeConformance, BeginsWithoutWaitingForAnybody) {
  run_all_well(group(), [this](Communicator& c) {
    const auto exchange = exchange_of(c);
    const bool first = c.rank() == 0;
    if (!first) wait_for_door(0);
    const auto a = exchange->begin(nothing("a")), b = exchange->begin(nothing("b"));
    if (first && c.size() > 1) {
      pause(30);
      require(!exchange->is_done(a) && !exchange->is_drained(a), "others have still to come");
    }
    if (first) open_door(0);
    exchange->wait(a);
    exchange->wait(b);
    require(exchange->is_done(a) && exchange->is_drained(b), "done");
  });
}

// Whatever is under way when it goes. A custom group's calls end by an abort of it.
TEST_P(ExchangeConformance, IsDestroyedWithOperationsUnderWay) {
  const auto outcomes = run(group(), [&](Communicator& c) {
    auto exchange = exchange_of(c);
    auto unused = exchange_of(c);
    unused.reset();
    if (c.rank() == 0) {
      for (int i = 0; i < 3; ++i) exchange->begin(nothing("nobody comes"));
      pause(20);
      const double start = now();
      exchange.reset();
      require(now() - start < kSoon, "waited");
      open_door(0);
    }
    wait_for_door(0);
    const Provider provider = group().provider;
    if (provider != Provider::custom && provider != Provider::gather_only &&
        provider != Provider::hierarchical) {
      c.barrier("the job goes on");
    }
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.status, OTR_OK) << outcome.text;
}

}  // namespace
}  // namespace outrigger::comm::test
