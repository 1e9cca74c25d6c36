// SPDX-License-Identifier: Apache-2.0
// One drawn composition on one rank: engines of different scale, accumulation and group in a chain,
// and each way the header has to take gradients through them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "composition_model.h"

namespace otr_test {

// How one engine is set up.
struct Setup {
  std::string config;
  int32_t accumulation = 1;
  bool counted = false;      // "accumulation_divisor"
  bool by_caller = false;    // who ends windows
  bool offload = false;      // on a device: accumulators and states in host memory
  bool offload_all = false;  // … and parameters
  bool own_group = false;    // a group of one on each rank
  bool sum = false;          // "gradient_allreduce_op"
  double scale = 1;          // the largest it may come to
  double clip = 0;
  double rounding = 0x1p-22;  // of a contribution, relative
  bool twice = false, alias = false, declared = false;
};
[[nodiscard]] Setup draw_setup(Random& random, int32_t world, double clip, bool on_device);

// Where an engine's tensors are: the CPU, or a device whose memory the host only copies.
struct Place {
  otr_context* context;
  otr_device device{OTR_DEVICE_CPU, 0};
  [[nodiscard]] bool on_device() const { return device.device_type != OTR_DEVICE_CPU; }
  [[nodiscard]] Values values(const otr_tensor& there) const;
  void fill(const otr_tensor& there, const Values& values) const;
};

// A tensor of the host as one of the place: itself, or a copy.
class Moved {
 public:
  Moved(const Place& place, const Tensor& tensor);
  ~Moved();
  Moved(const Moved&) = delete;
  Moved& operator=(const Moved&) = delete;
  const otr_tensor* operator&() const { return &tensor_; }  // NOLINT(google-runtime-operator)
  [[nodiscard]] const otr_tensor& get() const { return tensor_; }
  void assign(const Values& values) { place_.fill(tensor_, values); }

 private:
  Place place_;
  otr_tensor tensor_;
};

// What the ranks tell each other beside the engines.
class Board {
 public:
  // One rank's share of the mean gradient of one parameter, and how wrong rounding may make it.
  struct Sum {
    Values mean;
    double bound = 0;
  };
  using Sums = std::vector<std::vector<Sum>>;  // by engine, parameter

  explicit Board(otr_comm* comm);                                    // collective
  [[nodiscard]] std::vector<Sums> exchange(const Sums& mine) const;  // by rank; collective
  [[nodiscard]] otr_comm* comm() const { return comm_.get(); }

 private:
  Owned<otr_comm> comm_;
  int32_t world_ = 0;
};

// The forms that a composition met, and how often.
using Forms = std::map<std::string, int32_t>;

// Runs on every rank, with the same seed; compares every gradient and every weight. Returns the
// forms, on rank 0.
[[nodiscard]] Forms run_composition(uint64_t seed, int32_t rank, int32_t world, const Place& place,
                                    otr_comm* comm);

}  // namespace otr_test
