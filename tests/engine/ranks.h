// SPDX-License-Identifier: Apache-2.0
// Runs one function on every rank of a group, over any communicator of this host.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "outrigger.h"

namespace outrigger::test {

// mpi: this process is one of mpirun's ranks, and every one of them gets the results of all;
// launched: the same, by otr_comm_from_env as if they were on two hosts.
enum class Provider { self, threads, shm, custom, mpi, launched };
[[nodiscard]] const char* name_of(Provider provider);

using Bytes = std::vector<unsigned char>;
// What a rank does; its result is collected. Throws std::runtime_error to fail the test.
using RankBody = std::function<Bytes(int32_t rank, otr_context* context, otr_comm* comm)>;

struct RankResult {
  Bytes bytes;
  std::string error;  // "" or why the body threw
  int signal = 0;     // that ended the process (shm)
};

// threads: a thread a rank. shm: a process a rank (forked: call it from a single-threaded program).
[[nodiscard]] std::vector<RankResult> run_ranks(Provider provider, int32_t world,
                                                const RankBody& body, double timeout = 60,
                                                int32_t workers = 1);

// A communicator of two levels over one of all ranks, on so many hosts; or, for 0, that one.
class Levels {
 public:
  Levels(otr_comm* all, int32_t world, int32_t hosts);
  ~Levels() { otr_comm_destroy(made_); }
  Levels(const Levels&) = delete;
  Levels& operator=(const Levels&) = delete;
  [[nodiscard]] otr_comm* comm() const { return made_ == nullptr ? all_ : made_; }

 private:
  otr_comm *all_, *made_ = nullptr;
};

// Throws std::runtime_error with the library's text unless status is OTR_OK.
void need(int32_t status, const char* call);
#define NEED(call) ::outrigger::test::need((call), #call)

}  // namespace outrigger::test
