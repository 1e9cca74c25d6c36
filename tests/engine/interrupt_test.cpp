// SPDX-License-Identifier: Apache-2.0
// A host that interrupts every single wait of a call, and makes the call again each time, has the
// bits of one that never did; inside of the update it loses the engine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "core/base/text.h"
#include "core/comm/forwarding.h"
#include "core/engine/engine.h"
#include "core/engine/pass.h"

namespace outrigger::engine {
namespace {

// What is to be interrupted, and what was.
struct Plan {
  std::thread::id host = std::this_thread::get_id();
  bool ready = true;  // false: nothing yet
  std::string only;   // a label; empty: all but the update's
  bool shares_memory = true;
  int interrupts = 0;
};

// A group, each of whose operations is interrupted once when the host's thread waits in it.
class Interrupted final : public comm::Forwarding {
 public:
  Interrupted(std::unique_ptr<comm::Communicator> comm, Plan& plan)
      : Forwarding(std::move(comm)), plan_(plan) {}

  bool shares_memory() const override { return plan_.shares_memory; }
  std::unique_ptr<comm::Communicator> duplicate(std::string_view name) override {
    meet(name);
    return std::make_unique<Interrupted>(Forwarding::duplicate(name), plan_);
  }
  void barrier(std::string_view label) override {
    meet(label);
    Forwarding::barrier(label);
  }
  void broadcast(std::span<std::byte> data, int32_t root, std::string_view label) override {
    meet(label);
    Forwarding::broadcast(data, root, label);
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                  std::string_view label) override {
    meet(label);
    Forwarding::all_gather(mine, all, label);
  }
  void all_gather_parts(std::span<const comm::Part> parts, std::string_view label) override {
    meet(label);
    Forwarding::all_gather_parts(parts, label);
  }
  void combine(std::span<std::byte> value, const comm::Merge& merge,
               std::string_view label) override {
    meet(label);
    Forwarding::combine(value, merge, label);
  }
  std::span<const void* const> exchange(const comm::Window& window, size_t offset,
                                        size_t slice_bytes, std::string_view label) override {
    meet(label);
    return Forwarding::exchange(window, offset, slice_bytes, label);
  }
  void all_gather_window(comm::Window& window, size_t offset, size_t slice_bytes,
                         std::string_view label) override {
    meet(label);
    Forwarding::all_gather_window(window, offset, slice_bytes, label);
  }
  uint64_t completed() const override { return completed_; }

 private:
  void meet(std::string_view label) {
    const bool wanted = plan_.only.empty() ? label != "publish parameters" : label == plan_.only;
    if (wanted && plan_.ready && std::this_thread::get_id() == plan_.host &&
        !std::exchange(interrupted_, true)) {
      ++plan_.interrupts;
      fail(OTR_E_INTERRUPTED, "'{}' was interrupted", label);
    }
    interrupted_ = false;
    ++completed_;
  }

  Plan& plan_;
  bool interrupted_ = false;
  uint64_t completed_ = 0;
};

otr_tensor flat(std::vector<float>& values, int64_t* shape) {
  *shape = static_cast<int64_t>(values.size());
  otr_tensor t;
  EXPECT_EQ(otr_tensor_init(values.data(), "float32", 1, shape, &t), OTR_OK);
  return t;
}

std::vector<float> wave(size_t count, float seed) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = std::sin(seed + 0.7F * static_cast<float>(i));
  return values;
}

// Makes a call until it is not interrupted.
template <typename Body>
void insist(const Body& body) {
  for (int i = 0; i < 1000; ++i) {
    try {
      return body();
    } catch (const Error& error) {
      if (error.status() != OTR_E_INTERRUPTED) throw;
    }
  }
  ADD_FAILURE() << "interrupted without end";
}

struct Model {
  std::shared_ptr<Engine> engine;

  Model(std::unique_ptr<comm::Communicator> comm, const std::string& config, size_t count = 700) {
    otr_context_options options{};
    options.log_level = OTR_LOG_WARNING;
    options.workers = 1;
    engine = std::make_shared<Engine>(std::make_shared<Context>(options), std::move(comm), config);
    for (int i = 0; i < 3; ++i) {
      std::vector<float> values = wave(count, static_cast<float>(i));
      int64_t shape = 0;
      engine->add_parameter("p" + std::to_string(i), flat(values, &shape), {});
    }
  }
  void pass(float seed) const {
    const auto pass = engine->begin_pass(nullptr, 0, {}, false, 0);
    for (int64_t id = 0; id < 3; ++id) {
      std::vector<float> grad = wave(700, seed + static_cast<float>(id));
      int64_t shape = 0;
      pass->add_grad(id, flat(grad, &shape), {}, 0);
    }
    pass->end();
  }
  [[nodiscard]] std::vector<float> values() const {
    std::vector<float> all;
    for (int64_t id = 0; id < 3; ++id) {
      std::vector<float> out(700);
      int64_t shape = 0;
      const otr_tensor t = flat(out, &shape);
      insist([&] { engine->read_value(id, OTR_VALUE_MASTER, t); });
      all.insert(all.end(), out.begin(), out.end());
    }
    return all;
  }
};

std::vector<float> train(std::unique_ptr<comm::Communicator> comm, const std::string& config,
                         Plan* plan = nullptr) {
  const Model model(std::move(comm), config);
  model.engine->commit();
  if (plan != nullptr) plan->ready = true;
  otr_step_report report{};
  for (int step = 0; step < 4; ++step) {
    model.pass(static_cast<float>(step));
    if (step == 1) insist([&] { model.engine->reduce(report); });
    if (step == 2) {
      Engine* const engines[] = {model.engine.get()};
      insist([&] { Engine::step_many(engines, nullptr, {&report, 1}); });
    } else {
      insist([&] { model.engine->step(report, true); });
    }
    EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
    EXPECT_EQ(report.applied_steps, step + 1);
  }
  auto values = model.values();
  insist([&] { model.engine->finalize(); });
  return values;
}

std::vector<std::string> configs() {
  std::vector<std::string> all;
  for (const char* order : {"boundary", "micro_step"}) {
    for (const int stage : {0, 1, 2, 3}) {
      all.push_back(outrigger::format_text(
          R"({{"gradient_clipping": 0.5, "zero_optimization": {{"stage": {}, )"
          R"("reduce_bucket_size": 512}}, "outrigger": {{"reduction_order": "{}"}}}})",
          stage, order));
    }
  }
  return all;
}

TEST(Interrupted, EveryWaitOnceAndTheSameBits) {
  for (const std::string& config : configs()) {
    SCOPED_TRACE(config);
    Plan plan;
    plan.ready = false;
    const auto values =
        train(std::make_unique<Interrupted>(comm::make_self(), plan), config, &plan);
    EXPECT_EQ(values, train(comm::make_self(), config));
    EXPECT_GE(plan.interrupts, 10);
  }
}

void expect_status(int32_t expected, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "it went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), expected) << error.what();
  }
}

// Where parameters are gathered when they are acquired, 4 MiB at a time: three waits for 9 MiB.
TEST(Interrupted, AnAcquireGoesOnWithWhatItLacks) {
  constexpr size_t kCount = 768 << 10;
  for (const bool as_float32 : {false, true}) {
    Plan plan, patient;
    plan.ready = plan.shares_memory = patient.ready = patient.shares_memory = false;
    const int64_t ids[] = {2, 0, 1}, others[] = {2, 0, 0};
    const auto make = [&](std::unique_ptr<comm::Communicator> comm, Plan& of) {
      return Model(std::make_unique<Interrupted>(std::move(comm), of),
                   R"({"zero_optimization": {"stage": 3}})", kCount);
    };
    auto comms = comm::make_threads(2, {});
    std::thread other([&, comm = std::move(comms[1])]() mutable {
      const Model model = make(std::move(comm), patient);
      model.engine->commit();
      otr_tensor out[3] = {};
      model.engine->acquire(ids, 3, as_float32, 0, out);
      model.engine->finalize();
    });
    const std::shared_ptr<void> joined(nullptr, [&](void*) { other.join(); });
    const Model model = make(std::move(comms[0]), plan);
    Engine& engine = *model.engine;
    engine.commit();
    plan.ready = true;
    otr_tensor out[3] = {};
    for (int interrupts = 1; interrupts <= 3; ++interrupts) {
      expect_status(OTR_E_INTERRUPTED, [&] { engine.acquire(ids, 3, as_float32, 0, out); });
      EXPECT_EQ(plan.interrupts, interrupts) << "what was gathered is not gathered again";
      for (const otr_tensor& tensor : out) EXPECT_EQ(tensor.data, nullptr);
      expect_status(OTR_E_STATE, [&] { engine.acquire(others, 3, as_float32, 0, out); });
      expect_status(OTR_E_STATE, [&] { engine.acquire(ids, 2, as_float32, 0, out); });
      expect_status(OTR_E_STATE, [&] { engine.release(ids, 1, 0); });
      engine.check();
    }
    engine.acquire(ids, 3, as_float32, 0, out);
    EXPECT_EQ(plan.interrupts, 3);
    for (size_t i = 0; i < 3; ++i) {
      const auto* values = static_cast<const float*>(out[i].data);
      EXPECT_TRUE(
          std::ranges::equal(std::span(values, kCount), wave(kCount, static_cast<float>(ids[i]))));
    }
    engine.release(ids, 3, 0);
    expect_status(OTR_E_STATE, [&] { engine.release(ids, 1, 0); });
    plan.ready = false;
    engine.finalize();
  }
}

TEST(Interrupted, ACommitGoesOnOnlyFromItsFirstWait) {
  for (const char* label : {"control", "compare declarations"}) {
    Plan plan;
    plan.only = label;
    const Model model(std::make_unique<Interrupted>(comm::make_self(), plan), configs()[0]);
    expect_status(OTR_E_INTERRUPTED, [&] { model.engine->commit(); });
    if (plan.only == "control") {
      model.engine->commit();
    } else {
      expect_status(OTR_E_POISONED, [&] { model.engine->commit(); });
    }
  }
}

TEST(Interrupted, InsideTheUpdateTheEngineIsLost) {
  for (const std::string& config : configs()) {
    SCOPED_TRACE(config);
    Plan plan;
    plan.only = "publish parameters";
    const Model model(std::make_unique<Interrupted>(comm::make_self(), plan), config);
    model.engine->commit();
    model.pass(1);
    otr_step_report report{};
    expect_status(OTR_E_INTERRUPTED, [&] { model.engine->step(report, true); });
    expect_status(OTR_E_POISONED, [&] { model.engine->step(report, true); });
    EXPECT_EQ(plan.interrupts, 1);
  }
}

}  // namespace
}  // namespace outrigger::engine
