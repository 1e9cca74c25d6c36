// SPDX-License-Identifier: Apache-2.0
// How the processes of a job find each other: rank 0 listens on an abstract unix socket whose name
// is made of user and job, the others connect. Nothing touches a file system; the name goes with
// the process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/comm/unique_fd.h"
#include "core/comm/wait.h"

namespace outrigger::comm {

struct Rendezvous {
  int32_t rank, world;
  std::string job;
  double timeout;              // as given, for texts
  Clock::time_point deadline;  // for finding each other
  bool pidfds = true;          // false: as if the kernel had no pidfd_open
};

struct Attachment {
  std::vector<UniqueFd> sockets;    // rank 0: [r] leads to rank r; others: [0] leads to rank 0
  std::vector<UniqueFd> processes;  // [r]: a pidfd of rank r; empty: not every rank has one
  UniqueFd control;                 // others: the memory that rank 0 gave
};

// Both throw, on every rank that is there: OTR_E_TIMEOUT naming the ranks that are not;
// OTR_E_MISMATCH on another world size or version, or a rank that is there twice; OTR_E_PEER_DEAD.
[[nodiscard]] Attachment gather_ranks(const Rendezvous& rendezvous, int control);  // rank 0
[[nodiscard]] Attachment join_rank_0(const Rendezvous& rendezvous);                // the others

}  // namespace outrigger::comm
