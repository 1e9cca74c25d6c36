// SPDX-License-Identifier: Apache-2.0
// What an engine asks of MPI, in the same processes and in turn: the sum of float32 gradients for
// each rank's slice, and the gather of updated slices in place. Sides: "flat", a communicator of
// MPI alone; "bare", MPI_Reduce_scatter_block and MPI_Allgather of the same bytes; on several hosts
// also "levels", as otr_comm_from_env makes it, and "blocks", the same with gradients as 8-bit
// blocks between hosts. Rank 0 prints one line of JSON, of each side's
// longest rank in seconds.
//   mpirun -n WORLD bench_mpi_exchange BYTES ROUNDS      BYTES: of one rank's slice
#include <mpi.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/comm/launched.h"
#include "core/comm/transport.h"
#include "core/device/host.h"

namespace outrigger {
namespace {

int rank = 0, world = 1;
constexpr auto kFloat32 = kernels::Format::float32;

struct Side {
  std::string name;
  float* values;             // world slices
  std::vector<float> total;  // of this rank's slice
  std::function<void()> sum, gather;
  bool in_blocks = false;
  std::vector<double> sums = {}, gathers = {};  // seconds, by round
};

// Of a communicator, in a window of its own.
struct Ours {
  Ours(std::unique_ptr<comm::Communicator> made, size_t bytes)
      : communicator(std::move(made)),
        window(communicator->create_window(comm::WindowKind::per_rank,
                                           static_cast<size_t>(world) * bytes, "bench")),
        bytes(bytes) {}
  std::unique_ptr<comm::Communicator> communicator;
  std::shared_ptr<comm::Window> window;
  size_t bytes;
  device::Host host{nullptr};

  Side side(const std::string& name, bool in_blocks = false) {
    Side made{name,
              reinterpret_cast<float*>(window->block(rank)),
              std::vector<float>(bytes / sizeof(float)),
              {},
              {},
              in_blocks};
    float* const total = made.total.data();  // stays where it is when the vector moves
    made.sum = [this, total, in_blocks] {
      const auto count = static_cast<int64_t>(bytes / sizeof(float));
      communicator->reduce({*window,
                            0,
                            bytes,
                            host,
                            {{}, kFloat32, total, kFloat32, false, count, 0},
                            nullptr,
                            nullptr,
                            nullptr,
                            in_blocks},
                           "sum");
    };
    made.gather = [this] { communicator->all_gather_window(*window, 0, bytes, "gather"); };
    return made;
  }
};

Side bare(std::vector<float>& values, size_t count) {
  Side made{"bare", values.data(), std::vector<float>(count), {}, {}, false};
  float* const total = made.total.data();
  made.sum = [&values, total, count] {
    MPI_Reduce_scatter_block(values.data(), total, static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                             MPI_COMM_WORLD);
  };
  made.gather = [&values, count] {
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, values.data(), static_cast<int>(count), MPI_FLOAT,
                  MPI_COMM_WORLD);
  };
  return made;
}

double timed(const std::function<void()>& work) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begun = MPI_Wtime();
  work();
  double mine = MPI_Wtime() - begun, longest = 0;
  MPI_Allreduce(&mine, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return longest;
}

// Each summand that was sent is within 1/16 of itself, and none is negative.
bool is_near(const std::vector<float>& sums, const std::vector<float>& exact) {
  for (size_t i = 0; i < sums.size(); ++i) {
    if (!(std::abs(sums[i] - exact[i]) <= exact[i] / 16 + 1)) return false;
  }
  return sums != exact;
}

std::string list(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += (text.empty() ? "" : ", ") + std::to_string(value);
  return "[" + text + "]";
}

int run(size_t bytes, int rounds) {
  const size_t ranks = static_cast<size_t>(world), count = bytes / sizeof(float);
  std::vector<float> values(ranks * count);
  Ours flat(comm::make_transport(device::load_transport_plugin("mpi"), nullptr, {}), bytes);
  std::vector<Side> sides;
  sides.push_back(flat.side("flat"));
  sides.push_back(bare(values, count));
  const comm::Launch launch = comm::read_launch_environment();
  std::unique_ptr<Ours> levels, blocks;
  if (launch.local_world < launch.world) {
    levels = std::make_unique<Ours>(comm::make_launched(launch, launch.job, {}, nullptr), bytes);
    sides.push_back(levels->side("levels"));
    blocks = std::make_unique<Ours>(levels->communicator->duplicate("blocks"), bytes);
    sides.push_back(blocks->side("blocks", true));
  }
  bool same = true;
  for (int round = -2; round < rounds; ++round) {
    for (size_t i = 0; i < ranks * count; ++i) {
      // Small integers: their sums are exact in any order.
      const auto value = static_cast<float>((i + static_cast<size_t>(rank * 7 + round + 2)) % 1000);
      for (Side& side : sides) side.values[i] = value;
    }
    for (size_t turn = 0; turn < sides.size(); ++turn) {
      Side& side = sides[(turn + static_cast<size_t>(round + 2)) % sides.size()];
      const double sum = timed(side.sum), gather = timed(side.gather);
      if (round < 0) continue;
      side.sums.push_back(sum);
      side.gathers.push_back(gather);
    }
    for (const Side& side : sides) {
      same =
          same &&
          (side.in_blocks ? is_near(side.total, sides[0].total) : side.total == sides[0].total) &&
          std::memcmp(side.values, sides[0].values, ranks * bytes) == 0;
    }
  }
  int mine = same ? 1 : 0, all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(version, &length);
  if (rank == 0) {
    std::string text;
    for (const Side& side : sides) {
      text += ", \"" + side.name + "\": {\"sum\": " + list(side.sums) +
              ", \"gather\": " + list(side.gathers) + "}";
    }
    std::printf("{\"same\": %s, \"library\": \"%.17s\"%s}\n", all != 0 ? "true" : "false", version,
                text.c_str());
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
