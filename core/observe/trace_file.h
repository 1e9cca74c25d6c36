// SPDX-License-Identifier: Apache-2.0
// Spans as events of the Trace Event Format, which Perfetto and chrome://tracing read. One line an
// event, and no need of a closing bracket: what a process that was killed has written is a trace.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/observe/output_file.h"

namespace outrigger::observe {

struct TraceEvent {
  std::string_view name, detail;  // detail: of this one, such as a parameter; may be empty
  int32_t track;
  int64_t begin, end;  // nanoseconds since 1970
  int64_t bytes;       // that it moved; 0: unknown
};

// Not for two threads at a time.
class TraceFile {
 public:
  static constexpr int64_t kMostBytes = int64_t{256} << 20;  // then a last event says so

  // tracks: names by number. title: of the process. Throws OTR_E_IO.
  struct Names {
    std::string_view title;
    const char* const* tracks;
    int32_t track_count;
  };
  TraceFile(const std::string& folder, int32_t rank, const Names& names);
  ~TraceFile() { flush(); }
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // How much this rank's clock shows more than rank 0's, in nanoseconds, wrong by at most `bound`:
  // for who puts traces together.
  void add_clock(int64_t offset, int64_t bound);
  // Kept until there are many, or flush. False: the file has failed just now.
  bool add(const TraceEvent& event);
  bool flush() noexcept;
  [[nodiscard]] const OutputFile& file() const { return file_; }

 private:
  OutputFile file_;
  int64_t process_;
  std::string lines_;
  bool is_full_ = false;
};

}  // namespace outrigger::observe
