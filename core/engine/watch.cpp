// SPDX-License-Identifier: Apache-2.0
#include "core/engine/watch.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/base/text.h"

namespace outrigger::engine {
namespace {

using Json = nlohmann::ordered_json;

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

double calendar_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

const char* outcome_of(const otr_step_report& report) {
  return report.outcome == OTR_STEP_APPLIED ? "applied" : "skipped";
}

Json reason_of(const otr_step_report& report) {
  switch (report.reason) {
    case OTR_SKIP_NONFINITE:
      return "nonfinite";
    case OTR_SKIP_ABANDONED:
      return "abandoned";
    case OTR_SKIP_SEED_OVERFLOW:
      return "seed_overflow";
    case OTR_SKIP_JOINT:
      return "joint";
    case OTR_SKIP_OUTLIER:
      return "outlier";
    default:
      return nullptr;
  }
}

Json nonfinite_of(const otr_step_report& report, const layout::Model& model) {
  if (report.reason != OTR_SKIP_NONFINITE && report.reason != OTR_SKIP_SEED_OVERFLOW)
    return nullptr;
  Json found = {{"parameter", nullptr}, {"rank", nullptr}, {"count", report.nonfinite_count}};
  if (report.nonfinite_param >= 0) found["parameter"] = model.at(report.nonfinite_param).name;
  if (report.nonfinite_rank >= 0) found["rank"] = report.nonfinite_rank;
  return found;
}

// Purposes that have nothing are left out.
Json memory_of(const memory::Ledger& ledger, memory::Space space) {
  const auto entries = ledger.entries(space);
  Json found = {{"resident", entries.back().resident}, {"peak", entries.back().peak}};
  for (size_t i = 0; i < memory::kPurposes; ++i) {
    if (entries.at(i).resident == 0) continue;
    found["by_purpose"][memory::name_of(static_cast<memory::Purpose>(i))] = entries.at(i).resident;
  }
  return found;
}

// Of the whole process, as the system counts it.
Json process_memory() {
  int64_t total = 0, resident = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "re")) {
    if (std::fscanf(file, "%ld %ld", &total, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const int64_t bytes = resident * sysconf(_SC_PAGESIZE);
  // The system's peak may lag behind by what threads have not added up yet.
  return {{"resident", bytes}, {"peak", std::max(bytes, int64_t{usage.ru_maxrss} * 1024)}};
}

Json seconds_and_bytes(const observe::Timeline::Totals& totals) {
  Json seconds = {{"elapsed", static_cast<double>(totals.elapsed) * 1e-9}};
  Json bytes = Json::object();
  for (size_t i = 0; i < observe::kPhases; ++i) {
    const char* const name = observe::name_of(static_cast<observe::Phase>(i));
    seconds[name] = static_cast<double>(totals.nanoseconds.at(i)) * 1e-9;
    if (totals.bytes.at(i) > 0) bytes[name] = totals.bytes.at(i);
  }
  return {{"seconds", std::move(seconds)}, {"bytes", std::move(bytes)}};
}

}  // namespace

void Watch::add(const WatchOptions& options) {
  const std::lock_guard lock(mutex_);
  if (sinks_.size() == kMostCalls) {
    fail(OTR_E_STATE, "otr_engine_watch: an engine takes at most {} of these calls", kMostCalls);
  }
  Sink sink{options, nullptr};
  if (!options.records.empty()) {
    sink.file = std::make_unique<observe::OutputFile>(options.records, declared_.rank, ".jsonl");
  }
  if (!options.trace.empty()) {
    const std::string name = options.name.empty() ? "" : options.name + ", ";
    try {
      declared_.timeline.trace_to(
          options.trace, declared_.rank,
          format_text("{}rank {} of {}, process {} on {}", name, declared_.rank, declared_.world,
                      current_process(), host_name()));
    } catch (...) {
      if (sink.file) sink.file->remove();
      throw;
    }
  }
  declared_.timeline.turn_on();
  sinks_.push_back(std::move(sink));
  if (!first_line_.empty()) begin(sinks_.back());
}

void Watch::add_from_environment() {
  if (std::exchange(from_environment_, true)) return;
  const auto folder = [](const char* variable) {
    const char* const value = std::getenv(variable);
    return std::string(value == nullptr ? "" : value);
  };
  WatchOptions options;
  options.records = folder("OTR_RECORDS");
  options.trace = folder("OTR_TRACE");
  if (options.records.empty() && options.trace.empty()) return;
  try {
    add(options);
  } catch (const Error& error) {
    from_environment_ = false;
    fail(error.status(), "OTR_RECORDS or OTR_TRACE of the environment: {}", error.what());
  }
}

void Watch::start(const Committed& committed) {
  int64_t elements = 0;
  for (const int64_t root : declared_.trainable_roots()) elements += declared_.model.at(root).count;
  const Json line = {{"record", "start"},
                     {"version", 1},
                     {"library", OTR_VERSION_STRING},
                     {"time", calendar_seconds()},
                     {"rank", declared_.rank},
                     {"world", declared_.world},
                     {"host", host_name()},
                     {"process", current_process()},
                     {"provider", committed.control.provider()},
                     {"device", declared_.front().name()},
                     {"stage", declared_.config.stage},
                     {"parameters", declared_.model.size()},
                     {"trainable_elements", elements}};
  const std::lock_guard lock(mutex_);
  first_line_ = line_of(line);
  first_line_.pop_back();  // begin() closes it behind the name
  for (const Sink& sink : sinks_) begin(sink);
}

void Watch::begin(const Sink& sink) noexcept {
  if (!sink.file) return;
  try {
    const Json name = sink.options.name.empty() ? Json(nullptr) : Json(sink.options.name);
    const std::string line = first_line_ + ",\"name\":" + line_of(name) + "}\n";
    if (!sink.file->write(line)) warn(sink.file->path());
  } catch (...) {  // no memory for a line
  }
}

void Watch::note(std::string_view name, double value) {
  if (name.empty() || name.size() > kMostName || !is_utf8(name)) {
    fail(OTR_E_ARGUMENT, "otr_engine_note: name is \"{}\"; legal are 1 to {} bytes of UTF-8",
         printable(name), kMostName);
  }
  if (!declared_.timeline.is_on()) return;
  const std::lock_guard lock(mutex_);
  if (notes_.size() == kMostNotes && !notes_.contains(name)) {
    fail(OTR_E_ARGUMENT, "otr_engine_note: \"{}\" is one too many: a record takes {} names",
         printable(name), kMostNotes);
  }
  notes_.insert_or_assign(std::string(name), value);
}

Watch::Closed Watch::take_window() {
  return {std::exchange(notes_, {}), declared_.timeline.take(), calendar_seconds()};
}

void Watch::close_window() {
  if (!declared_.timeline.is_on()) return;
  const std::lock_guard lock(mutex_);
  closed_ = take_window();
}

std::string Watch::text_of(const otr_step_report& report, const Closed& window) const {
  Json line = {{"record", "step"},
               {"time", window.time},
               {"micro_steps", report.micro_steps},
               {"applied_steps", report.applied_steps},
               {"skipped_steps", report.skipped_steps},
               {"outcome", outcome_of(report)},
               {"reason", reason_of(report)},
               {"nonfinite", nonfinite_of(report, declared_.model)},
               {"grad_norm", report.grad_norm},
               {"clip_coefficient", report.clip_coefficient},
               {"loss_scale", report.loss_scale},
               {"lr", report.lr},
               {"updates", report.updates},
               {"vanished", report.vanished},
               {"notes", window.notes}};
  line.update(seconds_and_bytes(window.totals));
  line["memory"]["host"] = memory_of(declared_.ledger, memory::Space::host);
  if (declared_.device)
    line["memory"]["device"] = memory_of(declared_.ledger, memory::Space::device);
  line["memory"]["process"] = process_memory();
  return line_of(line);
}

void Watch::record(const otr_step_report& report) noexcept {
  if (!declared_.timeline.is_on()) return;
  try {
    const std::lock_guard lock(mutex_);
    if (!closed_) closed_ = take_window();
    last_ = text_of(report, *closed_);
    closed_.reset();
    write(last_);
    undelivered_.push_back(last_);
    if (const std::string trouble = declared_.timeline.take_trouble(); !trouble.empty()) {
      warn(trouble);
    }
  } catch (...) {  // no memory for a record: it is missing, and the training goes on
  }
}

void Watch::write(std::string_view line) noexcept {
  for (const Sink& sink : sinks_) {
    if (!sink.file) continue;
    try {
      if (!sink.file->write(std::string(line) + "\n")) warn(sink.file->path());
    } catch (...) {  // no memory for a line
    }
  }
}

void Watch::warn(std::string_view trouble) const noexcept {
  try {
    declared_.context->log(
        OTR_LOG_WARNING, format_text("a file of records or of a trace cannot be written any more, "
                                     "and stays as it is: {}",
                                     trouble));
  } catch (...) {  // no memory for a line of the log
  }
}

std::string Watch::last() const {
  const std::lock_guard lock(mutex_);
  if (sinks_.empty()) {
    fail(OTR_E_STATE, "otr_engine_get_record: no records are made: call otr_engine_watch first");
  }
  if (last_.empty()) {
    fail(OTR_E_NOT_FOUND,
         "otr_engine_get_record: no window has ended since otr_engine_watch was called");
  }
  return last_;
}

void Watch::deliver() {
  std::deque<std::string> records;
  std::vector<std::pair<otr_record_callback, void*>> callbacks;
  {
    const std::lock_guard lock(mutex_);
    records.swap(undelivered_);
    for (const Sink& sink : sinks_) {
      if (sink.options.callback != nullptr) {
        callbacks.emplace_back(sink.options.callback, sink.options.user_data);
      }
    }
  }
  for (const std::string& record : records) {
    for (const auto& [callback, user_data] : callbacks) callback(record.c_str(), user_data);
  }
}

void Watch::end(std::string_view how) noexcept {
  if (!declared_.timeline.is_on()) return;
  try {
    const std::lock_guard lock(mutex_);
    if (std::exchange(ended_, true) || first_line_.empty()) return;
    static_cast<void>(declared_.timeline.take());
    write(line_of({{"record", "end"}, {"time", calendar_seconds()}, {"how", how}}));
  } catch (...) {  // no memory for a line
  }
}

}  // namespace outrigger::engine
