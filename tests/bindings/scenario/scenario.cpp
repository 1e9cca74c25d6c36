// SPDX-License-Identifier: Apache-2.0
//
// The scenario (README.md) in C++: handles are unique pointers, a status is an exception.
// scenario_cpp CONFIG.json OUTPUT      writes OUTPUT.<rank>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "handles.h"
#include "print.h"

namespace {

// Elements with their shape, and the library's view of them.
template <class T>
struct Tensor {
  Tensor(std::vector<int64_t> extents, const char* dtype)
      : shape(std::move(extents)),
        values(
            static_cast<size_t>(element_count(static_cast<int32_t>(shape.size()), shape.data()))) {
    check(otr_tensor_init(values.data(), dtype, static_cast<int32_t>(shape.size()), shape.data(),
                          &view));
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  std::vector<int64_t> shape;
  std::vector<T> values;
  otr_tensor view{};
};

struct Floats : Tensor<float> {
  explicit Floats(std::vector<int64_t> extents) : Tensor(std::move(extents), "float32") {}
  Floats(std::vector<int64_t> extents, const std::function<double(int64_t)>& value)
      : Floats(std::move(extents)) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(value(static_cast<int64_t>(i)));
    }
  }
};

enum Id : int64_t { kEmbed, kBias, kEmpty, kFrozen, kHead, kScale, kWide, kUnused };
struct Parameter {
  const char* name;
  std::vector<int64_t> shape;
};
const std::vector<Parameter> kParameters = {{"embed.weight", {5, 3}},  {"linear.bias", {7}},
                                            {"norm.empty", {0, 4}},    {"frozen.table", {2, 3}},
                                            {"head.weight", {5, 3}},   {"scale", {}},
                                            {"wide.weight", {3, 101}}, {"unused.gain", {4}}};

class Scenario {
 public:
  Scenario(std::string config, const std::string& path)
      : context_(made<Context>(otr_context_create, nullptr)),
        comm_(made<Comm>(otr_comm_from_env, context_.get(), nullptr)),
        config_(std::move(config)),
        path_(path) {
    check(otr_comm_rank(comm_.get(), &rank_));
    check(otr_comm_size(comm_.get(), &world_));
    out_.reset(std::fopen((path + "." + std::to_string(rank_)).c_str(), "wb"));
    if (!out_) throw std::runtime_error("cannot write " + path);
  }

  void run() {
    print("rank %d of %d\n", int{rank_}, int{world_});
    collectives();
    train();
    chain();
    save_and_load();
    shard_alone();
    print("done\n");
  }

 private:
  struct Close {
    void operator()(FILE* file) const { std::fclose(file); }
  };

  template <class... Arguments>
  void print(const char* format, Arguments... arguments) {
    std::fprintf(out_.get(), format, arguments...);
  }

  void show(const std::string& words, const otr_tensor& tensor) {
    print("%s", words.c_str());
    print_tensor(out_.get(), &tensor);
  }

  void show(const std::string& words, const otr_step_report& report) {
    print("%s", words.c_str());
    print_report(out_.get(), &report);
  }

  void show(const char* words, std::initializer_list<double> numbers) {
    print("%s", words);
    for (const double number : numbers) print_double(out_.get(), number);
  }

  void collectives() {
    std::array<double, 2> sums{rank_ + 0.5, 2};
    check(otr_comm_all_reduce_sum(comm_.get(), sums.data(), sums.size()));
    show("all_reduce", {sums[0], sums[1]});
    const auto mine = static_cast<uint8_t>(10 + rank_);
    std::vector<uint8_t> all(static_cast<size_t>(world_));
    check(otr_comm_all_gather(comm_.get(), &mine, 1, all.data()));
    print("\nall_gather");
    for (const uint8_t each : all) print(" %d", int{each});
    uint32_t token = rank_ == world_ - 1 ? 0x3f800000u : 0;
    check(otr_comm_broadcast(comm_.get(), &token, sizeof token, world_ - 1));
    check(otr_comm_barrier(comm_.get()));
    print("\nbroadcast %08" PRIx32 "\n", token);
  }

  void train() {
    const auto engine = made<Engine>(otr_engine_create, comm_.get(), config_.c_str());
    add_parameters(engine.get());
    check(otr_engine_commit(engine.get()));
    print_acquired(engine.get(), 0);
    for (int64_t number = 0; number < 6; ++number) {  // three windows of two passes
      if (number == 4) check(otr_engine_set_group_value(engine.get(), nullptr, "lr", 0.03125));
      run_pass(engine.get(), number);
    }
    wrong_calls(engine.get());
    print_values(engine.get());
    print_acquired(engine.get(), 0);
    print_acquired(engine.get(), OTR_ACQUIRE_FLOAT32);
    print_memory(engine.get());
    int64_t live = 0;
    check(otr_engine_live_children(engine.get(), &live));
    print("live_children %" PRId64 "\n", live);
    check(otr_engine_finalize(engine.get()));
  }

  void add_parameters(otr_engine* engine) {
    for (int64_t d = 0; d < std::ssize(kParameters); ++d) {
      const auto& [name, shape] = kParameters[static_cast<size_t>(d)];
      const Floats initial(shape, [&](int64_t i) {
        return static_cast<double>((7 * i + 3 * d) % 33 - 16) / 16 + rank_;
      });
      otr_param_options options;
      check(otr_param_options_init(&options, sizeof options));
      if (d == kBias) options.contributions = 2;
      if (d == kFrozen) options.trainable = 0;
      if (d == kHead) options.alias_of = kEmbed;
      int64_t id = 0;
      int32_t ndim = 0;
      const int64_t* extents = nullptr;
      check(otr_engine_add_parameter(engine, name, d == kHead ? nullptr : &initial.view, &options,
                                     &id));
      check(otr_engine_parameter_shape(engine, id, &ndim, &extents));
      print("parameter %" PRId64 " %s", id, name);
      print_shape(out_.get(), ndim, extents);
      print("\n");
    }
  }

  void print_acquired(otr_engine* engine, uint32_t flags) {
    constexpr std::array<int64_t, 2> ids{kEmbed, kWide};
    std::array<otr_tensor, 2> weights{};
    otr_call_info info;
    check(otr_call_info_init(&info, sizeof info));
    info.flags = flags;
    check(otr_engine_prefetch(engine, ids.data(), ids.size(), &info));
    check(otr_engine_acquire(engine, ids.data(), ids.size(), &info, weights.data()));
    for (size_t i = 0; i < ids.size(); ++i) {
      show("acquired " + std::to_string(ids[i]), weights[i]);
    }
    check(otr_engine_release(engine, ids.data(), ids.size(), &info));
  }

  // Slots have the compute dtype, and the values are exact in it.
  static void add_by_slot(otr_pass* pass, Id id, const float* gradient) {
    otr_tensor slot;
    check(otr_pass_get_slot(pass, id, &slot));
    for (int64_t i = 0; i < element_count(slot.ndim, slot.shape); ++i) {
      if (slot.dtype.code == OTR_DTYPE_BFLOAT) {
        uint32_t bits = 0;
        std::memcpy(&bits, &gradient[i], sizeof bits);
        static_cast<uint16_t*>(slot.data)[i] = static_cast<uint16_t>(bits >> 16);
      } else {
        static_cast<float*>(slot.data)[i] = gradient[i];
      }
    }
    check(otr_pass_add_grad(pass, id, &slot, nullptr));
  }

  static void add_by_tensor(otr_pass* pass, Id id, const std::function<double(int64_t)>& value) {
    const Floats gradient(kParameters[static_cast<size_t>(id)].shape, value);
    check(otr_pass_add_grad(pass, id, &gradient.view, nullptr));
  }

  // The toy model's backward: parameter gradients from the scaled gradients of the outputs.
  void backward(otr_pass* pass, int64_t number, const float* dy0, const float* dy1,
                float dl) const {
    const Floats embed({5, 3}, [&](int64_t k) {
      float sum = 0;
      for (int64_t i = 0; i < 4; ++i) {
        sum += static_cast<float>((i + 2 * (k / 3)) % 5 - 2) / 2 * dy0[3 * i + k % 3];
      }
      return sum;
    });
    add_by_slot(pass, kEmbed, embed.values.data());
    add_by_tensor(pass, kHead, [&](int64_t k) { return dl * dy0[3 * (k / 3 % 4) + k % 3]; });
    if (rank_ == 0 || number % 2 == 0) {
      add_by_slot(pass, kBias, dy1);
      add_by_tensor(pass, kBias, [&](int64_t i) { return dy1[7 + i]; });
    }
    if (number % 2 == 0) add_by_tensor(pass, kEmpty, [](int64_t) { return 0; });
    add_by_tensor(pass, kScale, [&](int64_t) { return std::accumulate(dy0, dy0 + 12, dl); });
    const auto wide = [&](int64_t i) -> double {
      if (number == 3 && rank_ == world_ - 1 && i == 101 + 7) return INFINITY;
      return dl * dy0[3 * (i % 101 % 4) + i / 101];
    };
    if (number % 2 == 0) {
      add_by_slot(pass, kWide, Floats({3, 101}, wide).values.data());
    } else {
      add_by_tensor(pass, kWide, wide);
    }
  }

  void run_pass(otr_engine* engine, int64_t number) {
    const Floats y0(
        {4, 3}, [&](int64_t i) { return static_cast<double>((i + rank_ + number) % 8 - 3) / 4; });
    Tensor<double> y1({2, 7}, "float64");
    for (int64_t i = 0; i < 14; ++i) {
      y1.values[static_cast<size_t>(i)] =
          static_cast<double>((3 * i + 2 * int64_t{rank_} + number) % 8 - 4) / 4;
    }
    const Floats loss({}, [](int64_t) { return 1; });
    const std::array<otr_tensor, 3> outputs{y0.view, y1.view, loss.view};
    {
      const auto pass = made<Pass>(otr_pass_begin, engine, outputs.data(), 3, nullptr);
      double scale = 0;
      check(otr_pass_get_scale(pass.get(), &scale));
      print("pass %" PRId64 " scale", number);
      show("", {scale});
      print("\n");
      std::array<const float*, 3> scaled{};
      for (int64_t i = 0; i < 3; ++i) {
        otr_tensor shown;
        check(otr_pass_get_output_grad(pass.get(), i, &shown));
        show("pass " + std::to_string(number) + " output " + std::to_string(i), shown);
        scaled[static_cast<size_t>(i)] = static_cast<const float*>(shown.data);
      }
      backward(pass.get(), number, scaled[0], scaled[1], *scaled[2]);
      check(otr_pass_end(pass.get()));
    }
    otr_step_report report = OTR_STEP_REPORT_INIT;
    if (number % 2 == 0) {
      check(otr_engine_step(engine, &report));
    } else {
      check(otr_engine_step_begin(engine));
      check(otr_engine_report(engine, -1, &report));
    }
    show("step " + std::to_string(number), report);
    if (report.reason == OTR_SKIP_NONFINITE) {
      const char* name = nullptr;
      check(otr_engine_parameter_name(engine, report.nonfinite_param, &name));
      print("skipped for %s of rank %" PRId32 "\n", name, report.nonfinite_rank);
    }
  }

  void attempt(int32_t status) {
    try {
      check(status);
      print("no error\n");
    } catch (const Failure& failure) {
      print("error %s\n", failure.what());
    }
  }

  void wrong_calls(otr_engine* engine) {
    const Floats value({5, 3});
    int64_t id = 0;
    attempt(otr_engine_parameter_id(engine, "embed.wieght", &id));
    attempt(otr_engine_add_parameter(engine, "late", &value.view, nullptr, &id));
    attempt(otr_engine_set_group_value(engine, nullptr, "lr", -1));
    const auto pass = made<Pass>(otr_pass_begin, engine, nullptr, 0, nullptr);
    attempt(otr_pass_add_grad(pass.get(), kWide, &value.view, nullptr));  // no trace
  }

  void print_values(otr_engine* engine) {
    constexpr std::array names{"master", "published", "exp_avg", "exp_avg_sq"};
    for (int64_t d = 0; d < std::ssize(kParameters); ++d) {
      for (int32_t value = OTR_VALUE_MASTER; value <= OTR_VALUE_EXP_AVG_SQ; ++value) {
        Floats read(kParameters[static_cast<size_t>(d)].shape);
        const std::string words =
            "value " + std::to_string(d) + " " + names[static_cast<size_t>(value)];
        try {
          check(otr_engine_parameter_read(engine, d, value, &read.view));
          show(words, read.view);
        } catch (const Failure& failure) {
          if (failure.status != OTR_E_NOT_FOUND) throw;
          print("%s none\n", words.c_str());
        }
      }
    }
  }

  void print_memory(otr_engine* engine) {
    size_t count = 0;
    check(otr_engine_memory(engine, nullptr, &count));
    std::vector<otr_memory_entry> entries(count);
    entries.front().struct_size = sizeof entries.front();
    check(otr_engine_memory(engine, entries.data(), &count));
    for (const auto& entry : entries) {
      print("memory %" PRId64 " %s\n", entry.resident_bytes, entry.purpose);
    }
  }

  // ---- Two engines in a chain: h = front(x), y = back(h) ----
  static std::string chained(const char* scale, const char* lr, const char* stage) {
    return std::string(
               R"({"torch_autocast": {"enabled": true, "dtype": "fp16"}, "fp16": {"loss_scale": )") +
           scale +
           R"(}, "gradient_clipping": 1, "optimizer": {"type": "AdamW", "params": {"lr": )" + lr +
           R"(}}, "zero_optimization": {"stage": )" + stage + "}}";
  }

  Engine make_engine(const char* name, const std::string& config) {
    auto engine = made<Engine>(otr_engine_create, comm_.get(), config.c_str());
    Floats initial({2, 2});
    otr_tensor nothing = initial.view;
    nothing.data = nullptr;
    int64_t id = 0;
    check(otr_engine_add_parameter(engine.get(), name, &nothing, nullptr, &id));
    check(otr_engine_commit(engine.get()));
    initial.values.assign({0.5f, -1, 1, 0.25f});
    check(otr_engine_set_initial(engine.get(), &id, 1, &initial.view));
    return engine;
  }

  otr_tensor begin_chained(const Engine& engine, const char* name, const otr_tensor& grad,
                           const otr_call_info* tag, Pass& pass) {
    pass = made<Pass>(otr_pass_begin, engine.get(), &grad, 1, tag);
    otr_tensor scaled;
    check(otr_pass_get_output_grad(pass.get(), 0, &scaled));
    show(std::string("chain ") + name + " scaled", scaled);
    return scaled;
  }

  void chain() {
    const std::array engines{make_engine("front", chained("4", "0.25", "0")),
                             make_engine("back", chained("64", "0.5", "2"))};
    const std::array names{"chain front", "chain back"};
    for (int window = 0; window < 2; ++window) {
      Floats dy({2, 2});
      dy.values.assign({1, -0.5f, 0.25f, 2});
      if (window == 1 && rank_ == world_ - 1) dy.values[2] = INFINITY;
      Pass back, front;
      const otr_tensor at_back = begin_chained(engines[1], "back", dy.view, nullptr, back);
      const Floats dh({2, 2}, [&](int64_t i) {  // of the input
        return 2 * static_cast<const float*>(at_back.data)[(i + 2) % 4];
      });
      Floats plain({2, 2});
      check(otr_pass_unscale(back.get(), &dh.view, &plain.view));
      show("chain input gradient", plain.view);
      otr_call_info tag;
      check(otr_call_info_init(&tag, sizeof tag));
      check(otr_pass_get_tag(back.get(), &tag));
      show("chain tag", {tag.loss_scale});
      print(" %" PRId32 " %" PRId32 "\n", tag.accumulation, tag.ranks);
      const otr_tensor at_front = begin_chained(engines[0], "front", dh.view, &tag, front);
      check(otr_pass_add_grad(front.get(), 0, &at_front, nullptr));
      check(otr_pass_end(front.get()));
      check(otr_pass_add_grad(back.get(), 0, &at_back, nullptr));
      check(otr_pass_end(back.get()));
      const std::array<otr_engine*, 2> both{engines[0].get(), engines[1].get()};
      std::array<otr_step_report, 2> reports{{OTR_STEP_REPORT_INIT, OTR_STEP_REPORT_INIT}};
      check(otr_step_many(both.data(), 2, nullptr, reports.data()));
      for (size_t i = 0; i < 2; ++i) show(std::string(names[i]) + " step", reports[i]);
    }
    for (size_t i = 0; i < 2; ++i) end(engines[i].get(), names[i]);
  }

  void end(otr_engine* engine, const std::string& name) {
    for (int32_t value = OTR_VALUE_MASTER; value <= OTR_VALUE_EXP_AVG_SQ; ++value) {
      Floats read({2, 2});
      check(otr_engine_parameter_read(engine, 0, value, &read.view));
      show(name + " value " + std::to_string(value), read.view);
    }
    check(otr_engine_finalize(engine));
  }

  // A training that is saved, and goes on at another stage and without offload.
  void save_and_load() {
    const std::string directory = path_ + ".saved";
    const auto saved =
        make_engine("w", kept(R"({"stage": 2, "offload_optimizer": {"device": "cpu"}})"));
    for (int window = 0; window < 2; ++window) step_alone(saved.get(), window, "saved");
    check(otr_engine_save(saved.get(), directory.c_str(), "two", nullptr));
    step_alone(saved.get(), 2, "saved");
    end(saved.get(), "saved");
    const auto loaded = make_engine("w", kept(R"({"stage": 3})"));
    check(otr_engine_load(loaded.get(), directory.c_str(), "two", nullptr));
    step_alone(loaded.get(), 2, "loaded");
    end(loaded.get(), "loaded");
  }

  static std::string kept(const char* zero) {
    return std::string(R"({"zero_optimization": )") + zero +
           R"(, "gradient_clipping": 0, "optimizer": {"type": "AdamW", "params": {"lr": 0.125}}})";
  }

  // A step with a gradient that differs between windows and ranks.
  void step_alone(otr_engine* engine, int window, const std::string& name) {
    Floats gradient({2, 2});
    gradient.values.assign({1, -0.5f, 0.25f, 2});
    for (float& each : gradient.values) each *= static_cast<float>((window + 1) * (2 * rank_ + 1));
    const auto pass = made<Pass>(otr_pass_begin, engine, nullptr, 0, nullptr);
    check(otr_pass_add_grad(pass.get(), 0, &gradient.view, nullptr));
    check(otr_pass_end(pass.get()));
    otr_step_report report = OTR_STEP_REPORT_INIT;
    check(otr_engine_step(engine, &report));
    show(name + " step " + std::to_string(window), report);
  }

  void shard_alone() {
    Floats weights({5}, [](int64_t i) { return static_cast<double>(i - 2) / 4; });
    const Floats grads({5}, [](int64_t i) { return static_cast<double>(3 - i) / 8; });
    Tensor<uint16_t> published({5}, "bfloat16");
    otr_shard_options options;
    check(otr_shard_options_init(&options, sizeof options));
    options.published = &published.view;
    const auto shard =
        made<Shard>(otr_shard_wrap, context_.get(), &weights.view, &grads.view, &options);
    const auto optimizer = made<Optimizer>(otr_optimizer_create, context_.get(),
                                           R"({"type": "AdamW", "params": {"lr": 0.5}})");
    check(otr_optimizer_set_value(optimizer.get(), "lr", 0.25));
    otr_step_report report = OTR_STEP_REPORT_INIT;
    otr_shard* const shards = shard.get();
    check(otr_optimizer_step(optimizer.get(), &shards, 1, &report));
    show("shard step", report);
    show("shard weights", weights.view);
    show("shard published", published.view);
    for (int32_t value = OTR_VALUE_EXP_AVG; value <= OTR_VALUE_EXP_AVG_SQ; ++value) {
      otr_tensor state;
      check(otr_shard_state(shard.get(), value, &state));
      show("shard state " + std::to_string(value), state);
    }
    int64_t bytes = 0;
    check(otr_shard_state_bytes(shard.get(), &bytes));
    print("shard state_bytes %" PRId64 "\n", bytes);
  }

  Context context_;
  Comm comm_;
  std::string config_, path_;
  int32_t rank_ = 0, world_ = 0;
  std::unique_ptr<FILE, Close> out_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: scenario_cpp CONFIG.json OUTPUT\n"), 2;
  try {
    std::ifstream file(argv[1], std::ios::binary);
    const std::string config{std::istreambuf_iterator<char>(file), {}};
    Scenario(config, argv[2]).run();
  } catch (const std::exception& failure) {
    return std::fprintf(stderr, "%s\n", failure.what()), 1;
  }
}
