// SPDX-License-Identifier: Apache-2.0
// Runs one function on every rank of a group, whatever its provider: in place, on threads, or in
// forked processes, and collects what became of each.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/comm/shm.h"
#include "tests/sanitizers.h"

namespace outrigger::comm::test {

// hierarchical: of hosts with two ranks each, threads, between which is a custom communicator;
// hierarchical_threads: between which are threads, too. transport: a plugin's, over threads
// (fake_transport.h). mpi: this process is one of mpirun's ranks,
// as many as the group has, and runs the body as that one; hierarchical_mpi: on hosts of two.
enum class Provider {
  self,
  threads,
  shm,
  custom,
  gather_only,
  hierarchical,
  hierarchical_threads,
  transport,
  mpi,
  hierarchical_mpi
};
// How many ranks mpirun has started where OTR_TEST_MPI says that it has; else 0.
[[nodiscard]] int32_t mpi_world();

struct Ranks {
  Provider provider;
  int32_t world;
  double timeout = 30;
  LivenessSource liveness = LivenessSource::best;
  std::string job = {};  // empty: one that no other group has
};
void PrintTo(const Ranks& group, std::ostream* out);
[[nodiscard]] std::string name_of(const Ranks& group);

// What became of a rank.
struct Outcome {
  int32_t status = 0;   // OTR_OK, the Error's, or kKilled
  std::string text;     // of the error
  double ended_at = 0;  // seconds on the steady clock
};
inline constexpr int32_t kKilled = 1;  // the process ended without a word
// Seconds until survivors know of a death. A sanitizer's process takes long to give its memory
// back, and has not ended before.
inline constexpr double kSoon = outrigger::test::kSanitized ? 5 : 1;
inline constexpr int32_t kTestFault = -1000;  // a require() that did not hold

// Memory that all ranks of a group and the test share; of mpirun's ranks, the file OTR_TEST_BOARD.
struct Board {
  std::atomic<double> moment;
  std::array<std::atomic<int64_t>, 60> numbers;
};
[[nodiscard]] Board& board();

[[nodiscard]] double now();

using Body = std::function<void(Communicator&)>;
// Every rank makes its communicator and runs the body.
[[nodiscard]] std::vector<Outcome> run(const Ranks& group, const Body& body);
// As run, and every rank must end well.
void run_all_well(const Ranks& group, const Body& body);
// Forked processes that make what they like; the function gets its index.
[[nodiscard]] std::vector<Outcome> run_processes(int32_t count,
                                                 const std::function<void(int32_t)>& body);
// What a shm rank of the group does first.
[[nodiscard]] std::unique_ptr<Communicator> attach(const Ranks& group, int32_t rank);

// Ends this process, and notes the moment on the board; now, or in the middle of what it does next.
[[noreturn]] void die();
void die_in(std::chrono::milliseconds time);

// In a body, where GoogleTest's macros would speak to nobody.
void require(bool holds, const std::string& what);

// The text contains every part.
void expect_says(const std::string& text, const std::vector<std::string>& parts);

}  // namespace outrigger::comm::test
