// SPDX-License-Identifier: Apache-2.0
// Where an engine's time goes, and how many bytes it moves: spans are summed up, from one record
// of a step to the next, and become events of traces. Off, a span costs one load.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/observe/trace_file.h"

namespace outrigger::observe {

enum class Phase : uint8_t {
  // Of the calls that the host makes.
  backward,  // from otr_pass_begin to otr_pass_end: with the host's own work, and acquires in it
  acquire,
  reduce,  // a step's: what the sums over ranks still lack, and the decision of all ranks
  update,
  publish,
  save,  // how long the host was held up
  load,
  // Of the library's threads, beside them.
  sums,      // of gradients over ranks
  prefetch,  // of parameters
  write,     // of a checkpoint
  count
};
inline constexpr size_t kPhases = static_cast<size_t>(Phase::count);
[[nodiscard]] const char* name_of(Phase phase);

[[nodiscard]] int64_t now();  // nanoseconds of a clock that only goes on

class Timeline {
 public:
  Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  [[nodiscard]] bool is_on() const { return on_.load(std::memory_order_relaxed); }
  void turn_on();
  // From here on. Throws OTR_E_IO. title: of this rank.
  void trace_to(const std::string& folder, int32_t rank, std::string_view title);

  // This rank's calendar_now(), compared with rank 0's: traces tell it. Once.
  void set_clock(int64_t offset, int64_t bound);
  [[nodiscard]] int64_t calendar_now() const;  // the clock of traces
  [[nodiscard]] bool has_traces() const { return has_traces_.load(std::memory_order_acquire); }

  // A span that is over. bytes: of values that ranks exchanged in it. Any thread.
  void add(Phase phase, int64_t begin, int64_t end, std::string_view detail = {},
           int64_t bytes = 0) noexcept;

  struct Totals {
    std::array<int64_t, kPhases> nanoseconds{}, bytes{};
    int64_t elapsed = 0;  // nanoseconds since the last ones, or since it was turned on
  };
  // Since the last call; traces go to their files.
  // One thread at a time.
  [[nodiscard]] Totals take();
  // Of a trace's file that could not be written, once; else empty.
  [[nodiscard]] std::string take_trouble();

 private:
  void note_trouble(const OutputFile& file);  // with the mutex

  const int64_t to_calendar_;  // from now() to the time since 1970, which a host's ranks have alike
  std::atomic<bool> on_{false};
  std::array<std::atomic<int64_t>, kPhases> nanoseconds_{}, bytes_{};
  int64_t since_ = 0;
  std::mutex mutex_;  // guards the next
  std::vector<std::unique_ptr<TraceFile>> traces_;
  std::string trouble_;
  std::optional<std::pair<int64_t, int64_t>> clock_;  // offset and bound
  std::atomic<bool> has_traces_{false};
};

// From its construction to its end.
class Span {
 public:
  // timeline: null where nothing is observed. detail lives as long as this.
  Span(Timeline* timeline, Phase phase, std::string_view detail = {})
      : timeline_(timeline != nullptr && timeline->is_on() ? timeline : nullptr),
        phase_(phase),
        detail_(detail),
        begin_(timeline_ == nullptr ? 0 : now()) {}
  ~Span() {
    if (timeline_ != nullptr) timeline_->add(phase_, begin_, now(), detail_, bytes_);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  void set_bytes(int64_t bytes) { bytes_ = bytes; }

 private:
  Timeline* timeline_;
  Phase phase_;
  std::string_view detail_;
  int64_t begin_, bytes_ = 0;
};

}  // namespace outrigger::observe
