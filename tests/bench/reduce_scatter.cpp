// SPDX-License-Identifier: Apache-2.0
// Reduce-scatter of bfloat16 over a shared-memory window, as the engine does it (without the norm);
// scripts/bench/peers/gloo_reduce_scatter.py is the same for gloo.
//   bench_reduce_scatter RANK WORLD JOB BYTES BUFFERS
#include <array>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "kernels/kernels.h"
#include "tests/bench/numbers.h"
#include "tests/bench/worker.h"

namespace {

using outrigger::kernels::Format;

constexpr size_t kStride = 97;

class ReduceScatter {
 public:
  ReduceScatter(int32_t rank, int32_t world, std::string job, size_t bytes, size_t buffers)
      : rank_(rank), world_(world), job_(std::move(job)), bytes_(bytes), tickets_(buffers) {}

  void setup() {
    comm_ = outrigger::comm::make_shm(rank_, world_, job_, {});
    window_ = comm_->create_window(outrigger::comm::WindowKind::per_rank, bytes_ * tickets_.size(),
                                   "inputs");
    for (size_t b = 0; b < tickets_.size(); b++) {
      auto* input = reinterpret_cast<uint16_t*>(window_->block(rank_) + b * bytes_);
      fill_bf16(input, static_cast<uint32_t>(10 * static_cast<size_t>(rank_) + b), bytes_ / 2, 64);
      outputs_.emplace_back(static_cast<uint16_t*>(bench_allocate(slice_bytes())), &std::free);
      if (outputs_.back() == nullptr) throw std::bad_alloc();
    }
    comm_->barrier("setup");
  }

  // A buffer is overwritten by nobody here, but a framework would: so its turn waits for all
  // readers.
  void prepare() {
    if (tickets_[turn()] != 0) comm_->wait_drained(tickets_[turn()], "reuse");
    comm_->barrier("prepare");
  }

  void work() {
    const auto slices = comm_->exchange(*window_, turn() * bytes_, slice_bytes(), "reduce");
    outrigger::kernels::fold({.sources = slices.data(),
                              .world = world_,
                              .source_format = Format::bfloat16,
                              .accumulator = outputs_[turn()].get(),
                              .accumulator_format = Format::bfloat16,
                              .count = static_cast<int64_t>(slice_bytes() / 2)});
    tickets_[turn()] = comm_->end_exchange();
    calls_++;
  }

  void write_outputs(const char* folder) {
    std::vector<float> sampled;
    for (const auto& output : outputs_) {
      for (size_t i = 0; i < slice_bytes() / 2; i += kStride)
        sampled.push_back(float_of(output.get()[i]));
    }
    const std::string name = "outrigger." + std::to_string(rank_);
    if (bench_write_samples(folder, name.c_str(), sampled.data(), sampled.size()) != 0) {
      throw std::runtime_error("the sums could not be written to " + std::string(folder));
    }
  }

  [[nodiscard]] size_t buffers() const { return tickets_.size(); }

 private:
  [[nodiscard]] size_t turn() const { return calls_ % tickets_.size(); }
  [[nodiscard]] size_t slice_bytes() const { return bytes_ / static_cast<size_t>(world_); }

  int32_t rank_, world_;
  std::string job_;
  size_t bytes_, calls_ = 0;
  std::unique_ptr<outrigger::comm::Communicator> comm_;
  std::shared_ptr<outrigger::comm::Window> window_;
  std::vector<std::unique_ptr<uint16_t, decltype(&std::free)>> outputs_;
  std::vector<uint64_t> tickets_;
};

template <typename Body>
int guarded(void* self, Body body) {
  try {
    body(*static_cast<ReduceScatter*>(self));
    return 0;
  } catch (const std::exception& error) {
    return bench_fail("%s", error.what());
  }
}

int setup(void* self, char* facts) {
  return guarded(self, [facts](ReduceScatter& bench) {
    bench.setup();
    snprintf(facts, BENCH_FACTS, "{\"simd\": \"%s\"}", outrigger::kernels::simd_name());
  });
}

int check(void* self, const char* folder, char*) {
  return guarded(self, [folder](ReduceScatter& bench) {
    for (size_t b = 0; b < bench.buffers(); b++) bench.work();
    bench.write_outputs(folder);
  });
}

int prepare(void* self) {
  return guarded(self, [](ReduceScatter& bench) { bench.prepare(); });
}

int work(void* self) {
  return guarded(self, [](ReduceScatter& bench) { bench.work(); });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const auto number = [argv](int index) { return std::strtoull(argv[index], nullptr, 10); };
  ReduceScatter bench(static_cast<int32_t>(number(1)), static_cast<int32_t>(number(2)), argv[3],
                      number(4), number(5));
  const bench_worker worker = {&bench, setup, nullptr, check, prepare, work, nullptr};
  return bench_serve(&worker);
}
