// SPDX-License-Identifier: Apache-2.0
// Records of an engine's steps, for the host and for files: docs/watching.md has their members.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/committed.h"
#include "core/engine/declared.h"
#include "core/observe/output_file.h"
#include "core/observe/timeline.h"

namespace outrigger::engine {

struct WatchOptions {
  std::string name, records, trace;  // empty: none
  otr_record_callback callback = nullptr;
  void* user_data = nullptr;
};

class Watch {
 public:
  explicit Watch(Declared& declared) : declared_(declared) {}
  ~Watch() { end("destroyed"); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Throws OTR_E_IO, OTR_E_STATE (too many); nothing is changed then.
  void add(const WatchOptions& options);
  // What the environment asks for. Throws OTR_E_IO.
  void add_from_environment();
  // Commit is over: files begin with what this rank is.
  void start(const Committed& committed);

  // Any thread. Throws OTR_E_ARGUMENT.
  void note(std::string_view name, double value);
  // The next record is of what came before this, though its outcome may be heard later.
  void close_window();
  // A window's outcome is known; closes it if that was not done.
  void record(const otr_step_report& report) noexcept;
  // Any thread. Throws OTR_E_NOT_FOUND, OTR_E_STATE.
  [[nodiscard]] std::string last() const;
  // Callbacks get what they lack; on the host's thread.
  void deliver();
  // No more records; how: "finalized", or what happened. The first call counts.
  void end(std::string_view how) noexcept;

 private:
  static constexpr size_t kMostCalls = 16, kMostNotes = 32, kMostName = 64;

  struct Sink {
    WatchOptions options;
    std::unique_ptr<observe::OutputFile> file;  // null: none
  };
  struct Closed {
    std::map<std::string, double, std::less<>> notes;
    observe::Timeline::Totals totals;
    double time = 0;  // seconds since 1970
  };
  [[nodiscard]] Closed take_window();
  [[nodiscard]] std::string text_of(const otr_step_report& report, const Closed& window) const;
  void begin(const Sink& sink) noexcept;  // its first line
  void write(std::string_view line) noexcept;
  void warn(std::string_view trouble) const noexcept;

  Declared& declared_;
  mutable std::mutex mutex_;  // guards all that follows
  std::vector<Sink> sinks_;
  std::map<std::string, double, std::less<>> notes_;
  std::optional<Closed> closed_;
  std::string first_line_;  // up to the name; empty before commit
  std::string last_;
  std::deque<std::string> undelivered_;
  bool from_environment_ = false, ended_ = false;
};

}  // namespace outrigger::engine
