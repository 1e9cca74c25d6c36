// SPDX-License-Identifier: Apache-2.0
// What is true of an exchange that runs its operations in waits, and of no other.
#include "core/comm/combine.h"
#include "core/comm/forwarding.h"
#include "tests/comm/conformance.h"
#include "tests/comm/sums.h"

namespace outrigger::comm::test {
namespace {

std::unique_ptr<Exchange> exchange_of(Communicator& c) {
  return make_inline_exchange(c.duplicate("sequence"), "the test's sequence");
}

class InlineExchange : public testing::TestWithParam<Ranks> {};
INSTANTIATE_TEST_SUITE_P(Providers, InlineExchange, testing::ValuesIn(providers()),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(InlineExchange, RunsOperationsInTheThreadThatWaits) {
  run_all_well(GetParam(), [](Communicator& c) {
    const auto exchange = exchange_of(c);
    exchange->start();
    Sums sums(*exchange, c, 1);
    std::vector<std::thread::id> ran;
    std::vector<Exchange::Ticket> tickets;
    for (int i = 1; i <= 3; ++i) {
      Reduction operation = sums.reduction(0, static_cast<float>(i));
      operation.prepare = [&ran, fill = std::move(operation.prepare)] {
        ran.push_back(std::this_thread::get_id());
        fill();
      };
      tickets.push_back(exchange->begin(std::move(operation)));
    }
    pause(5);
    require(ran.empty() && !exchange->is_done(tickets[0]), "nobody waits yet");
    exchange->wait(tickets[1]);
    require(ran.size() == 2 && !exchange->is_done(tickets[2]), "nobody waits for the last one");
    WaitBeside last(*exchange);
    last.join();
    const auto me = std::this_thread::get_id();
    require(ran.size() == 3 && ran[0] == me && ran[1] == me && ran[2] != me, "its waiter runs it");
    sums.require_sum(6 + 3 * ranks_mean(c));
  });
}

// A group of one, each of whose calls is interrupted twice before it is made.
class Interrupted final : public Forwarding {
 public:
  explicit Interrupted(std::vector<std::string>& made) : Forwarding(make_self()), made_(made) {}

  std::shared_ptr<Window> create_window(WindowKind kind, size_t bytes,
                                        std::string_view label) override {
    meet(label);
    return Forwarding::create_window(kind, bytes, label);
  }
  uint64_t reduce(const Reduce& reduce, std::string_view label) override {
    meet(label);
    return Forwarding::reduce(reduce, label);
  }
  void wait_drained(uint64_t ticket, std::string_view label) override {
    meet(label);
    Forwarding::wait_drained(ticket, label);
  }
  void all_gather_window(Window& window, size_t offset, size_t slice_bytes,
                         std::string_view label) override {
    meet(label);
    Forwarding::all_gather_window(window, offset, slice_bytes, label);
  }
  void all_gather_parts(std::span<const Part> parts, std::string_view label) override {
    meet(label);
    Forwarding::all_gather_parts(parts, label);
  }
  void combine(std::span<std::byte> value, const Merge& merge, std::string_view label) override {
    meet(label);
    Forwarding::combine(value, merge, label);
  }

 private:
  void meet(std::string_view label) {
    if (interrupts_ > 0) require(label == last_, "another call after an interrupt");
    last_ = label;
    if (++interrupts_ <= 2) fail(OTR_E_INTERRUPTED, "'{}' was interrupted", label);
    interrupts_ = 0;
    made_.emplace_back(label);
  }
  std::vector<std::string>& made_;
  std::string last_;
  int interrupts_ = 0;
};

// Calls it until it is not interrupted; how often it was.
int insist(const std::function<void()>& call) {
  for (int interrupts = 0;; ++interrupts) {
    try {
      call();
      return interrupts;
    } catch (const Error& error) {
      if (error.status() != OTR_E_INTERRUPTED || interrupts > 1000) throw;
    }
  }
}

TEST(InlineExchangeInterrupted, MakesTheSameCallAgainAndNothingTwice) {
  std::vector<std::string> made, ran;
  const auto exchange = make_inline_exchange(std::make_unique<Interrupted>(made), "a sequence");
  const auto runs = [&ran](const char* what) { return [&ran, what] { ran.emplace_back(what); }; };
  device::Host host(nullptr);
  float value = 0, sum[kSlice] = {};
  kernels::NormSum norm;
  std::shared_ptr<Window> window;
  insist([&] { window = exchange->create_window(WindowKind::per_rank, kBytes, "window"); });
  const auto add = [&](const std::string& label) {
    constexpr auto kFloat32 = kernels::Format::float32;
    return Reduction{
        {*window, 0, kBytes, host, {{}, kFloat32, sum, kFloat32, true, kSlice, 0}, &norm},
        label,
        [&, label] {
          ran.push_back("fill for " + label);
          std::fill_n(reinterpret_cast<float*>(window->block(0)), kSlice, ++value);
        },
        "reuse for " + label};
  };
  exchange->begin(add("a"));
  exchange->begin(add("b"));
  exchange->begin(WindowGather{*window, 0, kBytes, "slices", runs("after slices")});
  exchange->begin(PartsGather{{}, "parts", runs("before parts"), runs("after parts")});
  std::shared_ptr<Window> made_inside;
  Combination end{{},
                  [](auto...) {},
                  "bits",
                  runs("before bits"),
                  [&] {
                    made_inside = exchange->create_window(WindowKind::per_rank, 8, "inside");
                    ran.emplace_back("after bits");
                    return std::vector<Reduction>{add("c"), add("d")};
                  }};
  const auto last = exchange->begin(std::move(end));
  made.clear();
  const int interrupts = insist([&] { exchange->wait(last); });
  EXPECT_EQ(made, (std::vector<std::string>{"a", "reuse for b", "b", "slices", "parts", "bits",
                                            "inside", "reuse for c", "c", "reuse for d", "d"}));
  EXPECT_EQ(interrupts, 2 * static_cast<int>(made.size()));
  EXPECT_EQ(ran, (std::vector<std::string>{"fill for a", "fill for b", "after slices",
                                           "before parts", "after parts", "before bits",
                                           "after bits", "fill for c", "fill for d"}));
  EXPECT_EQ(sum[0], 1 + 2 + 3 + 4);
  EXPECT_EQ(kernels::value_of(norm), 10. * 10 * kSlice);
  EXPECT_TRUE(exchange->is_done(last) && exchange->is_drained(last));
  exchange->check();
}

// As a Group's: memory is still being read.
TEST(InlineExchangeInterrupted, EndsTheJobWhileDataMoves) {
  const auto outcomes = run({Provider::threads, 3}, [](Communicator& c) {
    const auto exchange = exchange_of(c);
    Sums sums(*exchange, c, 1);
    if (c.rank() == 1) sums.host.door = 1;
    for (const float value : {1.F, 2.F}) exchange->begin(sums.reduction(0, value));
    if (c.rank() == 0) {
      ImpatientHost host;
      const Interruptible scope(host.context);
      exchange->wait(1);
      text_of([&] { exchange->wait_all(); }, OTR_E_INTERRUPTED, {"reuse a place", "rank 1"});
      open_door(1);
      text_of([&] { exchange->check(); }, OTR_E_ABORTED, {"host of rank 0"});
    }
    exchange->wait_all();
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.status, OTR_E_ABORTED);
    EXPECT_EQ(outcome.text, outcomes[0].text);
  }
}

// One runs what is next; the others wait for it, and take over when it is interrupted.
TEST(InlineExchangeInterrupted, LetsAnotherWaitGoOn) {
  run_all_well({Provider::threads, 2}, [](Communicator& c) {
    const auto exchange = exchange_of(c);
    Sums sums(*exchange, c, 1);
    for (const float value : {1.F, 2.F}) exchange->begin(sums.reduction(0, value));
    if (c.rank() == 1) {
      for (const Exchange::Ticket ticket : {Exchange::Ticket{1}, Exchange::Ticket{2}}) {
        wait_for_door(ticket);
        exchange->wait(ticket);
      }
    } else {
      ImpatientHost host;
      const Interruptible scope(host.context);
      {
        WaitBeside first(*exchange);  // runs it
        pause(30);
        text_of([&] { exchange->wait_all(); }, OTR_E_INTERRUPTED,
                {"the wait for the test's sequence was interrupted by the host of rank 0", "rank 1",
                 "again"});
        open_door(1);
        while (!exchange->is_done(1)) pause(1);
        open_door(2);
        first.join();
      }
    }
    require(sums.fills == 2, "filled");
    sums.require_sum(3 + 2 * ranks_mean(c));
    c.barrier("one more");
    exchange->begin(sums.reduction(0, 4));
    if (c.rank() == 1) {
      wait_for_door(3);
      exchange->wait_all();
    } else {
      ImpatientHost host;
      host.stop = false;
      const Interruptible scope(host.context);
      std::unique_ptr<WaitBeside> second;
      std::jthread later([&] {
        pause(30);
        second = std::make_unique<WaitBeside>(*exchange);
        pause(60);
        host.stop = true;
      });
      text_of([&] { exchange->wait_all(); }, OTR_E_INTERRUPTED, {"reduce 'sums'"});
      later.join();
      open_door(3);
      second->join();
    }
    require(sums.fills == 3, "filled again");
    sums.require_sum(7 + 3 * ranks_mean(c));
  });
}

}  // namespace
}  // namespace outrigger::comm::test
