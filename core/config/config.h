// SPDX-License-Identifier: Apache-2.0
// A checked configuration: every value decided, every origin known.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/schedule.h"
#include "kernels/kernels.h"

namespace outrigger::config {

using kernels::Format;
using kernels::Rounding;

enum class Order : uint8_t { micro_step, boundary };  // when gradients are reduced over ranks
enum class Unused : uint8_t { skip, zero };           // a parameter without gradient on all ranks
enum class EngineKind : uint8_t { cpu, device };      // where parameters and gradients live
// First values: rank 0's count, must equal everyone's, or count where a rank has others than it.
enum class Initial : uint8_t { rank0, verify, compare };
// Page-locking of host memory that a device copies from and to.
enum class Pin : uint8_t { off, prefer, require };
// What moves a device's memory between ranks.
enum class Backend : uint8_t { host, nccl };

struct StateFormat {
  Format format = Format::float32;
  Rounding rounding = Rounding::nearest;
};

// See core/optimizer/outliers.h.
struct OutlierNorms {
  int64_t window = 0;  // 0: none is skipped
  double deviations = 6;
};

struct OptimizerConfig {
  std::string type = "AdamW";  // as in the key table; "Adam": L2, "AdamW": decoupled
  bool host = false;           // the host updates the weights and keeps what states it needs
  kernels::Rule rule = kernels::Rule::adam;  // unless host
  bool decoupled = true;
  bool bias_correction = true;
  bool nesterov = false;
  ScheduleConfig schedule;  // lr is then what it scales, if it does
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  double momentum = 0, dampening = 0;  // SGD, Muon: momentum
  // Muon: those of parameters that are no matrices, which AdamW updates, or Adam.
  double adam_lr = 0;
  bool adam_lr_follows = false;  // lr, where that is set
  bool adam_decoupled = true;
  std::vector<std::string> adam_parameters;  // in lower case; matrices whose name contains one, too
  int32_t ns_steps = 5;                      // Muon: Newton-Schulz iterations
  bool matches_adam = false;                 // Muon: lr is scaled to the size of AdamW's updates
  // Muon: whether a parameter is updated as a matrix.
  [[nodiscard]] bool is_matrix(std::string_view name, size_t dimensions) const;
  // What Muon does to the others.
  [[nodiscard]] OptimizerConfig elementwise() const;
  double min_coeff = 0.01, max_coeff = 10;  // LAMB: bounds of the trust ratio
  [[nodiscard]] bool keeps_exp_avg() const {
    return !host && kernels::has_exp_avg(rule, momentum != 0);
  }
  // With Muon: of parameters that are no matrices.
  [[nodiscard]] bool keeps_exp_avg_sq() const {
    return !host && (rule == kernels::Rule::muon || kernels::has_exp_avg_sq(rule));
  }
  StateFormat master, exp_avg, exp_avg_sq;
  // parse_optimizer: whether the text gives the master's format. If not, it follows the weights
  // that come later, and master.rounding holds for bfloat16 ones.
  bool master_given = false;
  double gradient_clipping = 0;
  OutlierNorms outliers;
  double clip_value = 0;       // largest magnitude of a gradient's element; 0: any
  bool check_overflow = true;  // parse_optimizer's; an engine's is in EngineConfig
  uint64_t seed = 0;
  std::vector<std::string> warnings;  // parse_optimizer's; in an engine they stand in EngineConfig
};

// DeepSpeed's rules; see core/optimizer/loss_scaler.h.
struct LossScaling {
  double initial = 1;  // the loss scale of the first window, and of all if it is not dynamic
  bool dynamic = false;
  int64_t window = 1000, hysteresis = 2;
  bool consecutive_hysteresis = false;
  double minimum = 1, maximum = 0x1p126;
};

struct EngineConfig {
  int32_t stage = 0;
  Format compute = Format::float32;      // published parameters, slots, buckets
  Format accumulator = Format::float32;  // data_types.grad_accum_dtype
  OptimizerConfig optimizer;
  LossScaling loss_scaling;
  int32_t accumulation_steps = 1;  // gradient_accumulation_steps
  // At the step, not as output gradients are scaled; then by the steps counted, or by
  // accumulation_steps.
  bool divide_at_step = false;
  bool divide_by_counted = false;
  bool average = true;  // gradient_allreduce_op: mean
  Order order = Order::boundary;
  int64_t bucket_elements = 0;  // reduce_bucket_size
  bool bucket_was_set = false;  // … by the user
  int32_t bucket_buffers = 4;
  int32_t workers = 0;  // 0: the context's
  Unused unused = Unused::skip;
  Initial initial = Initial::rank0;
  bool round_initial = false;         // to the compute dtype
  bool share_parameters = true;       // by ranks that share memory
  bool check_overflow = true;         // skip the step on Inf/NaN
  int32_t shard = 0;                  // outrigger.mesh.shard; 0: all ranks
  bool divide_states = false;         // over all ranks, whatever the shard
  bool asynchronous_saves = false;    // outrigger.checkpoint.asynchronous
  Pin pin = Pin::prefer;              // outrigger.host_memory.pin
  Pin pin_params = Pin::prefer;       // … of offloaded parameters
  Backend backend = Backend::host;    // outrigger.exchange.backend
  bool library_sums = false;          // outrigger.exchange.reduction: "nccl"
  bool quantised_gradients = false;   // ranks send 8-bit blocks of them
  bool quantised_weights = false;     // acquires gather 8-bit integers; at stage 3 only
  bool offload_optimizer = false;     // accumulators, master and moments in host memory …
  double offload_ratio = 1;           // … of this part of the elements
  bool offload_params = false;        // a device's parameters are in host memory until acquired …
  int64_t live_elements = 0;          // … and stay there after it up to so many, acquired included
  std::string effective_json;         // every key with value and origin
  std::vector<std::string> warnings;  // for the log, one line each
};

// How many ranks a group has among so many: those that together have all parameters. Throws
// OTR_E_CONFIG where their number does not fit the mesh. One rank cuts nothing, whatever the mesh.
[[nodiscard]] int32_t shard_of(const EngineConfig& config, int32_t world);

// Throws OTR_E_CONFIG (path, line, remedy) or OTR_E_UNSUPPORTED (legal, not built). Empty text:
// defaults.
[[nodiscard]] EngineConfig parse_engine(std::string_view json, int32_t world,
                                        EngineKind kind = EngineKind::cpu);
[[nodiscard]] OptimizerConfig parse_optimizer(std::string_view json);

// Sets a hyperparameter by its public name with the range check of the parser. Throws
// OTR_E_NOT_FOUND, OTR_E_ARGUMENT, OTR_E_STATE (the schedule sets it).
void set_hyperparameter(OptimizerConfig& optimizer, std::string_view name, double value);
[[nodiscard]] double get_hyperparameter(const OptimizerConfig& optimizer, std::string_view name);
// Those that can be set now: neither a schedule sets them, nor do they follow another one.
[[nodiscard]] std::vector<std::string_view> free_hyperparameters(const OptimizerConfig& optimizer);

}  // namespace outrigger::config
