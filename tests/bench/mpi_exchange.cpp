// SPDX-License-Identifier: Apache-2.0
// What an engine asks of MPI, in the same processes and in turn: the sum of float32 gradients for
// each rank's slice, and the gather of updated slices in place. Sides: "flat", a communicator of
// MPI alone; "bare", MPI_Reduce_scatter_block and MPI_Allgather of the same bytes; on several hosts
// also "levels", as otr_comm_from_env makes it, and "blocks", the same with gradients as 8-bit
// blocks between hosts. Over levels what an acquire gathers, too, of bfloat16 weights: "weights" as
// they are, "integers" as 8-bit integers. Rank 0 prints one line of JSON, of each side's longest
// rank in seconds.
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
#include "core/engine/gather_pieces.h"

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

// What an acquire at stage 3 does with one parameter, of which each rank has a slice.
class Weights {
 public:
  Weights(std::unique_ptr<comm::Communicator> group, size_t bytes, bool as_integers)
      : group_(std::move(group)),
        elements_{kernels::Format::bfloat16, as_integers ? &host_ : nullptr},
        count_(static_cast<int64_t>(bytes / sizeof(uint16_t))),
        mine_(static_cast<size_t>(count_)),
        all_(mine_.size() * static_cast<size_t>(world)),
        bounce_(host_, ledger_, config::Pin::off, as_integers ? engine::Bounce::kBytes : 0) {
    whole_.data = reinterpret_cast<std::byte*>(all_.data());
    for (int32_t slice = 0; slice < world; ++slice) {
      whole_.owners.push_back({slice, {0, slice * count_, count_, slice * count_, 0}});
    }
  }

  // From −500 to 499, so that the largest magnitude of every leaf is one of the largest of all.
  static uint16_t weight_of(int32_t slice, int64_t i) {
    const auto value = static_cast<float>((i * 5 + slice) % 1000 - 500);
    uint16_t stored = 0;
    kernels::convert(&stored, kernels::Format::bfloat16, &value, kFloat32, 1);
    return stored;
  }
  void fill() {
    for (int64_t i = 0; i < count_; ++i) {
      mine_[static_cast<size_t>(i)] = weight_of(group_->slice(), i);
    }
  }
  void gather() {
    size_t done = 0;
    const auto* const mine = reinterpret_cast<const std::byte*>(mine_.data());
    engine::gather_pieces(*group_, host_, bounce_, std::span(&whole_, 1), elements_,
                          {[mine](const layout::Piece&) { return mine; }}, "weights", done);
  }
  // As they are, or within half a 127th of the largest and what bfloat16 rounds, 2 in 512.
  [[nodiscard]] bool is_right() const {
    const bool as_integers = elements_.integers_by != nullptr;
    bool differs = false;
    for (size_t i = 0; i < all_.size(); ++i) {
      const auto slice = static_cast<int32_t>(static_cast<int64_t>(i) / count_);
      const uint16_t exact = weight_of(slice, static_cast<int64_t>(i) % count_);
      const uint16_t both[] = {all_[i], exact};
      float values[2];
      kernels::convert(values, kFloat32, both, kernels::Format::bfloat16, 2);
      if (std::abs(values[0] - values[1]) > (as_integers ? 4 : 0)) return false;
      differs = differs || both[0] != both[1];
    }
    return differs == as_integers;
  }
  std::vector<double> seconds;  // by round

 private:
  std::unique_ptr<comm::Communicator> group_;
  device::Host host_{nullptr};
  memory::Ledger ledger_;
  engine::Elements elements_;
  int64_t count_;
  std::vector<uint16_t> mine_, all_;
  engine::Bounce bounce_;
  engine::Whole whole_;
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
  std::vector<std::unique_ptr<Weights>> weights;
  if (launch.local_world < launch.world) {
    levels = std::make_unique<Ours>(comm::make_launched(launch, launch.job, {}, nullptr), bytes);
    sides.push_back(levels->side("levels"));
    blocks = std::make_unique<Ours>(levels->communicator->duplicate("blocks"), bytes);
    sides.push_back(blocks->side("blocks", true));
    for (const bool as_integers : {false, true}) {
      weights.push_back(std::make_unique<Weights>(levels->communicator->duplicate("weights"), bytes,
                                                  as_integers));
      weights.back()->fill();
    }
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
    for (size_t turn = 0; turn < weights.size(); ++turn) {
      Weights& side = *weights[(turn + static_cast<size_t>(round + 2)) % weights.size()];
      const double seconds = timed([&side] { side.gather(); });
      if (round >= 0) side.seconds.push_back(seconds);
      same = same && side.is_right();
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
    for (size_t i = 0; i < weights.size(); ++i) {
      text += std::string(i == 0 ? ", \"weights" : ", \"integers") +
              "\": {\"gather\": " + list(weights[i]->seconds) + "}";
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
