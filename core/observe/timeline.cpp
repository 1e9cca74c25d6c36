// SPDX-License-Identifier: Apache-2.0
#include "core/observe/timeline.h"

#include <ctime>
#include <string>
#include <system_error>
#include <utility>

#include "core/base/text.h"

namespace outrigger::observe {
namespace {

enum class Track : uint8_t { host, sums, prefetch, write, count };
constexpr std::array<const char*, static_cast<size_t>(Track::count)> kTracks{
    "calls of the host", "sums of gradients", "prefetched parameters", "asynchronous saves"};

Track track_of(Phase phase) {
  switch (phase) {
    case Phase::sums:
      return Track::sums;
    case Phase::prefetch:
      return Track::prefetch;
    case Phase::write:
      return Track::write;
    default:
      return Track::host;
  }
}

int64_t read_clock(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

const char* name_of(Phase phase) {
  static constexpr std::array<const char*, kPhases> kNames{
      "backward", "acquire", "reduce", "update",   "publish",
      "save",     "load",    "sums",   "prefetch", "write"};
  return kNames.at(static_cast<size_t>(phase));
}

int64_t now() { return read_clock(CLOCK_MONOTONIC); }

Timeline::Timeline() : to_calendar_(read_clock(CLOCK_REALTIME) - now()) {}

void Timeline::turn_on() {
  if (is_on()) return;
  since_ = now();
  on_.store(true, std::memory_order_relaxed);
}

void Timeline::trace_to(const std::string& folder, int32_t rank, std::string_view title) {
  const TraceFile::Names names{title, kTracks.data(), static_cast<int32_t>(kTracks.size())};
  auto trace = std::make_unique<TraceFile>(folder, rank, names);
  {
    const std::lock_guard lock(mutex_);
    if (clock_) trace->add_clock(clock_->first, clock_->second);
    traces_.push_back(std::move(trace));
  }
  has_traces_.store(true, std::memory_order_release);
  turn_on();
}

int64_t Timeline::calendar_now() const { return now() + to_calendar_; }

void Timeline::set_clock(int64_t offset, int64_t bound) {
  const std::lock_guard lock(mutex_);
  clock_ = {offset, bound};
  for (const auto& trace : traces_) trace->add_clock(offset, bound);
}

void Timeline::add(Phase phase, int64_t begin, int64_t end, std::string_view detail,
                   int64_t bytes) noexcept {
  const auto index = static_cast<size_t>(phase);
  nanoseconds_.at(index).fetch_add(end - begin, std::memory_order_relaxed);
  bytes_.at(index).fetch_add(bytes, std::memory_order_relaxed);
  if (!has_traces_.load(std::memory_order_acquire)) return;
  try {
    const std::lock_guard lock(mutex_);
    const TraceEvent event{
        name_of(phase),     detail, static_cast<int32_t>(track_of(phase)), begin + to_calendar_,
        end + to_calendar_, bytes};
    for (const auto& trace : traces_) {
      if (!trace->add(event)) note_trouble(trace->file());
    }
  } catch (...) {  // no memory for an event: the trace lacks it
  }
}

Timeline::Totals Timeline::take() {
  Totals totals;
  const int64_t moment = now();
  totals.elapsed = moment - since_;
  since_ = moment;
  for (size_t i = 0; i < kPhases; ++i) {
    totals.nanoseconds.at(i) = nanoseconds_.at(i).exchange(0, std::memory_order_relaxed);
    totals.bytes.at(i) = bytes_.at(i).exchange(0, std::memory_order_relaxed);
  }
  const std::lock_guard lock(mutex_);
  for (const auto& trace : traces_) {
    if (!trace->flush()) note_trouble(trace->file());
  }
  return totals;
}

void Timeline::note_trouble(const OutputFile& file) {
  trouble_ = format_text("{}: {}", file.path(), std::generic_category().message(file.error()));
}

std::string Timeline::take_trouble() {
  const std::lock_guard lock(mutex_);
  return std::exchange(trouble_, {});
}

}  // namespace outrigger::observe
