// SPDX-License-Identifier: Apache-2.0
// Parts of a collective call that each rank does for itself, files above all: who fails in one,
// fails on all ranks, with one text that names the rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/comm/combine.h"
#include "core/comm/group.h"
#include "core/comm/verdict.h"

namespace outrigger::engine {

class Together {
 public:
  // What the ranks' operations run in: an engine's health wants to know of failures.
  using Collective = std::function<void(const std::function<void()>&)>;
  Together(comm::Group& group, const char* call, Collective collective)
      : group_(group), call_(call), collective_(std::move(collective)) {}

  [[nodiscard]] comm::Group& group() const { return group_; }
  [[nodiscard]] bool leads() const { return group_.rank() == 0; }
  [[nodiscard]] const char* call() const { return call_; }

  template <typename Body>
  void run(const Body& body);
  // A text of rank 0's, or the failure of what makes it.
  template <typename Body>
  std::string from_rank0(const Body& body);
  // Operations of the group.
  void collective(const std::function<void()>& body) const { collective_(body); }

  // In a part that may take long, for a body to call now and then: no rank waits for another one
  // for longer than it takes this one to come here. Throws where another rank has failed.
  void tick();

 private:
  struct State {
    comm::FirstVerdict first;
    int32_t unfinished = 0;  // ranks whose part goes on
  };
  [[nodiscard]] State meet(State mine) const;

  comm::Group& group_;
  const char* const call_;
  const Collective collective_;
  std::chrono::steady_clock::time_point last_;  // when this rank came to a tick
  bool heard_ = false;                          // of another rank's failure
};

inline Together::State Together::meet(State mine) const {
  collective_([&] {
    comm::combine_value(
        group_, mine,
        [](State& into, const State& from) {
          comm::merge_first(into.first, from.first);
          into.unfinished += from.unfinished;
        },
        call_);
  });
  return mine;
}

inline void Together::tick() {
  constexpr std::chrono::seconds kEvery{1};
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < kEvery) return;
  const State met = meet({{}, 1});
  last_ = std::chrono::steady_clock::now();
  heard_ = met.first.rank >= 0;
  met.first.require(call_);
}

template <typename Body>
void Together::run(const Body& body) {
  State mine;
  last_ = std::chrono::steady_clock::now();
  heard_ = false;
  try {
    body();
  } catch (const Error& error) {
    if (heard_) throw;  // so do all
    mine.first.set(group_.rank(), error.status(), error.what());
  } catch (const std::bad_alloc&) {
    mine.first.set(group_.rank(), OTR_E_OUT_OF_MEMORY, "no memory");
  }
  for (;;) {
    const State met = meet(mine);
    met.first.require(call_);
    if (met.unfinished == 0) return;
  }
}

template <typename Body>
std::string Together::from_rank0(const Body& body) {
  std::string text;
  run([&] {
    if (leads()) text = body();
  });
  uint64_t size = text.size();
  collective_([&] {
    group_.broadcast(std::as_writable_bytes(std::span(&size, 1)), 0, call_);
    text.resize(size);
    group_.broadcast(std::as_writable_bytes(std::span(text)), 0, call_);
  });
  return text;
}

}  // namespace outrigger::engine
