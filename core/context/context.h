// SPDX-License-Identifier: Apache-2.0
// Everything that would otherwise be global.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "core/device/registry.h"
#include "core/observe/flight_recorder.h"
#include "outrigger.h"

namespace outrigger {

class Context {
 public:
  explicit Context(const otr_context_options& options);

  [[nodiscard]] int32_t workers() const { return workers_; }  // threads per engine
  [[nodiscard]] bool logs(int32_t level) const {
    return options_.log_callback != nullptr && level <= options_.log_level;
  }
  void log(int32_t level, const std::string& text) const;  // where logs(level)
  [[nodiscard]] device::Registry& devices() { return devices_; }
  // That of this process's ranks: one for as long as a communicator keeps it. own: of a rank that
  // is a thread. Null where none is wanted, or none can be had where nobody has stated a folder;
  // the log tells of that. Throws OTR_E_IO where the stated folder cannot be written to.
  [[nodiscard]] std::shared_ptr<observe::FlightRecorder> flight_recorder();
  [[nodiscard]] std::shared_ptr<observe::FlightRecorder> own_flight_recorder();
  [[nodiscard]] bool can_interrupt() const { return options_.interrupt_callback != nullptr; }
  // Asks the host; only where it can.
  [[nodiscard]] bool wants_interrupt() const {
    return options_.interrupt_callback(options_.interrupt_user_data) != 0;
  }

 private:
  otr_context_options options_;
  int32_t workers_;
  mutable std::mutex log_mutex_;
  device::Registry devices_;
  std::mutex flight_mutex_;  // guards the next
  std::weak_ptr<observe::FlightRecorder> flight_recorder_;
  bool has_swept_ = false;
};

}  // namespace outrigger
