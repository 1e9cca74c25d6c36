// SPDX-License-Identifier: Apache-2.0
// A step whose report nobody asks for, where one rank has all states on a device: the device
// decides, the host waits for nothing, and bits and reports are those of a host that waits.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <thread>

#include "blocking.h"
#include "device_support.h"

namespace {

using namespace otr_test;

struct Form {
  const char* name;
  const char* optimizer;
  const char* more;  // members of the configuration
  int32_t stage;
  int32_t accumulation;
};

constexpr const char* kAdamW =
    R"("AdamW", "params": {"lr": 0.01, "weight_decay": 0.1, "betas": [0.8, 0.9]})";
constexpr const char* kMomentum = R"("SGD", "params": {"lr": 0.3, "momentum": 0.9})";
constexpr const char* kBf16 = R"("bf16": {"enabled": true}, )";
constexpr const char* kBf16Master =
    R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true}, )";
constexpr const char* kScaled = R"("fp16": {"enabled": true, "loss_scale": 64}, )";

const Form kForms[] = {
    {"float32_boundary", kAdamW, "", 1, 1},
    {"float32_copy", kMomentum, "", 0, 2},
    {"float32_micro_step", kAdamW, "", 2, 1},
    {"bf16_boundary", kAdamW, kBf16, 1, 2},
    {"bf16_micro_step", kMomentum, kBf16, 3, 4},
    {"bf16_master", kAdamW, kBf16Master, 2, 2},
    {"fp16_fixed_scale", kAdamW, kScaled, 2, 1},
    {"lion", R"("Lion", "params": {"lr": 0.01, "weight_decay": 0.1})", kBf16, 1, 1},
    {"adagrad_schedule", R"("Adagrad", "params": {"lr": 0.1})",
     R"("scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0.01, "warmup_max_lr": 0.1, "warmup_num_steps": 9}}, )",
     2, 1},
};
std::string name_of_form(const testing::TestParamInfo<Form>& info) { return info.param.name; }
void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

std::string config_of(const Form& form) {
  return R"({"optimizer": {"type": )" + std::string(form.optimizer) + "}, " + form.more +
         R"("gradient_clipping": 0.5, "gradient_accumulation_steps": )" +
         std::to_string(form.accumulation) + R"(, "zero_optimization": {"stage": )" +
         std::to_string(form.stage) +
         R"(, "reduce_bucket_size": 1024}, "outrigger": {"bucket_buffers": 2}})";
}

constexpr int64_t kCounts[] = {700, 2400, 3, 1500};

void add_parameters(Engine& engine) {
  for (size_t i = 0; i < std::size(kCounts); ++i) {
    engine.add(("w" + std::to_string(i)).c_str(), {kCounts[i]},
               dyadic(kCounts[i], static_cast<int>(i)));
  }
}

// Of one micro-step: other ones in each, some too large to be left alone, some not finite.
Values gradient_of(int step, size_t parameter) {
  Values grad = dyadic(kCounts[parameter], 5 * step + static_cast<int>(parameter));
  for (double& x : grad) x *= step % 4 == 0 ? 1.0 / 4096 : 1;
  if (step == 7 && parameter == 1) grad[1100] = std::numeric_limits<double>::quiet_NaN();
  if (step == 8 && parameter == 0) grad[3] = HUGE_VAL;
  if (step == 8 && parameter == 3) grad[1400] = -HUGE_VAL;
  return grad;
}

struct Trained {
  std::vector<Values> values;
  std::vector<otr_step_report> reports, reduced;
  std::string progress;
};

std::string progress_of(const Engine& engine) {
  size_t size = 0;
  EXPECT_OK(otr_engine_get_progress(engine.get(), nullptr, &size));
  std::string text(size, '\0');
  EXPECT_OK(otr_engine_get_progress(engine.get(), text.data(), &size));
  return text;
}

// How the host ends its steps: with a report, without one but asking for it before the next step,
// or never asking.
enum class Asks { at_once, later, never };

// A tensor where the engine is: on the host, where device_id is below 0.
class There {
 public:
  There(otr_context* context, int32_t device_id, const Shape& shape, const Values& values)
      : here_(shape, values) {
    if (device_id >= 0) {
      there_ = std::make_unique<DeviceTensor>(context, simulated(device_id), here_);
    }
  }
  const otr_tensor* operator&() const {  // NOLINT(google-runtime-operator)
    return there_ ? &*there_ : &here_;
  }

 private:
  Tensor here_;
  std::unique_ptr<DeviceTensor> there_;
};

// On the host, where device_id is below 0. Of the twenty steps one has a pass that was given up,
// one an output gradient that overflows under a loss scale, and some windows are reduced and get
// another gradient before the step.
Trained trained(const Form& form, otr_context* context, int32_t device_id, Asks asks) {
  const auto comm = make_self(context);
  Engine engine(comm.get(), config_of(form));
  if (device_id >= 0) {
    EXPECT_OK(otr_engine_set_device(engine.get(), kSimulated, device_id));
  }
  add_parameters(engine);
  engine.commit();
  Trained trained;
  bool unread = false;  // the last report
  const There seed(context, device_id, {}, {1}), large(context, device_id, {}, {3e38});
  const There replaced(context, device_id, {kCounts[2]}, {1, -2, 0.5});
  for (int step = 0; step < 20; ++step) {
    otr_pass* begun = nullptr;
    EXPECT_OK(otr_pass_begin(engine.get(), step == 15 ? &large : &seed, 1, nullptr, &begun));
    const Owned<otr_pass> pass(begun);
    for (size_t i = std::size(kCounts); i-- > 0;) {
      if (step % 6 == 5 && i == 3) continue;  // without a gradient
      const There grad(context, device_id, {kCounts[i]}, gradient_of(step, i));
      for (int times = 0; times < (i == 1 ? 2 : 1); ++times) {
        EXPECT_OK(otr_pass_add_grad(pass.get(), static_cast<int64_t>(i), &grad, nullptr));
      }
    }
    if (step == 12) {
      EXPECT_OK(otr_pass_abandon(pass.get()));
    } else {
      Engine::end(pass);
    }
    int32_t ends = 0;
    EXPECT_OK(otr_engine_get_boundary(engine.get(), &ends));
    if (ends != 0 && step % 5 == 1) {
      otr_step_report report = OTR_STEP_REPORT_INIT;
      if (unread) trained.reports.push_back(engine.report());
      unread = false;
      EXPECT_OK(otr_engine_reduce(engine.get(), &report));
      EXPECT_OK(otr_engine_parameter_write(engine.get(), 2, OTR_VALUE_GRAD, &replaced));
      trained.reduced.push_back(report);
      if (asks == Asks::later) trained.reports.push_back(engine.step());
      if (asks == Asks::later) continue;
    }
    if (asks == Asks::at_once) {
      trained.reports.push_back(engine.step());
      continue;
    }
    if (unread) trained.reports.push_back(engine.report());
    EXPECT_OK(otr_engine_step(engine.get(), nullptr));
    unread = asks == Asks::later;
  }
  if (unread) trained.reports.push_back(engine.report());
  trained.progress = progress_of(engine);
  trained.values = engine.everything();
  EXPECT_OK(otr_engine_finalize(engine.get()));
  return trained;
}

void expect_same_reports(const std::vector<otr_step_report>& got,
                         const std::vector<otr_step_report>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const otr_step_report &a = got[i], &b = want[i];
    EXPECT_EQ(std::memcmp(&a, &b, sizeof a), 0)
        << "step " << i << ": outcomes " << a.outcome << " " << b.outcome << ", reasons "
        << a.reason << " " << b.reason << ", norms " << a.grad_norm << " " << b.grad_norm
        << ", clips " << a.clip_coefficient << " " << b.clip_coefficient << ", first "
        << a.nonfinite_param << " " << b.nonfinite_param << " of rank " << a.nonfinite_rank << " "
        << b.nonfinite_rank << ", updates " << a.updates << " " << b.updates << ", applied "
        << a.applied_steps << " " << b.applied_steps;
  }
}

class DeviceAhead : public testing::TestWithParam<Form> {};
INSTANTIATE_TEST_SUITE_P(Forms, DeviceAhead, testing::ValuesIn(kForms), name_of_form);

TEST_P(DeviceAhead, HasTheBitsAndReportsOfTheHost) {
  const auto context = device_context();
  const Trained host = trained(GetParam(), context.get(), -1, Asks::at_once);
  const auto skipped = [](const otr_step_report& r) { return r.outcome == OTR_STEP_SKIPPED; };
  const auto clipped = [](const otr_step_report& r) { return r.clip_coefficient < 1; };
  EXPECT_GE(std::ranges::count_if(host.reports, skipped), 1);
  EXPECT_GE(std::ranges::count_if(host.reports, clipped), 3);
  for (const Asks asks : {Asks::at_once, Asks::later, Asks::never}) {
    SCOPED_TRACE(static_cast<int>(asks));
    const Trained there = trained(GetParam(), context.get(), 0, asks);
    EXPECT_EQ(there.values, host.values);
    EXPECT_EQ(there.progress, host.progress);
    expect_same_reports(there.reduced, host.reduced);
    if (asks != Asks::never) expect_same_reports(there.reports, host.reports);
  }
}

// A plugin that cannot decide: the host waits, with the same results.
TEST(DeviceAheadOlder, APluginWithoutDecisionsHasTheSameResults) {
  for (const Form& form : {kForms[0], kForms[5]}) {
    SCOPED_TRACE(form.name);
    const auto context = make_context();
    ASSERT_OK(otr_context_load_plugin(context.get(), OTR_OLDER_PLUGIN));
    const Trained older = trained(form, context.get(), 3, Asks::later);
    const Trained ahead = trained(form, device_context().get(), 0, Asks::later);
    EXPECT_EQ(older.values, ahead.values);
    EXPECT_EQ(older.progress, ahead.progress);
    expect_same_reports(older.reports, ahead.reports);
  }
}

// ---- Waits ----

struct Cost {
  double allocations, synchronizations, event_synchronizations, unpinned;
  bool operator==(const Cost&) const = default;
};
void PrintTo(const Cost& cost, std::ostream* out) {
  *out << cost.allocations << " allocations, " << cost.synchronizations << " synchronizations, "
       << cost.event_synchronizations << " of events, " << cost.unpinned << " unpinned bytes";
}
Cost cost_of(otr_context* context) {
  const auto value = [&](const char* name) {
    double number = -1;
    EXPECT_OK(otr_device_get_value(context, kSimulated, 0, name, &number));
    return number;
  };
  return {value("allocations"), value("synchronizations"), value("event_synchronizations"),
          value("unpinned_bytes")};
}

// Twenty steps of a host that has its gradients on the device, in a stream of its own. The host is
// at most a step ahead: what lies before that has come by itself when it ends the next.
Cost cost_of_steps(const Form& form, bool slots) {
  DeviceSolo solo(config_of(form));
  add_parameters(solo.engine);
  solo.engine.commit();
  std::vector<std::unique_ptr<DeviceTensor>> grads;
  for (int step = 0; step < 20; ++step) {
    for (size_t i = 0; i < std::size(kCounts); ++i) {
      grads.push_back(std::make_unique<DeviceTensor>(solo.context.get(), simulated(),
                                                     Tensor({kCounts[i]}, gradient_of(step, i))));
    }
  }
  const HostStream own;
  const auto train = [&](int step) {
    for (int64_t id = 0; id < 4; ++id) {
      otr_tensor weight;
      ASSERT_OK(otr_engine_acquire(solo.engine.get(), &id, 1, &own.info, &weight));
      ASSERT_OK(otr_engine_release(solo.engine.get(), &id, 1, &own.info));
    }
    otr_pass* pass = nullptr;
    ASSERT_OK(otr_pass_begin(solo.engine.get(), nullptr, 0, &own.info, &pass));
    const Owned<otr_pass> owned(pass);
    for (size_t i = std::size(kCounts); i-- > 0;) {
      otr_tensor grad = grads[static_cast<size_t>(step) * std::size(kCounts) + i]->get();
      if (slots) {
        otr_tensor slot;
        ASSERT_OK(otr_pass_get_slot(pass, static_cast<int64_t>(i), &slot));
        const bool narrow = slot.dtype.bits == 16;
        if (!narrow) {
          ASSERT_EQ(simulated_table().copy(own.device, slot.data, grad.data,
                                           static_cast<size_t>(kCounts[i]) * 4,
                                           OTR_PLUGIN_ON_DEVICE, own.stream),
                    OTR_OK);
        } else {
          ASSERT_EQ(simulated_table().zero(own.device, slot.data,
                                           static_cast<size_t>(kCounts[i]) * 2, own.stream),
                    OTR_OK);
        }
        grad = slot;
      }
      ASSERT_OK(otr_pass_add_grad(pass, static_cast<int64_t>(i), &grad, &own.info));
    }
    Engine::end(owned);
    const auto begin = Clock::now();
    while (step > 0 && solo.engine.report(0).outcome == OTR_STEP_PENDING) {
      ASSERT_LT(seconds_since(begin), 20);
      pause(1);
    }
    ASSERT_OK(otr_engine_step(solo.engine.get(), nullptr));
  };
  Cost before{};
  for (int step = 0; step < 20; ++step) {
    if (step == 1) before = cost_of(solo.context.get());
    train(step);
  }
  const Cost after = cost_of(solo.context.get());
  EXPECT_GT(solo.engine.report().applied_steps, 0);
  return {after.allocations - before.allocations, after.synchronizations - before.synchronizations,
          after.event_synchronizations - before.event_synchronizations,
          after.unpinned - before.unpinned};
}

TEST_P(DeviceAhead, AStepWaitsForNothing) {
  for (const bool slots : {false, true}) {
    EXPECT_EQ(cost_of_steps(GetParam(), slots), Cost{}) << (slots ? "with slots" : "");
  }
}

// The default stream is busy until end, or for so long that only a host that waits for it sees the
// end.
class Busy {
 public:
  explicit Busy(otr_context* context) : context_(context) { set(kSeconds); }
  ~Busy() { end(); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

  void end() const { set(0); }
  // After so many seconds, from another thread.
  [[nodiscard]] std::jthread end_in(double seconds) const {
    return std::jthread([this, seconds] {
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
      end();
    });
  }
  [[nodiscard]] bool is_over() const { return seconds_since(begin_) >= kSeconds; }

 private:
  static constexpr double kSeconds = 20;
  void set(double seconds) const {
    EXPECT_OK(otr_device_set_value(context_, kSimulated, 0, "delay", seconds));
  }
  otr_context* const context_;
  const Clock::time_point begin_ = Clock::now();
};

// The device has not begun with the backward, and the host is through with the step and with the
// next forward.
TEST_P(DeviceAhead, TheHostRunsAhead) {
  DeviceSolo solo(config_of(GetParam()));
  add_parameters(solo.engine);
  solo.engine.commit();
  const DeviceTensor grad(solo.context.get(), simulated(), Tensor({700}, gradient_of(1, 0)));
  otr_engine* const e = solo.engine.get();
  const int64_t id = 0;
  otr_tensor weight;
  const Busy busy(solo.context.get());
  for (int i = 0; i < GetParam().accumulation; ++i) {
    const Owned<otr_pass> pass = solo.engine.begin();
    EXPECT_OK(otr_pass_add_grad(pass.get(), 0, &grad, nullptr));
    Engine::end(pass);
    EXPECT_OK(otr_engine_step(e, nullptr));
  }
  EXPECT_OK(otr_engine_acquire(e, &id, 1, nullptr, &weight));
  EXPECT_EQ(solo.engine.report(0).outcome, OTR_STEP_PENDING);
  EXPECT_EQ(solo.engine.report(0.01).outcome, OTR_STEP_PENDING);
  EXPECT_FALSE(busy.is_over()) << "a call has waited for the device";
  busy.end();
  const Values seen = values_there(solo.context.get(), weight);  // in the stream's order
  const otr_step_report report = solo.engine.report();
  EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
  EXPECT_EQ(report.applied_steps, 1);
  EXPECT_EQ(seen, solo.engine.read(id, OTR_VALUE_PUBLISHED));
  EXPECT_NE(seen, dyadic(700, 0));
}

// ---- What needs the outcome waits for it ----

TEST(DeviceAheadCalls, HearOfTheStepFirst) {
  const Form& form = kForms[8];  // a schedule
  otr_engine* e = nullptr;
  const auto next_lr = [](otr_engine* engine) {
    double lr = 0;
    EXPECT_OK(otr_engine_get_group_value(engine, nullptr, "scheduled_lr", &lr));
    return lr;
  };
  constexpr int kSteps = 3;
  std::vector<double> host_lrs;
  {
    Solo solo(config_of(form));
    add_parameters(solo.engine);
    solo.engine.commit();
    for (int i = 0; i < kSteps; ++i) {
      solo.engine.pass({{0, gradient_of(1, 0)}});
      solo.engine.step();
      host_lrs.push_back(next_lr(solo.engine.get()));
    }
  }
  ASSERT_NE(host_lrs[kSteps - 1], host_lrs[kSteps - 2]);
  const std::function<void()> calls[] = {
      [&] { EXPECT_EQ(next_lr(e), host_lrs.back()); },
      [&] {
        size_t size = 0;
        EXPECT_OK(otr_engine_get_progress(e, nullptr, &size));
      },
      [&] { EXPECT_OK(otr_engine_offload_states(e, nullptr)); },
      [&] { EXPECT_OK(otr_engine_finalize(e)); },
  };
  for (const auto& call : calls) {
    DeviceSolo solo(config_of(form));
    add_parameters(solo.engine);
    solo.engine.commit();
    e = solo.engine.get();
    const DeviceTensor grad(solo.context.get(), simulated(), Tensor({700}, gradient_of(1, 0)));
    std::optional<Busy> busy;
    for (int i = 0; i < kSteps; ++i) {
      const Owned<otr_pass> pass = solo.engine.begin();
      EXPECT_OK(otr_pass_add_grad(pass.get(), 0, &grad, nullptr));
      Engine::end(pass);
      if (i == kSteps - 1) busy.emplace(solo.context.get());
      EXPECT_OK(otr_engine_step(e, nullptr));
    }
    EXPECT_EQ(solo.engine.report(0).outcome, OTR_STEP_PENDING);
    const std::jthread ending = busy->end_in(0.1);
    call();
    EXPECT_FALSE(busy->is_over());
    EXPECT_EQ(solo.engine.report(0).outcome, OTR_STEP_APPLIED);
  }
}

TEST(DeviceAheadCalls, AReportThatThereIsNotIsRefused) {
  DeviceSolo solo(config_of(kForms[0]));
  add_parameters(solo.engine);
  solo.engine.commit();
  otr_step_report report = OTR_STEP_REPORT_INIT;
  EXPECT_FAILS(OTR_E_STATE, otr_engine_report(solo.engine.get(), 0, &report), "no step",
               "NULL for its report");
  solo.pass({{0, Values(700, 1)}});
  solo.engine.step();
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_engine_report(solo.engine.get(), std::nan(""), &report),
               "timeout_seconds");
}

// A device that fails behind the step: the call that hears of it says so, and the engine is lost.
TEST(DeviceAheadCalls, AFailureIsHeardLater) {
  for (int nth = 1; nth < 40; nth += 3) {
    SCOPED_TRACE(nth);
    DeviceSolo solo(config_of(kForms[0]));
    add_parameters(solo.engine);
    solo.engine.commit();
    const DeviceTensor grad(solo.context.get(), simulated(), Tensor({700}, gradient_of(1, 0)));
    const Owned<otr_pass> pass = solo.engine.begin();
    EXPECT_OK(otr_pass_add_grad(pass.get(), 0, &grad, nullptr));
    Engine::end(pass);
    const Busy busy(solo.context.get());
    EXPECT_OK(otr_engine_step(solo.engine.get(), nullptr));
    EXPECT_OK(otr_device_set_value(solo.context.get(), kSimulated, 0, "fail_operation", nth));
    busy.end();
    otr_step_report report = OTR_STEP_REPORT_INIT;
    const int32_t status = otr_engine_report(solo.engine.get(), -1, &report);
    double left = 0;
    EXPECT_OK(otr_device_get_value(solo.context.get(), kSimulated, 0, "fail_operation", &left));
    EXPECT_OK(otr_device_set_value(solo.context.get(), kSimulated, 0, "fail_operation", 0));
    EXPECT_EQ(status, left == 0 ? OTR_E_DEVICE_FAULT : OTR_OK);
    if (nth == 1) {
      EXPECT_EQ(left, 0) << "the first operation is one of the step";
    }
    if (status != OTR_OK) {
      EXPECT_EQ(otr_engine_report(solo.engine.get(), 0, &report), OTR_E_POISONED);
      EXPECT_EQ(otr_engine_step(solo.engine.get(), nullptr), OTR_E_POISONED);
    }
  }
}

// What the host notes behind a step is of the next record, though the step's outcome is heard
// later.
TEST(DeviceAheadWatched, ANoteIsOfItsOwnWindow) {
  DeviceSolo solo(config_of(kForms[0]));
  add_parameters(solo.engine);
  solo.engine.commit();
  otr_engine* const e = solo.engine.get();
  std::vector<std::string> records;
  otr_watch_options options;
  ASSERT_OK(otr_watch_options_init(&options, sizeof options));
  options.user_data = &records;
  options.callback = [](const char* text, void* user_data) {
    static_cast<std::vector<std::string>*>(user_data)->emplace_back(text);
  };
  ASSERT_OK(otr_engine_watch(e, &options));
  const DeviceTensor grad(solo.context.get(), simulated(), Tensor({700}, gradient_of(1, 0)));
  for (int step = 0; step < 3; ++step) {
    EXPECT_OK(otr_engine_note(e, "loss", step + 0.5));
    const Owned<otr_pass> pass = solo.engine.begin();
    EXPECT_OK(otr_pass_add_grad(pass.get(), 0, &grad, nullptr));
    Engine::end(pass);
    ASSERT_OK(otr_engine_step(e, nullptr));
  }
  solo.engine.report();
  ASSERT_EQ(records.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    const std::string notes = "\"notes\":{\"loss\":" + std::to_string(i) + ".5}";
    EXPECT_NE(records[i].find(notes), std::string::npos) << records[i];
  }
}

}  // namespace
