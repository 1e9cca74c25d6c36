// SPDX-License-Identifier: Apache-2.0
// What an engine asks of MPI, beside the bare library's own call of the same bytes, in the same
// processes and in turn: the sum of float32 gradients for each rank's slice
// (MPI_Reduce_scatter_block), and the gather of updated slices in place (MPI_Allgather). Rank 0
// prints one line of JSON.
//   mpirun -n WORLD bench_mpi_exchange BYTES ROUNDS      BYTES: of one rank's slice
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "core/comm/transport.h"
#include "core/device/host.h"

namespace outrigger {
namespace {

int rank = 0, world = 1;

double timed(const std::function<void()>& work) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begun = MPI_Wtime();
  work();
  double mine = MPI_Wtime() - begun, longest = 0;
  MPI_Allreduce(&mine, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return longest;
}

std::string list(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += (text.empty() ? "" : ", ") + std::to_string(value);
  return "[" + text + "]";
}

int run(size_t bytes, int rounds) {
  const auto ranks = static_cast<size_t>(world), count = bytes / sizeof(float);
  auto comm = comm::make_transport(device::load_transport_plugin("mpi"), nullptr, {});
  const auto window = comm->create_window(comm::WindowKind::per_rank, ranks * bytes, "bench");
  auto* const ours = reinterpret_cast<float*>(window->block(rank));
  std::vector<float> theirs(ranks * count), our_sum(count), their_sum(count);
  device::Host host(nullptr);
  constexpr auto kFloat32 = kernels::Format::float32;
  const comm::Reduce reduce{
      *window,
      0,
      bytes,
      host,
      {{}, kFloat32, our_sum.data(), kFloat32, false, static_cast<int64_t>(count), 0}};
  const auto fill = [&](int round) {
    for (size_t i = 0; i < ranks * count; ++i) {
      ours[i] = theirs[i] = static_cast<float>((i + static_cast<size_t>(rank * 7 + round)) % 1000);
    }
  };
  const std::function<void()> work[2][2] = {
      {[&] { comm->reduce(reduce, "sum"); },
       [&] {
         MPI_Reduce_scatter_block(theirs.data(), their_sum.data(), static_cast<int>(count),
                                  MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
       }},
      {[&] { comm->all_gather_window(*window, 0, bytes, "gather"); },
       [&] {
         MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, theirs.data(), static_cast<int>(count),
                       MPI_FLOAT, MPI_COMM_WORLD);
       }}};
  std::vector<double> seconds[2][2];
  bool same = true;
  for (int round = -2; round < rounds; ++round) {
    fill(round);
    for (int operation = 0; operation < 2; ++operation) {
      for (int turn = 0; turn < 2; ++turn) {
        const int side = (turn + round) & 1;
        const double time = timed(work[operation][side]);
        if (round >= 0) seconds[operation][side].push_back(time);
      }
    }
    same = same && our_sum == their_sum && std::memcmp(ours, theirs.data(), ranks * bytes) == 0;
  }
  int mine = same ? 1 : 0, all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(version, &length);
  if (rank == 0) {
    std::printf(
        "{\"same\": %s, \"library\": \"%.24s\", \"sum\": {\"ours\": %s, \"bare\": %s}, "
        "\"gather\": {\"ours\": %s, \"bare\": %s}}\n",
        all != 0 ? "true" : "false", version, list(seconds[0][0]).c_str(),
        list(seconds[0][1]).c_str(), list(seconds[1][0]).c_str(), list(seconds[1][1]).c_str());
  }
  return 0;
}

}  // namespace
}  // namespace outrigger

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &outrigger::rank);
  MPI_Comm_size(MPI_COMM_WORLD, &outrigger::world);
  const int status = outrigger::run(std::strtoull(argv[1], nullptr, 10), std::atoi(argv[2]));
  MPI_Finalize();
  return status;
}
