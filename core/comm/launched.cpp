// SPDX-License-Identifier: Apache-2.0
#include "core/comm/launched.h"

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/combine.h"
#include "core/comm/hierarchical.h"
#include "core/comm/recorded.h"
#include "core/comm/transport.h"

namespace outrigger::comm {
namespace {

using Recorder = std::shared_ptr<observe::FlightRecorder>;

// Whether all hosts have `each` consecutive ranks.
bool is_even(Communicator& all, const Launch& launch) {
  struct Hosts {
    int32_t each, fits;
  };
  Hosts hosts{launch.local_world, all.rank() % launch.local_world == launch.local_rank ? 1 : 0};
  combine_value(
      all, hosts,
      [](Hosts& into, const Hosts& from) {
        if (from.each != into.each) into.fits = 0;
        into.fits &= from.fits;
      },
      "hosts");
  return hosts.fits != 0 && all.size() % launch.local_world == 0;
}

std::unique_ptr<Communicator> make_over_hosts(const Launch& launch, const std::string& job,
                                              const Settings& settings, const Recorder& recorder) {
  if (launch.launcher == "torchrun") {
    fail(OTR_E_UNSUPPORTED,
         "RANK and WORLD_SIZE describe {} ranks, {} of them on this host; ranks on several hosts "
         "need MPI, and so its launcher (mpirun, srun), or a communicator of your own "
         "(otr_comm_create_custom; in PyTorch the default process group serves)",
         launch.world, launch.local_world);
  }
  auto all = recorded(make_transport(device::load_transport_plugin("mpi"), nullptr, settings),
                      recorder, "all");
  if (all->size() != launch.world || all->rank() != launch.rank) {
    fail(OTR_E_CONFIG,
         "{} says that this is rank {} of {}, MPI that it is rank {} of {}: the MPI library is not "
         "the launcher's; set OTR_MPI_LIBRARY to the path of the one that is",
         launch.launcher, launch.rank, launch.world, all->rank(), all->size());
  }
  if (!is_even(*all, launch) || launch.local_world == 1) return all;
  const int32_t host_number = launch.rank / launch.local_world;
  auto host = recorded(make_shm(launch.local_rank, launch.local_world,
                                format_text("{} host {}", job, host_number), settings),
                       recorder, "host");
  auto across = split(*all, launch.local_rank, launch.rank);
  return make_hierarchical(*all, *host, *across);
}

}  // namespace

std::unique_ptr<Communicator> make_launched(const Launch& launch, const std::string& job,
                                            const Settings& settings, const Recorder& recorder) {
  if (launch.world == 1) return recorded(make_self(), recorder, "main");
  if (launch.local_world != launch.world) return make_over_hosts(launch, job, settings, recorder);
  return recorded(make_shm(launch.rank, launch.world, job, settings), recorder, "main");
}

}  // namespace outrigger::comm
