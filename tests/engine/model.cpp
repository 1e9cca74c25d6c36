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

namespace {

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
  std::vector<std::vector<float>> beside_step;  // what acquires show while the last one is pending
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
    const bool is_last = window + 1 == kWindows;
    const bool begun = is_last && rank % 2 == 0;
    NEED(begun ? otr_engine_step_begin(owner.engine) : otr_engine_step(owner.engine, &report));
    for (int64_t id = 0; is_last && id < std::ssize(model_parameters()); ++id) {
      beside_step.push_back(shown(owner.engine, id, where));
    }
    if (begun) NEED(otr_engine_report(owner.engine, -1, &report));
    if (report.outcome != OTR_STEP_APPLIED) throw std::runtime_error("a step was not applied");
    trained.norms.push_back(report.grad_norm);
    trained.clips.push_back(report.clip_coefficient);
    trained.updates.push_back(report.updates);
    trained.vanished.push_back(report.vanished);
  }
  for (size_t id = 0; id < model_parameters().size(); ++id) {
    Trained::Values v;
    const auto i = static_cast<int64_t>(id);
    v.published = c.on == On::offload_all && !c.in_integers
                      ? shown(owner.engine, i, where)
                      : read(owner.engine, i, OTR_VALUE_PUBLISHED);
    const int64_t alias = model_parameters()[id].alias_of;
    const bool trainable =
        model_parameters()[alias < 0 ? id : static_cast<size_t>(alias)].trainable;
    if (beside_step[id] != shown_of(c, trainable, v.published)) {
      throw std::runtime_error("an acquire beside the step has not shown what it left");
    }
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
