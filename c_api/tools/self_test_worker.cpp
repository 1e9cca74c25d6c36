// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "fault.h"
#include "self_test.h"
#include "text.h"

namespace outrigger::tools {
namespace {

using Clock = std::chrono::steady_clock;

template <typename Handle>
using Owned = std::unique_ptr<Handle, void (*)(Handle*)>;

void require(bool as_expected, const std::string& what) {
  if (!as_expected) throw Fault(OTR_E_INTERNAL, what);
}

class TestedWorker {
 public:
  void attach() {
    otr_context* context = nullptr;
    check(otr_context_create(nullptr, &context));
    context_.reset(context);
    // The launcher's process is the same for both, and no other job's.
    const std::string job = format_text("outrigger-doctor-{}", getppid());
    otr_comm_options options;
    check(otr_comm_options_init(&options, sizeof options));
    options.job = job.c_str();
    otr_comm* comm = nullptr;
    check(otr_comm_from_env(context, &options, &comm));
    comm_.reset(comm);
    check(otr_comm_rank(comm, &rank_));
    check(otr_comm_size(comm, &world_));
    require(world_ == 2, format_text("the group has {} ranks instead of 2", world_));
  }

  void barrier() { check(otr_comm_barrier(comm_.get())); }

  void all_reduce() {
    std::vector<double> values(1000);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) + rank_;
    check(otr_comm_all_reduce_sum(comm_.get(), values.data(), values.size()));
    for (size_t i = 0; i < values.size(); ++i) {
      const double expected = 2 * static_cast<double>(i) + 1;
      require(values[i] == expected,
              format_text("element {} of the sum is {} instead of {}", i, values[i], expected));
    }
  }

  // Adam's first step is ±lr wherever the gradient is not zero. The mean of the ranks' gradients
  // (1 and 3, the sign alternating) is ±2.
  void engine_step() {
    constexpr int64_t count = 4096;
    constexpr double lr = 0.125;
    otr_engine* raw = nullptr;
    check(otr_engine_create(comm_.get(), R"({"zero_optimization": {"stage": 2},
        "gradient_clipping": 0,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.125, "weight_decay": 0}}})",
                            &raw));
    const Owned<otr_engine> engine(raw, otr_engine_destroy);
    int64_t extent = count, id = 0;
    std::vector<float> values(count, 1.0F);
    otr_tensor tensor;
    check(otr_tensor_init(values.data(), "float32", 1, &extent, &tensor));
    check(otr_engine_add_parameter(raw, "w", &tensor, nullptr, &id));
    check(otr_engine_commit(raw));

    otr_pass* raw_pass = nullptr;
    check(otr_pass_begin(raw, nullptr, 0, nullptr, &raw_pass));
    Owned<otr_pass> pass(raw_pass, otr_pass_destroy);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>((i % 2 == 0 ? 1 : -1) * (rank_ == 0 ? 1 : 3));
    }
    check(otr_pass_add_grad(raw_pass, id, &tensor, nullptr));
    check(otr_pass_end(raw_pass));
    pass.reset();
    otr_step_report report = OTR_STEP_REPORT_INIT;
    check(otr_engine_step(raw, &report));
    const double norm = 2 * std::sqrt(static_cast<double>(count));
    require(report.outcome == OTR_STEP_APPLIED && std::abs(report.grad_norm - norm) < 1e-6 * norm,
            format_text("the step's outcome is {} and its norm {} instead of {}", report.outcome,
                        report.grad_norm, norm));

    otr_tensor weights;
    check(otr_engine_acquire(raw, &id, 1, nullptr, &weights));
    const auto* w = static_cast<const float*>(weights.data) + weights.byte_offset / sizeof(float);
    for (int64_t i = 0; i < count; ++i) {
      const double expected = 1 - (i % 2 == 0 ? lr : -lr);
      require(std::abs(static_cast<double>(w[i]) - expected) < 1e-5,
              format_text("weight {} is {} instead of {}", i, w[i], expected));
    }
    check(otr_engine_release(raw, &id, 1, nullptr));
    check(otr_engine_finalize(raw));
  }

 private:
  Owned<otr_context> context_{nullptr, otr_context_destroy};
  Owned<otr_comm> comm_{nullptr, otr_comm_destroy};
  int32_t rank_ = 0, world_ = 0;
};

}  // namespace

int self_test_worker(int descriptor) {
  const char* const rank = std::getenv("RANK");
  TestedWorker worker;
  const std::array<void (TestedWorker::*)(), kPhases.size()> phases{
      &TestedWorker::attach, &TestedWorker::barrier, &TestedWorker::all_reduce,
      &TestedWorker::engine_step};
  for (size_t i = 0; i < phases.size(); ++i) {
    nlohmann::ordered_json report = {{"rank", rank == nullptr ? -1 : std::atoi(rank)},
                                     {"phase", kPhases.at(i)}};
    const Clock::time_point begin = Clock::now();
    try {
      (worker.*phases.at(i))();
    } catch (const std::exception& error) {
      report["error"] = std::string(error.what()).substr(0, 1000);
    }
    report["seconds"] = std::chrono::duration<double>(Clock::now() - begin).count();
    const std::string line =
        report.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    const bool told =
        write(descriptor, line.data(), line.size()) == static_cast<ssize_t>(line.size());
    if (!told || report.contains("error")) return 1;
  }
  return 0;
}

}  // namespace outrigger::tools
