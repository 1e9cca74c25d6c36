// SPDX-License-Identifier: Apache-2.0
// Everything that would otherwise be global.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "core/device/registry.h"
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
};

}  // namespace outrigger
