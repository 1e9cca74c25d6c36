// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/base/text.h"
#include "kernels/kernels.h"
#include "tests/engine/precision.h"

namespace outrigger::test {

using kernels::Format;
using kernels::Rounding;

namespace {

constexpr Format F32 = Format::float32;
constexpr Format B16 = Format::bfloat16;
constexpr Format F16 = Format::float16;
const std::vector<Precision> kPrecisions{
    {"float32", F32, F32, F32, F32, F32, Rounding::nearest, ""},
    {"bf16, float32 master", B16, F32, F32, F32, B16, Rounding::nearest,
     R"("bf16": {"enabled": true},)"},
    {"bf16, float32 master, float32 accumulator", B16, F32, F32, F32, F32, Rounding::nearest,
     R"("bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"},)"},
    {"bf16 master and states", B16, B16, B16, B16, B16, Rounding::nearest,
     R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true},)"},
    {"bf16 master, float32 states", B16, B16, F32, F32, B16, Rounding::nearest,
     R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true},)"},
    {"bf16 stochastic", B16, B16, B16, B16, B16, Rounding::stochastic,
     R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true},)",
     R"("states": {"master": {"rounding": "stochastic"}, "exp_avg": {"rounding": "stochastic"},
                   "exp_avg_sq": {"rounding": "stochastic"}},)"},
    {"split master, bf16 moments", B16, Format::split, B16, B16, B16, Rounding::stochastic,
     R"("bf16": {"enabled": true},)",
     R"("states": {"master": {"format": "split"}, "exp_avg": {"format": "bfloat16"},
                   "exp_avg_sq": {"format": "bfloat16"}},)"},
    {"bf16 master, 8-bit moments", B16, B16, Format::block8, Format::positive_block8, F32,
     Rounding::stochastic,
     R"("bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"},)",
     R"("states": {"master": {"format": "bfloat16"}, "exp_avg": {"format": "block8"},
                   "exp_avg_sq": {"format": "block8"}},)"},
    {"split master, 8-bit moments to nearest", B16, Format::split, Format::block8,
     Format::positive_block8, B16, Rounding::nearest, R"("bf16": {"enabled": true},)",
     R"("states": {"master": {"format": "split"},
                   "exp_avg": {"format": "block8", "rounding": "nearest"},
                   "exp_avg_sq": {"format": "block8", "rounding": "nearest"}},)"},
    {"fp16, float32 master", F16, F32, F32, F32, F16, Rounding::nearest,
     R"("fp16": {"enabled": true, "initial_scale_power": 3, "loss_scale_window": 2},)"},
    {"fp16, float32 master, float32 accumulator", F16, F32, F32, F32, F32, Rounding::nearest,
     R"("fp16": {"enabled": true, "initial_scale_power": 3, "loss_scale_window": 2},
        "data_types": {"grad_accum_dtype": "fp32"},)"},
    {"fp16 master", F16, F16, F32, F32, F16, Rounding::nearest,
     R"("fp16": {"enabled": true, "initial_scale_power": 3, "loss_scale_window": 2,
                 "fp16_master_weights_and_gradients": true},)"},
};
const std::vector<RuleCase> kRules{
    {"AdamW", "AdamW", "", true, true},
    {"Adagrad", "Adagrad", "", false, true},
    {"Lion", "Lion", "", true, false},
    {"SGD", "SGD", "", false, false},
    {"Nesterov", "SGD", R"(, "momentum": 0.9, "nesterov": true)", true, false},
    {"Lamb", "Lamb", R"(, "max_coeff": 1.5)", true, true},
    {"Muon", "Muon", "", true, true},
};

// The member of an object and a comma beside it taken out of the text.
void remove_member(std::string& text, const std::string& name) {
  const size_t at = text.find('"' + name + "\": {");
  if (at == std::string::npos) return;
  size_t end = text.find('}', at) + 1, begin = at;
  if (text[end] == ',') {
    ++end;
  } else {
    begin = text.rfind(',', at);
  }
  text.erase(begin, end - begin);
}

std::string states_of(const Case& c) {
  std::string text = precision_of(c).states;
  if (!rule_of(c).exp_avg) remove_member(text, "exp_avg");
  if (!rule_of(c).exp_avg_sq) remove_member(text, "exp_avg_sq");
  return text;
}

uint32_t hash(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t x = a * 0x9E3779B97F4A7C15u ^ b * 0xC2B2AE3D27D4EB4Fu ^ c * 0x165667B19E3779F9u;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 32;
  return static_cast<uint32_t>(x);
}
float noise(uint64_t a, uint64_t b, uint64_t c) {
  return static_cast<float>(static_cast<int32_t>(hash(a, b, c))) * 0x1p-31F;
}

ModelParameter parameter(std::string name, std::vector<int64_t> shape, bool trainable = true,
                         int64_t alias_of = -1) {
  static uint64_t serial = 1;
  const int64_t count =
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  ModelParameter p{std::move(name), std::move(shape), count, trainable, alias_of, {}};
  for (int64_t i = 0; i < count; ++i)
    p.initial.push_back(noise(serial, 99, static_cast<uint64_t>(i)));
  ++serial;
  return p;
}

}  // namespace

const Precision& precision_of(const Case& c) {
  return *std::find_if(kPrecisions.begin(), kPrecisions.end(),
                       [&](const Precision& p) { return c.precision == p.name; });
}

std::vector<std::string> precisions() {
  std::vector<std::string> names;
  for (const Precision& p : kPrecisions) names.emplace_back(p.name);
  return names;
}

const RuleCase& rule_of(const Case& c) {
  return *std::find_if(kRules.begin(), kRules.end(),
                       [&](const RuleCase& r) { return c.rule == r.name; });
}

std::vector<std::string> rules() {
  std::vector<std::string> names;
  for (const RuleCase& r : kRules) names.emplace_back(r.name);
  return names;
}

bool is_matrix(const Case& c, const ModelParameter& p) {
  return c.rule == "Muon" && p.shape.size() == 2 && p.count > 0;
}

bool keeps_exp_avg_sq(const Case& c, const ModelParameter& p) {
  return rule_of(c).exp_avg_sq && !is_matrix(c, p);
}

double loss_scale(const Case& c, int32_t window) {
  // Windows 0, 1 and 2 are clean; the third one lets the scale double, after its own update.
  return precision_of(c).compute != Format::float16 ? 1 : window < 3 ? 8 : 16;
}

bool legal(const Case& c) {
  const Precision& p = precision_of(c);
  const bool low = p.master == Format::bfloat16 || p.master == Format::float16;
  if (c.stage == 0 && low) return false;
  if (c.backend != "host" && c.shard != 0) return false;  // two levels
  if (c.on == On::offload_all && c.stage < 3) return false;
  const bool offloads = c.on == On::offload && c.ratio > 0;
  if (offloads && p.master == Format::split) return false;
  if (offloads && c.ratio < 1 && (c.rule == "Lamb" || c.rule == "Muon")) return false;
  // Keys about moments that nobody keeps.
  if (!rule_of(c).exp_avg && !rule_of(c).exp_avg_sq && p.exp_avg == Format::bfloat16) return false;
  if (!rule_of(c).exp_avg && p.exp_avg == Format::block8) return false;
  if (c.stage == 0 && offloads) return false;
  // DeepSpeed's rule: at stage 0 the accumulator has the model's dtype.
  return c.stage != 0 || p.accumulator == p.compute;
}

std::string config_of(const Case& c) {
  const Precision& p = precision_of(c);
  return outrigger::format_text(
      R"({{{} "gradient_clipping": {}, "gradient_accumulation_steps": {}, "train_micro_batch_size_per_gpu": 1,
      "optimizer": {{"type": "{}", "params": {{"lr": {}, "weight_decay": {}{}}}}},
      "zero_optimization": {{"stage": {}, "reduce_bucket_size": {}{},
                             "zero_quantized_gradients": {}, "stage3_max_live_parameters": {}}},
      "outrigger": {{{} "reduction_order": "{}", "bucket_buffers": {}, "workers": {}, "seed": {},
                     "unused_parameters": "{}", "share_parameters": {}, "mesh": {{"shard": {}, "states": "{}"}},
                     "exchange": {{"backend": "{}"}}}}}})",
      p.json, c.clip, c.form == Form::at_once ? 1 : c.accumulation, rule_of(c).type, c.lr, kDecay,
      rule_of(c).params, c.stage, c.bucket,
      c.on == On::offload
          ? outrigger::format_text(R"(, "offload_optimizer": {{"device": "cpu", "ratio": {}}})",
                                   c.ratio)
      : c.on == On::offload_all
          ? R"(, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"})"
          : "",
      c.quantised, c.live, states_of(c), c.order, c.buffers, c.workers, kSeed, c.unused, c.share,
      c.shard, c.divided ? "all" : "group", c.backend);
}

std::string text_of(const Case& c) {
  return outrigger::format_text(
      "{} world {} stage {} {} {} accumulation {} clip {} bucket {} buffers {} workers {} unused {}"
      "{}{}{}{} {} lr {}{}{}{}{}{}{}",
      name_of(c.provider), c.world, c.stage, c.precision, c.order, c.accumulation, c.clip, c.bucket,
      c.buffers, c.workers, c.unused, c.scramble ? " scrambled" : "",
      c.form == Form::callback  ? " callback"
      : c.form == Form::at_once ? " at once"
                                : "",
      c.on == On::device        ? " on a device"
      : c.on == On::offload     ? " on a device, offloaded"
      : c.on == On::offload_all ? " on a device, offloaded with its parameters"
                                : "",
      c.share ? "" : " with copies", c.rule, c.lr,
      c.hosts == 0 ? "" : outrigger::format_text(" hosts {}", c.hosts),
      c.shard == 0 ? ""
                   : outrigger::format_text(" shard {}{}", c.shard, c.divided ? " divided" : ""),
      c.ratio == 1 ? "" : outrigger::format_text(" ratio {}", c.ratio),
      c.backend == "host" ? "" : " by " + c.backend, c.quantised ? " quantised" : "",
      c.live == Case().live ? "" : outrigger::format_text(" live {}", c.live));
}

const std::vector<ModelParameter>& model_parameters() {
  static const std::vector<ModelParameter> kParameters{
      parameter("matrix", {7, 131}),              // 0: over several leaves, not divisible
      parameter("scalar", {}),                    // 1: smaller than any world
      parameter("empty", {0, 5}),                 // 2
      parameter("leaf", {256}),                   // 3: one leaf exactly
      parameter("frozen", {17}, false),           // 4
      parameter("tied", {33, 9}),                 // 5: shared with 8
      parameter("missing on some", {300}),        // 6
      parameter("unused in window 2", {5}),       // 7
      parameter("tied again", {33, 9}, true, 5),  // 8
      parameter("late", {1000}),                  // 9: one contribution more than declared
      parameter("vector", {3}),                   // 10
  };
  return kParameters;
}

std::vector<Contribution> contributions(int32_t rank, int32_t window, int32_t micro_step) {
  std::vector<Contribution> all;
  const auto give = [&](int64_t id, uint64_t salt) {
    const auto& p = model_parameters()[static_cast<size_t>(id)];
    Contribution c{id, {}};
    const uint64_t who = static_cast<uint64_t>(rank) * 1000 + static_cast<uint64_t>(window) * 10 +
                         static_cast<uint64_t>(micro_step);
    // Magnitudes over many binades, so that orders of addition show.
    for (int64_t i = 0; i < p.count; ++i) {
      const auto e = static_cast<uint64_t>(i);
      const int exponent = static_cast<int>(hash(who, e, salt) % 12) - 6;
      c.values.push_back(
          std::ldexp(noise(who, static_cast<uint64_t>(id) + 50 * salt, e), exponent));
    }
    all.push_back(std::move(c));
  };
  give(10, 1);
  give(9, 1);
  give(8, 1);
  if (window != 2) give(7, 1);
  if ((rank + micro_step) % 2 == 0) give(6, 1);
  give(5, 2);
  give(3, 1);
  if (rank == 0) give(9, 3);  // late
  give(2, 1);
  give(1, 1);
  give(0, 1);
  return all;
}

namespace {

otr_tensor tensor_of(const std::vector<int64_t>& shape, const std::vector<float>& values) {
  otr_tensor t;
  NEED(otr_tensor_init(const_cast<float*>(values.data()), "float32",
                       static_cast<int32_t>(shape.size()), const_cast<int64_t*>(shape.data()), &t));
  return t;
}

struct Owner {
  otr_engine* engine = nullptr;
  ~Owner() { otr_engine_destroy(engine); }
};

// Where a rank's tensors are.
struct Where {
  otr_context* context;
  otr_device device;
  [[nodiscard]] bool on_device() const { return device.device_type != OTR_DEVICE_CPU; }
};

// A copy of the tensor there; or the tensor itself.
class There {
 public:
  There(const Where& where, const otr_tensor& from, size_t bytes) : where_(where), tensor_(from) {
    if (!where.on_device() || bytes == 0) {
      tensor_.device = where.device;
      return;
    }
    tensor_.device = where.device;
    NEED(otr_device_allocate(where.context, where.device.device_type, where.device.device_id, bytes,
                             &tensor_.data));
    NEED(otr_tensor_copy(where.context, &tensor_, &from));
    owns_ = true;
  }
  ~There() {
    if (owns_)
      otr_device_free(where_.context, where_.device.device_type, where_.device.device_id,
                      tensor_.data);
  }
  There(const There&) = delete;
  There& operator=(const There&) = delete;
  [[nodiscard]] const otr_tensor* get() const { return &tensor_; }

 private:
  Where where_;
  otr_tensor tensor_;
  bool owns_ = false;
};

void declare(otr_engine* engine, int32_t rank, const Where& where) {
  for (const ModelParameter& p : model_parameters()) {
    otr_param_options options;
    NEED(otr_param_options_init(&options, sizeof options));
    options.trainable = p.trainable ? 1 : 0;
    options.alias_of = p.alias_of;
    std::vector<float> values = p.initial;
    if (rank != 0) std::fill(values.begin(), values.end(), 1000.0F);  // rank 0's win
    const otr_tensor initial = tensor_of(p.shape, values);
    int64_t id = -1;
    const bool half = model_parameters().size() % 2 == p.name.size() % 2;  // as tensors there
    const There there(half ? where : Where{where.context, {OTR_DEVICE_CPU, 0}}, initial,
                      values.size() * 4);
    NEED(otr_engine_add_parameter(engine, p.name.c_str(), there.get(), &options, &id));
  }
  NEED(otr_engine_commit(engine));
}

std::vector<Contribution> arriving(const Case& c, int32_t rank, int32_t window,
                                   int32_t micro_step) {
  std::vector<Contribution> all = contributions(rank, window, micro_step);
  if (!c.scramble) return all;
  // Contributions to one parameter keep their order: that is what bits depend on.
  std::stable_sort(all.begin(), all.end(), [&](const Contribution& a, const Contribution& b) {
    const auto salt = static_cast<uint64_t>(rank * 7 + window);
    const auto key = [&](int64_t id) {
      return hash(static_cast<uint64_t>(id == 8 ? 5 : id), salt, 3);
    };
    return key(a.id) < key(b.id);
  });
  return all;
}

Format format_of(const otr_tensor& tensor) {
  return tensor.dtype.code == OTR_DTYPE_BFLOAT ? Format::bfloat16
         : tensor.dtype.bits == 16             ? Format::float16
                                               : Format::float32;
}

void give(const Where& where, otr_pass* pass, const Contribution& contribution) {
  const auto& p = model_parameters()[static_cast<size_t>(contribution.id)];
  const otr_tensor grad = tensor_of(p.shape, contribution.values);
  if (contribution.id % 2 == 1 && p.count > 0) {  // half of them through slots
    otr_tensor slot;
    NEED(otr_pass_get_slot(pass, contribution.id, &slot));
    const Format format = format_of(slot);
    std::vector<std::byte> values(static_cast<size_t>(p.count) * kernels::size_of(format));
    kernels::convert(values.data(), format, contribution.values.data(), Format::float32, p.count);
    otr_tensor here = slot;
    here.device = {OTR_DEVICE_CPU, 0};
    here.data = values.data();
    NEED(otr_tensor_copy(where.context, &slot, &here));
    NEED(otr_pass_add_grad(pass, contribution.id, &slot, nullptr));
    return;
  }
  const There there(where, grad, contribution.values.size() * 4);
  NEED(otr_pass_add_grad(pass, contribution.id, there.get(), nullptr));
}

struct Arrival {
  Where where;
  std::vector<Contribution> all;
};
int32_t give_all(otr_pass* pass, const otr_tensor*, int64_t, void* user) {
  const auto& arrival = *static_cast<Arrival*>(user);
  for (const Contribution& c : arrival.all) give(arrival.where, pass, c);
  return 0;
}

void one_pass(otr_engine* engine, const Case& c, const Where& where, int32_t rank, int32_t window,
              int32_t micro_step) {
  Arrival all{where, arriving(c, rank, window, micro_step)};
  if (c.form == Form::callback) {
    NEED(otr_engine_backward(engine, nullptr, 0, nullptr, give_all, &all));
    return;
  }
  otr_pass* pass = nullptr;
  NEED(otr_pass_begin(engine, nullptr, 0, nullptr, &pass));
  give_all(pass, nullptr, 0, &all);
  NEED(otr_pass_end(pass));
  otr_pass_destroy(pass);
}

// All passes of a window open at a time. Where passes are added up as they come, contributions keep
// the order of the passes; where each pass is summed by itself, they come from all in turn.
void passes_at_once(otr_engine* engine, const Case& c, const Where& where, int32_t rank,
                    int32_t window) {
  std::vector<otr_pass*> passes(static_cast<size_t>(c.accumulation));
  std::vector<Arrival> all;
  for (int32_t i = 0; i < c.accumulation; ++i) {
    NEED(otr_pass_begin(engine, nullptr, 0, nullptr, &passes[static_cast<size_t>(i)]));
    all.push_back({where, arriving(c, rank, window, i)});
  }
  if (c.order == "boundary") {
    for (size_t i = 0; i < passes.size(); ++i) give_all(passes[i], nullptr, 0, &all[i]);
  } else {
    for (size_t k = 0; k < all[0].all.size() + 2; ++k) {
      for (size_t i = passes.size(); i-- > 0;) {
        if (k < all[i].all.size()) give(where, passes[i], all[i].all[k]);
      }
    }
  }
  for (size_t i = passes.size(); i-- > 0;) {  // the last one ends first
    NEED(otr_pass_end(passes[i]));
    otr_pass_destroy(passes[i]);
  }
}

// What an acquire shows, of every other one by way of a float32 copy.
std::vector<float> shown(otr_engine* engine, int64_t id, const Where& where) {
  const auto& p = model_parameters()[static_cast<size_t>(id)];
  std::vector<float> values(static_cast<size_t>(p.count));
  otr_tensor there;
  otr_call_info info;
  NEED(otr_call_info_init(&info, sizeof info));
  info.flags = id % 2 == 0 ? OTR_ACQUIRE_FLOAT32 : 0;
  NEED(otr_engine_acquire(engine, &id, 1, &info, &there));
  std::vector<std::byte> stored(values.size() * 4);
  otr_tensor here = there;
  here.device = {OTR_DEVICE_CPU, 0};
  here.data = stored.data();
  if (p.count > 0) NEED(otr_tensor_copy(where.context, &here, &there));
  NEED(otr_engine_release(engine, &id, 1, nullptr));
  kernels::convert(values.data(), Format::float32, stored.data(), format_of(there), p.count);
  return values;
}

std::vector<float> read(otr_engine* engine, int64_t id, int32_t value) {
  const auto& p = model_parameters()[static_cast<size_t>(id)];
  std::vector<float> values(static_cast<size_t>(p.count));
  const otr_tensor out = tensor_of(p.shape, values);
  NEED(otr_engine_parameter_read(engine, id, value, &out));
  return values;
}

}  // namespace

Trained train(const Case& c, int32_t rank, otr_context* context, otr_comm* comm, Create create) {
  Owner owner;
  const Levels levels(comm, c.world, c.hosts);
  NEED(create(levels.comm(), config_of(c).c_str(), &owner.engine));
  Where where{context, {OTR_DEVICE_CPU, 0}};
  if (c.on != On::cpu) {
    where.device = {OTR_DEVICE_EXTENSION, rank};
    NEED(otr_context_load_plugin(context, "simulated"));
    NEED(otr_engine_set_device(owner.engine, where.device.device_type, where.device.device_id));
  }
  declare(owner.engine, rank, where);
  Trained trained;
  for (int32_t window = 0; window < kWindows; ++window) {
    // What the device has of the parameters of one window is nothing to the next.
    for (int64_t id = 0; c.on == On::offload_all && id < std::ssize(model_parameters()); ++id) {
      shown(owner.engine, id, where);
    }
    otr_step_report report{};
    report.struct_size = sizeof report;
    const bool at_once = c.form == Form::at_once;
    if (at_once) passes_at_once(owner.engine, c, where, rank, window);
    for (int32_t micro_step = 0; !at_once && micro_step < c.accumulation; ++micro_step) {
      one_pass(owner.engine, c, where, rank, window, micro_step);
      if (micro_step + 1 < c.accumulation) NEED(otr_engine_step(owner.engine, &report));
    }
    NEED(otr_engine_step(owner.engine, &report));
    if (report.outcome != OTR_STEP_APPLIED) throw std::runtime_error("a step was not applied");
    trained.norms.push_back(report.grad_norm);
    trained.clips.push_back(report.clip_coefficient);
    trained.updates.push_back(report.updates);
    trained.vanished.push_back(report.vanished);
  }
  for (size_t id = 0; id < model_parameters().size(); ++id) {
    Trained::Values v;
    const auto i = static_cast<int64_t>(id);
    v.published = c.on == On::offload_all ? shown(owner.engine, i, where)
                                          : read(owner.engine, i, OTR_VALUE_PUBLISHED);
    if (model_parameters()[id].trainable) {
      v.master = read(owner.engine, i, OTR_VALUE_MASTER);
      if (rule_of(c).exp_avg) v.exp_avg = read(owner.engine, i, OTR_VALUE_EXP_AVG);
      if (keeps_exp_avg_sq(c, model_parameters()[id])) {
        v.exp_avg_sq = read(owner.engine, i, OTR_VALUE_EXP_AVG_SQ);
      }
    }
    trained.parameters.push_back(std::move(v));
  }
  NEED(otr_engine_finalize(owner.engine));
  return trained;
}

Bytes Trained::bytes() const {
  Bytes bytes;
  const auto put = [&](const auto& values) {
    const auto* begin = reinterpret_cast<const unsigned char*>(values.data());
    bytes.insert(bytes.end(), begin, begin + values.size() * sizeof(values[0]));
  };
  for (const auto& list : {norms, clips}) put(list);
  for (const auto& list : {updates, vanished}) put(list);
  for (const Values& v : parameters) {
    for (const auto* list : {&v.published, &v.master, &v.exp_avg, &v.exp_avg_sq}) put(*list);
  }
  return bytes;
}

std::string first_difference(const Bytes& got, const Bytes& expected) {
  if (got.size() != expected.size())
    return outrigger::format_text("{} bytes instead of {}", got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] != expected[i]) return outrigger::format_text("byte {} of {}", i, got.size());
  }
  return "";
}

}  // namespace outrigger::test
