// SPDX-License-Identifier: Apache-2.0
// A small model of awkward parameters with made-up gradients, trained through the C API, and the
// same training written down plainly from the contract's formulas: whole parameters, no buckets, no
// ranks.
#pragma once

#include <string>
#include <vector>

#include "tests/engine/ranks.h"

namespace outrigger::test {

enum class Form : uint8_t { pass, callback, at_once };
// Where parameters and gradients are, and accumulators and states; offload_all: a device's
// parameters are on the host, too, until they are acquired.
enum class On : uint8_t { cpu, device, offload, offload_all };

struct Case {
  Provider provider = Provider::self;
  int32_t world = 1;
  int32_t stage = 0;
  std::string precision = "float32";  // see precisions()
  std::string order = "boundary";     // or "micro_step"
  int32_t accumulation = 1;
  double clip = 0;
  int64_t bucket = 1 << 20;  // elements
  int32_t buffers = 2;
  int32_t workers = 1;
  std::string unused = "skip";
  bool scramble = false;  // gradients arrive in an order of their own on each rank
  Form form = Form::pass;
  On on = On::cpu;
  bool share = true;           // "share_parameters"
  std::string rule = "AdamW";  // see rules()
  double lr = 0.01;
  int32_t hosts = 0;             // over a hierarchical communicator of so many; 0: of one level
  int32_t shard = 0;             // outrigger.mesh.shard
  bool divided = false;          // "states": "all"
  double ratio = 1;              // with offload: the part that is
  std::string backend = "host";  // outrigger.exchange.backend
  bool quantised = false;        // zero_quantized_gradients
  bool in_integers = false;      // zero_quantized_weights
  int64_t live = 1 << 30;        // stage3_max_live_parameters
};
// What an acquire shows of these published values of a parameter.
[[nodiscard]] std::vector<float> shown_of(const Case& c, bool trainable, std::vector<float> values);
inline constexpr double kDecay = 0.1;
[[nodiscard]] std::vector<std::string> precisions();
[[nodiscard]] std::vector<std::string> rules();
[[nodiscard]] double loss_scale(const Case& c, int32_t window);
[[nodiscard]] bool legal(const Case& c);
[[nodiscard]] std::string config_of(const Case& c);
[[nodiscard]] std::string text_of(const Case& c);

// One gradient that a rank hands over.
struct Contribution {
  int64_t id;
  std::vector<float> values;
};

struct ModelParameter {
  std::string name;
  std::vector<int64_t> shape;
  int64_t count;
  bool trainable;
  int64_t alias_of;
  std::vector<float> initial;
};
[[nodiscard]] const std::vector<ModelParameter>& model_parameters();
[[nodiscard]] bool is_matrix(const Case& c, const ModelParameter& p);  // for Muon
[[nodiscard]] bool keeps_exp_avg_sq(const Case& c, const ModelParameter& p);
inline constexpr int32_t kWindows = 4;
// What a rank contributes in one pass, in order. Some ranks miss some parameters; one parameter is
// unused in one window; one gets a contribution more than declared.
[[nodiscard]] std::vector<Contribution> contributions(int32_t rank, int32_t window,
                                                      int32_t micro_step);

// What all ranks contribute to a parameter in a window, its aliases' included: [pass][rank][…].
[[nodiscard]] std::vector<std::vector<std::vector<std::vector<float>>>> collect(const Case& c,
                                                                                int64_t root,
                                                                                int32_t window);

// Everything that training leaves behind, as float32 and float64 bit patterns.
struct Trained {
  struct Values {
    std::vector<float> published, master, exp_avg, exp_avg_sq;
  };
  std::vector<Values> parameters;
  std::vector<double> norms, clips;        // per window
  std::vector<int64_t> updates, vanished;  // per window
  [[nodiscard]] Bytes bytes() const;
};

// create: makes the engine.
using Create = int32_t (*)(otr_comm* comm, const char* config_json, otr_engine** out_engine);
[[nodiscard]] Trained train(const Case& c, int32_t rank, otr_context* context, otr_comm* comm,
                            Create create = otr_engine_create);
[[nodiscard]] Trained simulate(const Case& c);

// Where two results first differ, for a failure's text.
[[nodiscard]] std::string first_difference(const Bytes& got, const Bytes& expected);

}  // namespace outrigger::test
