// SPDX-License-Identifier: Apache-2.0
#include "core/observe/trace_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/process.h"
#include "core/base/text.h"

namespace outrigger::observe {
namespace {

constexpr size_t kKeep = size_t{64} << 10;  // bytes of events between two writes

std::string quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Every line begins alike, so that traces can be put together without reading the rest of it.
std::string metadata(int64_t process, int32_t track, std::string_view what, std::string_view key,
                     const std::string& value) {
  return format_text(R"({{"pid":{},"tid":{},"ph":"M","name":"{}","args":{{"{}":{}}}}},)"
                     "\n",
                     process, track, what, key, value);
}

}  // namespace

TraceFile::TraceFile(const std::string& folder, int32_t rank, const Names& names)
    : file_(folder, rank, ".trace.json"), process_(current_process()) {
  lines_ = "[\n";
  lines_ += metadata(process_, 0, "process_name", "name", quoted(names.title));
  lines_ += metadata(process_, 0, "process_sort_index", "sort_index", format_text("{}", rank));
  for (int32_t track = 0; track < names.track_count; ++track) {
    lines_ += metadata(process_, track, "thread_name", "name", quoted(names.tracks[track]));
    lines_ +=
        metadata(process_, track, "thread_sort_index", "sort_index", format_text("{}", track));
  }
}

void TraceFile::add_clock(int64_t offset, int64_t bound) {
  lines_ += format_text(
      R"({{"pid":{},"tid":0,"ph":"M","name":"clock","args":{{"offset_ns":{},"bound_ns":{}}}}},)"
      "\n",
      process_, offset, bound);
}

bool TraceFile::add(const TraceEvent& event) {
  if (is_full_) return true;
  const auto microseconds = [](int64_t nanoseconds) {
    return format_text("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
  };
  std::string arguments;
  if (!event.detail.empty()) arguments = format_text(R"("what":{})", quoted(event.detail));
  if (event.bytes > 0) {
    arguments += format_text(R"({}"bytes":{})", arguments.empty() ? "" : ",", event.bytes);
  }
  lines_ +=
      format_text(R"({{"pid":{},"tid":{},"ph":"X","name":"{}","ts":{},"dur":{},"args":{{{}}}}},)"
                  "\n",
                  process_, event.track, event.name, microseconds(event.begin),
                  microseconds(std::max<int64_t>(0, event.end - event.begin)), arguments);
  if (file_.written() + static_cast<int64_t>(lines_.size()) > kMostBytes) {
    is_full_ = true;
    lines_ += format_text(
        R"({{"pid":{},"tid":{},"ph":"i","s":"p","name":"the trace ends here: it has {} bytes","ts":{}}},)"
        "\n",
        process_, event.track, kMostBytes, microseconds(event.end));
    return flush();
  }
  return lines_.size() < kKeep || flush();
}

bool TraceFile::flush() noexcept {
  const bool good = file_.write(lines_);
  lines_.clear();
  return good;
}

}  // namespace outrigger::observe
