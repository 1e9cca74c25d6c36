// SPDX-License-Identifier: Apache-2.0
// Steps, alone and joint, and what may run beside one.
#include <cmath>
#include <optional>
#include <thread>

#include "core/base/text.h"
#include "tests/fuzz/api/calls.h"
#include "tests/fuzz/api/tally.h"

namespace otr_fuzz {
namespace {

otr_step_report draw_report(Bytes& bytes) {
  otr_step_report report = OTR_STEP_REPORT_INIT;
  if (bytes.one_in(64)) report.struct_size = bytes.below(sizeof report);
  return report;
}

void expect_sensible(const otr_step_report& r) {
  const bool good = r.outcome >= OTR_STEP_ACCUMULATED && r.outcome <= OTR_STEP_REDUCED &&
                    r.reason >= OTR_SKIP_NONE && r.reason <= OTR_SKIP_OUTLIER &&
                    (r.outcome == OTR_STEP_REDUCED ||
                     (r.outcome == OTR_STEP_SKIPPED) == (r.reason != OTR_SKIP_NONE)) &&
                    r.nonfinite_rank >= -1 && r.nonfinite_param >= -1 && r.nonfinite_count >= 0 &&
                    r.micro_steps >= r.applied_steps + r.skipped_steps && r.applied_steps >= 0 &&
                    r.skipped_steps >= 0 && r.loss_scale > 0 && r.updates >= r.vanished &&
                    r.vanished >= 0;
  if (!good) {
    broken(outrigger::format_text(
        "a report says outcome {} reason {} rank {} param {} count {} steps {} {} "
        "{} scale {} updates {} {}",
        r.outcome, r.reason, r.nonfinite_rank, r.nonfinite_param, r.nonfinite_count, r.micro_steps,
        r.applied_steps, r.skipped_steps, r.loss_scale, r.updates, r.vanished));
  }
}

// A thread that makes "any thread" calls on an engine, and now and then destroys a pass or aborts.
class Beside {
 public:
  Beside(Rank& rank, Bytes& bytes, otr_engine* engine) {
    const uint32_t what = bytes.below(16);
    PassPlace& pass = rank.passes.pick(bytes);
    if (what >= 6) return;
    thread_.emplace([&rank, &pass, engine, what] {
      Out<int64_t> count;
      Out<const char*> name;
      CALL(rank, otr_engine_check, engine);
      if (what == 0) CALL(rank, otr_engine_abort, engine, "from another thread");
      if (what == 1) rank.drop(pass);
      CALL(rank, otr_engine_live_children, engine, count);
      CALL(rank, otr_engine_parameter_name, engine, 0, name);
      CALL(rank, otr_engine_parameter_count, engine, count);
    });
  }
  ~Beside() {
    if (thread_) thread_->join();
  }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

 private:
  std::optional<std::thread> thread_;
};

void step_engine(Rank& rank, Bytes& bytes, const EnginePlace& place) {
  otr_step_report report = draw_report(bytes);
  const bool null = bytes.one_in(8);
  const Beside beside(rank, bytes, place.handle);
  if (CALL(rank, otr_engine_step, place.handle, null ? nullptr : &report) != OTR_OK) return;
  steps_done.add(place.model->where);
  if (!null) expect_sensible(report);
}

void step(Rank& rank, Bytes& bytes) { step_engine(rank, bytes, rank.engines.pick(bytes)); }

// The step beside the rank: asked for at once, after a while, or given up with its engine.
void pending_step(Rank& rank, Bytes& bytes) {
  EnginePlace& place = rank.engines.pick(bytes);
  const bool gives_up = bytes.one_in(8), begins_twice = bytes.one_in(8);
  const double seconds = bytes.one_in(2) ? 0 : 0.01;
  const bool begun = CALL(rank, otr_engine_step_begin, place.handle) == OTR_OK;
  if (begins_twice) CALL(rank, otr_engine_step_begin, place.handle);
  for (uint32_t left = bytes.below(4); left > 0; --left) {  // the next forward
    if (bytes.one_in(4)) prefetch(rank, bytes, place);
    acquire(rank, bytes, place);
    if (bytes.one_in(2)) release(rank, bytes, place);
  }
  if (gives_up) {
    rank.drop(place);
    return;
  }
  otr_step_report report = draw_report(bytes);
  report.outcome = OTR_STEP_PENDING;
  int32_t status = OTR_OK;
  while (begun && status == OTR_OK && report.outcome == OTR_STEP_PENDING) {
    Out<int64_t> count;
    CALL(rank, otr_engine_live_children, place.handle, count);
    status = CALL(rank, otr_engine_report, place.handle, seconds, &report);
  }
  if (begun && status == OTR_OK) expect_sensible(report);
  // An ABI mistake leaves the step pending: it is waited for.
  report = OTR_STEP_REPORT_INIT;
  CALL(rank, otr_engine_report, place.handle, -1.0, bytes.one_in(4) ? nullptr : &report);
}

void reduce(Rank& rank, Bytes& bytes) {
  otr_engine* engine = rank.engines.pick(bytes).handle;
  otr_step_report report = draw_report(bytes);
  const bool null = bytes.one_in(8);
  const Beside beside(rank, bytes, engine);
  if (CALL(rank, otr_engine_reduce, engine, null ? nullptr : &report) == OTR_OK && !null) {
    expect_sensible(report);
  }
}

// As a host with an update rule of its own does it: the weights of this rank between the halves.
void host_update(Rank& rank, Bytes& bytes, const EnginePlace& place) {
  otr_step_report report = OTR_STEP_REPORT_INIT;
  if (CALL(rank, otr_engine_reduce, place.handle, &report) != OTR_OK) return;
  const bool late = bytes.one_in(8);
  for (size_t i = 0; i < place.model->parameters.size(); ++i) {
    const auto id = static_cast<int64_t>(i);
    Out<int32_t> has_grad;
    Out<int64_t> first, count;
    if (CALL(rank, otr_engine_has_grad, place.handle, id, has_grad) != OTR_OK ||
        CALL(rank, otr_engine_local_range, place.handle, id, first, count) != OTR_OK) {
      continue;
    }
    if (has_grad.value == 0 && !late) continue;
    const Sample weight = make_sample(bytes, place.model->where, {count.value}, "float32");
    CALL(rank, otr_engine_local_read, place.handle, id, OTR_VALUE_GRAD, &weight.tensor);
    CALL(rank, otr_engine_local_write, place.handle, id, OTR_VALUE_MASTER, &weight.tensor);
  }
}

void discard(Rank& rank, Bytes& bytes) {
  CALL(rank, otr_engine_discard, rank.engines.pick(bytes).handle);
}

// Rolls a run back to where it is, or to what is nearly that.
void progress(Rank& rank, Bytes& bytes) {
  otr_engine* engine = rank.engines.pick(bytes).handle;
  size_t size = 0;
  if (CALL(rank, otr_engine_get_progress, engine, nullptr, &size) != OTR_OK) return;
  std::string text(size, ' ');
  if (CALL(rank, otr_engine_get_progress, engine, text.data(), &size) != OTR_OK) {
    broken("a progress cannot be fetched with the size that was asked");
  }
  text.resize(size - 1);
  if (bytes.one_in(2))
    text[bytes.below(static_cast<uint32_t>(text.size()))] = static_cast<char>(bytes.byte());
  CALL(rank, otr_engine_set_progress, engine, text.c_str());
}

// A whole micro-batch in one row of the table: a gradient for every parameter, and the step.
void micro_batch(Rank& rank, Bytes& bytes) {
  const EnginePlace& place = rank.engines.pick(bytes);
  const std::shared_ptr<Model> model = place.model;
  const bool wild = bytes.one_in(16);
  const uint32_t missing = bytes.one_in(4) ? bytes.byte() : 0;
  const Sample loss = make_sample(bytes, model->where, {}, "float32");
  Roomy<otr_call_info> info;
  const otr_call_info* given = draw_stream(bytes, model->where, info);
  Out<otr_pass*> pass;
  if (CALL(rank, otr_pass_begin, place.handle, &loss.tensor, 1, given, pass) == OTR_OK) {
    for (size_t i = model->parameters.size(); i-- > 0;) {
      if ((missing >> (i % 8) & 1) != 0) continue;
      const auto id = static_cast<int64_t>(i);
      const Sample grad = make_sample(bytes, model->where, model->parameters[i].shape, "float32");
      fill(bytes, model->where, grad.tensor, wild);
      Out<otr_tensor> slot;
      if (bytes.one_in(2) && CALL(rank, otr_pass_get_slot, pass.value, id, slot) == OTR_OK) {
        fill(bytes, model->where, slot.value, wild);
        CALL(rank, otr_pass_add_grad, pass.value, id, &slot.value, given);
      } else {
        CALL(rank, otr_pass_add_grad, pass.value, id, &grad.tensor, given);
      }
    }
    if (CALL(rank, otr_pass_end, pass.value) == OTR_OK) passes_ended.add(model->where);
  }
  if (bytes.one_in(3)) host_update(rank, bytes, place);
  step_engine(rank, bytes, place);
  GIVE_BACK(rank, otr_pass_destroy, pass.value);
}

void step_many(Rank& rank, Bytes& bytes) {
  std::vector<otr_engine*> engines;
  std::vector<otr_step_report> reports;
  for (uint32_t left = bytes.below(4); left > 0; --left) {
    engines.push_back(rank.engines.pick(bytes).handle);
    reports.push_back(draw_report(bytes));
  }
  otr_comm* joint = bytes.one_in(3) ? rank.comms.pick(bytes).handle : nullptr;
  const bool null = bytes.one_in(8);
  if (CALL(rank, otr_step_many, engines.data(), static_cast<int64_t>(engines.size()), joint,
           null ? nullptr : reports.data()) != OTR_OK ||
      null) {
    return;
  }
  for (const otr_step_report& report : reports) expect_sensible(report);
}

void boundary(Rank& rank, Bytes& bytes) {
  otr_engine* engine = rank.engines.pick(bytes).handle;
  const int32_t which = bytes.one_in(16) ? 9 : static_cast<int32_t>(bytes.below(3));
  CALL(rank, otr_engine_set_boundary, engine, which);
}

void window(Rank& rank, Bytes& bytes) {
  otr_engine* engine = rank.engines.pick(bytes).handle;
  Out<int32_t> is_boundary(bytes);
  Out<double> scale(bytes);
  CALL(rank, otr_engine_get_boundary, engine, is_boundary);
  CALL(rank, otr_engine_get_loss_scale, engine, scale);
}

constexpr Call kCalls[] = {{"step", Scope::collective, 6, step},
                           {"pending step", Scope::collective, 4, pending_step},
                           {"reduce", Scope::collective, 3, reduce},
                           {"discard", Scope::collective, 2, discard},
                           {"progress", Scope::collective, 2, progress},
                           {"micro-batch", Scope::collective, 14, micro_batch},
                           {"step many", Scope::collective, 4, step_many},
                           {"set boundary", Scope::local, 2, boundary},
                           {"window", Scope::local, 1, window}};

}  // namespace

std::span<const Call> step_calls() { return kCalls; }

}  // namespace otr_fuzz
