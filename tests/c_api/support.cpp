// SPDX-License-Identifier: Apache-2.0
#include "support.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <thread>

namespace otr_test {

testing::AssertionResult succeeded(int32_t status) {
  const std::string text = otr_last_error_message();
  if (status != OTR_OK) {
    return testing::AssertionFailure() << otr_status_name(status) << ": " << text;
  }
  if (!text.empty()) return testing::AssertionFailure() << "a success left the text: " << text;
  return testing::AssertionSuccess();
}

testing::AssertionResult failed(int32_t expected, int32_t status,
                                std::initializer_list<std::string_view> parts) {
  const std::string text = otr_last_error_message();
  if (status != expected) {
    return testing::AssertionFailure() << "expected " << otr_status_name(expected) << ", got "
                                       << otr_status_name(status) << ": " << text;
  }
  if (text.empty())
    return testing::AssertionFailure() << otr_status_name(status) << " without a text";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      return testing::AssertionFailure() << "the text is not one line: " << text;
    }
  }
  for (const std::string_view part : parts) {
    if (text.find(part) == std::string::npos) {
      return testing::AssertionFailure() << "\"" << part << "\" is not in: " << text;
    }
  }
  return testing::AssertionSuccess();
}

// ---- Tensors
// --------------------------------------------------------------------------------------

namespace {

// value rounded to nearest even with `bits` bits of precision and the least exponent `least`.
double round_bits(double value, int bits, int least) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), least) - (bits - 1);
  return std::ldexp(std::nearbyint(std::ldexp(value, -exponent)), exponent);
}

double half_value(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double fraction = bits & 1023;
  double value =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31) value = fraction == 0 ? HUGE_VAL : std::nan("");
  return (bits & 0x8000) != 0 ? -value : value;
}

uint16_t half_bits(double value) {  // of a value that is a float16
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double size = std::fabs(value);
  if (std::isnan(size)) return 0x7e00;
  if (size > 65504) return sign | 0x7c00;
  if (size < 0x1p-14) return static_cast<uint16_t>(sign | static_cast<int>(size * 0x1p24));
  const int exponent = std::ilogb(size);
  const int fraction = static_cast<int>(std::ldexp(size, 10 - exponent)) - 1024;
  return static_cast<uint16_t>(sign | ((exponent + 15) << 10) | fraction);
}

char* address(const otr_tensor& t, int64_t index) {
  int64_t offset = 0;
  int64_t expected = 1;
  for (int32_t d = t.ndim; d-- > 0;) {
    const int64_t stride = t.strides == nullptr ? expected : t.strides[d];
    offset += index % t.shape[d] * stride;
    index /= t.shape[d];
    expected *= t.shape[d];
  }
  return static_cast<char*>(t.data) + t.byte_offset + offset * (t.dtype.bits / 8);
}

}  // namespace

int64_t count_of(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

float round_to(const char* dtype, double value) {
  const std::string_view name = dtype;
  if (name == "bfloat16") return static_cast<float>(round_bits(value, 8, -126));
  if (name == "float16") return static_cast<float>(round_bits(value, 11, -14));
  return static_cast<float>(value);
}

double value_at(const otr_tensor& t, int64_t index) {
  const char* from = address(t, index);
  if (t.dtype.bits == 64) {
    double value = 0;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  if (t.dtype.bits == 32) {
    float value = 0;
    std::memcpy(&value, from, sizeof value);
    return static_cast<double>(value);
  }
  uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  if (t.dtype.code == OTR_DTYPE_FLOAT) return half_value(bits);
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return static_cast<double>(value);
}

void set_value(const otr_tensor& t, int64_t index, double value) {
  char* to = address(t, index);
  if (t.dtype.bits == 64) {
    std::memcpy(to, &value, sizeof value);
    return;
  }
  if (t.dtype.bits == 32) {
    const auto narrow = static_cast<float>(value);
    std::memcpy(to, &narrow, sizeof narrow);
    return;
  }
  uint16_t bits = 0;
  if (t.dtype.code == OTR_DTYPE_FLOAT) {
    bits = half_bits(static_cast<double>(round_to("float16", value)));
  } else {
    const float narrow = round_to("bfloat16", value);
    uint32_t wide = 0;
    std::memcpy(&wide, &narrow, sizeof wide);
    bits = static_cast<uint16_t>(wide >> 16);
  }
  std::memcpy(to, &bits, sizeof bits);
}

Values values_of(const otr_tensor& t) {
  Values values(static_cast<size_t>(count_of(Shape(t.shape, t.shape + t.ndim))));
  for (size_t i = 0; i < values.size(); ++i) values[i] = value_at(t, static_cast<int64_t>(i));
  return values;
}

Tensor::Tensor(const Shape& shape, const Values& row_major, const char* dtype, const Shape& strides)
    : shape_(shape), strides_(strides) {
  EXPECT_EQ(count_of(shape), static_cast<int64_t>(row_major.size()));
  EXPECT_OK(otr_tensor_init(nullptr, dtype, static_cast<int32_t>(shape_.size()), shape_.data(),
                            &tensor_));
  int64_t lowest = 0;
  int64_t highest = count_of(shape) - 1;
  if (!strides_.empty()) {
    highest = 0;
    for (size_t d = 0; d < shape_.size(); ++d) {
      (strides_[d] < 0 ? lowest : highest) += (shape_[d] - 1) * strides_[d];
    }
    tensor_.strides = strides_.data();
  }
  const int64_t size = tensor_.dtype.bits / 8;
  // NaN everywhere between the elements: nobody may read there.
  memory_.assign(static_cast<size_t>(((highest - lowest + 1) * size + 15) / 8), ~uint64_t{0});
  tensor_.data = memory_.data();
  tensor_.byte_offset = static_cast<uint64_t>(-lowest * size);
  for (size_t i = 0; i < row_major.size(); ++i)
    set_value(tensor_, static_cast<int64_t>(i), row_major[i]);
}

Tensor Tensor::filled(const Shape& shape, double value, const char* dtype) {
  return {shape, Values(static_cast<size_t>(count_of(shape)), value), dtype};
}

Values dyadic(int64_t count, int64_t seed) {
  Values values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>((static_cast<int64_t>(i) * 7 + seed * 5) % 31 - 15) / 16;
  }
  return values;
}

// ---- Objects
// --------------------------------------------------------------------------------------

Owned<otr_context> make_context(int32_t workers, otr_interrupt_callback interrupt,
                                void* user_data) {
  otr_context_options options;
  EXPECT_OK(otr_context_options_init(&options, sizeof options));
  options.workers = workers;
  options.interrupt_callback = interrupt;
  options.interrupt_user_data = user_data;
  otr_context* context = nullptr;
  EXPECT_OK(otr_context_create(&options, &context));
  return Owned<otr_context>(context);
}

Owned<otr_comm> make_self(otr_context* context) {
  otr_comm* comm = nullptr;
  EXPECT_OK(otr_comm_create_self(context, &comm));
  return Owned<otr_comm>(comm);
}

Owned<otr_comm> make_shm(otr_context* context, const std::string& job, int32_t rank, int32_t world,
                         double timeout) {
  otr_comm_options options;
  EXPECT_OK(otr_comm_options_init(&options, sizeof options));
  options.rank = rank;
  options.world_size = world;
  options.job = job.c_str();
  options.timeout = timeout;
  otr_comm* comm = nullptr;
  EXPECT_OK(otr_comm_create_shm(context, &options, &comm));
  return Owned<otr_comm>(comm);
}

void run_ranks(int32_t world, const RankBody& body, double timeout, const char* plugin) {
  const auto context = make_context(1);
  if (plugin != nullptr) {
    ASSERT_OK(otr_context_load_plugin(context.get(), plugin));
  }
  run_ranks(context.get(), world, body, timeout);
}

void run_ranks(otr_context* context, int32_t world, const RankBody& body, double timeout) {
  otr_comm_options options;
  ASSERT_OK(otr_comm_options_init(&options, sizeof options));
  options.timeout = timeout;
  std::vector<otr_comm*> comms(static_cast<size_t>(world));
  ASSERT_OK(otr_comm_create_threads(context, world, &options, comms.data()));
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      const Owned<otr_comm> comm(comms[static_cast<size_t>(rank)]);
      body(rank, comm.get());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

otr_param_options param_options() {
  otr_param_options options;
  EXPECT_OK(otr_param_options_init(&options, sizeof options));
  return options;
}

Engine::Engine(otr_comm* comm, const std::string& config) {
  otr_engine* engine = nullptr;
  EXPECT_OK(otr_engine_create(comm, config.c_str(), &engine));
  handle_.reset(engine);
}

int64_t Engine::add(const char* name, const Shape& shape, const Values& values,
                    const otr_param_options* options) {
  const Tensor initial(shape, values);
  int64_t id = -1;
  EXPECT_OK(otr_engine_add_parameter(get(), name, &initial, options, &id));
  return id;
}

Shape Engine::shape_of(int64_t id) const {
  int32_t ndim = -1;
  const int64_t* shape = nullptr;
  EXPECT_OK(otr_engine_parameter_shape(get(), id, &ndim, &shape));
  return {shape, shape + ndim};
}

Values Engine::read(int64_t id, int32_t value) const {
  const Shape shape = shape_of(id);
  const Tensor out = Tensor::filled(shape, -777);
  EXPECT_OK(otr_engine_parameter_read(get(), id, value, &out));
  return out.values();
}

std::vector<Values> Engine::everything() const {
  std::vector<Values> all;
  int64_t count = 0;
  EXPECT_OK(otr_engine_parameter_count(get(), &count));
  for (int64_t id = 0; id < count; ++id) {
    for (int32_t value = OTR_VALUE_MASTER; value <= OTR_VALUE_EXP_AVG_SQ; ++value) {
      const Tensor out = Tensor::filled(shape_of(id), 0);
      const int32_t status = otr_engine_parameter_read(get(), id, value, &out);
      if (status != OTR_E_NOT_FOUND) {
        EXPECT_OK(status);
      }
      all.push_back(out.values());
    }
  }
  return all;
}

Owned<otr_pass> Engine::begin() const {
  otr_pass* pass = nullptr;
  EXPECT_OK(otr_pass_begin(get(), nullptr, 0, nullptr, &pass));
  return Owned<otr_pass>(pass);
}

void Engine::add(const Owned<otr_pass>& pass, int64_t id, const Shape& shape,
                 const Values& values) {
  const Tensor grad(shape, values);
  EXPECT_OK(otr_pass_add_grad(pass.get(), id, &grad, nullptr));
}

void Engine::pass(const std::vector<Gradient>& gradients) const {
  const auto opened = begin();
  for (const Gradient& g : gradients) add(opened, g.id, shape_of(g.id), g.values);
  end(opened);
}

otr_step_report Engine::step() const {
  otr_step_report report = OTR_STEP_REPORT_INIT;
  EXPECT_OK(otr_engine_step(get(), &report));
  return report;
}

otr_step_report Engine::report(double timeout) const {
  otr_step_report report = OTR_STEP_REPORT_INIT;
  EXPECT_OK(otr_engine_report(get(), timeout, &report));
  return report;
}

// ---- Configurations
// -------------------------------------------------------------------------------

const Kind kKinds[8] = {
    {"float32_stage0_boundary", 0, "float32", "boundary"},
    {"float32_stage0_micro_step", 0, "float32", "micro_step"},
    {"float32_stage1_boundary", 1, "float32", "boundary"},
    {"float32_stage3_micro_step", 3, "float32", "micro_step"},
    {"bf16_stage2_micro_step", 2, "bf16", "micro_step"},
    {"bf16_states_stage3_boundary", 3, "bf16_states", "boundary"},
    {"fp16_stage1_boundary", 1, "fp16", "boundary"},
    {"fp16_master_stage2_micro_step", 2, "fp16_master", "micro_step"},
};

std::string config_of(const Kind& kind, int32_t accumulation, const std::string& extra,
                      const std::string& own) {
  const std::string_view precision = kind.precision;
  std::string text = R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.125}}, )";
  if (extra.find("gradient_clipping") == std::string::npos) text += R"("gradient_clipping": 0, )";
  text += R"("zero_optimization": {"stage": )" + std::to_string(kind.stage) +
          R"(, "reduce_bucket_size": 512}, )";
  text += R"("gradient_accumulation_steps": )" + std::to_string(accumulation) + ", ";
  if (precision == "bf16") text += R"("bf16": {"enabled": true}, )";
  if (precision == "bf16_states") {
    text += R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true, )"
            R"("bf16_optimizer_states": true}, )";
  }
  // The tests of loss scaling choose another scale.
  if (precision == "fp16" && extra.find("\"fp16\"") == std::string::npos) {
    text += R"("fp16": {"enabled": true, "loss_scale": 1}, )";
  }
  if (precision == "fp16_master" && extra.find("\"fp16\"") == std::string::npos) {
    text +=
        R"("fp16": {"enabled": true, "loss_scale": 1, "fp16_master_weights_and_grads": true}, )";
  }
  if (!extra.empty()) text += extra + ", ";
  text += R"("outrigger": {"reduction_order": ")" + std::string(kind.order) + '"';
  if (!own.empty()) text += ", " + own;
  return text + "}}";
}

int64_t pss() {
  std::ifstream in("/proc/self/smaps_rollup");
  int64_t bytes = -1;
  for (std::string word; in >> word;) {
    int64_t kib = 0;
    if ((word == "Pss_Anon:" || word == "Pss_Shmem:") && in >> kib) {
      bytes = std::max(bytes, int64_t{0}) + kib * 1024;
    }
  }
  return bytes;
}

int64_t resident_bytes(const Engine& engine, int32_t device_type, std::string_view purpose) {
  std::vector<otr_memory_entry> entries(64);
  entries[0].struct_size = sizeof entries[0];
  size_t count = entries.size();
  EXPECT_OK(otr_engine_memory(engine.get(), entries.data(), &count));
  for (size_t i = 0; i < count; ++i) {
    const otr_memory_entry& e = entries[i];
    if (e.device_type == device_type && e.purpose == purpose) return e.resident_bytes;
  }
  ADD_FAILURE() << "no \"" << purpose << "\" on device type " << device_type;
  return -1;
}

}  // namespace otr_test
