// SPDX-License-Identifier: Apache-2.0
// The plugins that a context has loaded, and the devices it has opened of them.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "core/device/plugin.h"

namespace outrigger::device {

class Registry {
 public:
  // A plugin that is loaded already stays.
  void load(const std::string& name);
  // Opened at first use, closed with the context. CUDA devices load the plugin "cuda" by
  // themselves. Throws OTR_E_NOT_FOUND where no plugin drives the type.
  [[nodiscard]] std::shared_ptr<PluginDevice> open(otr_device id);
  [[nodiscard]] int32_t count(int32_t device_type);

 private:
  [[nodiscard]] const Plugin& plugin_for(int32_t device_type);
  std::mutex mutex_;
  std::map<int32_t, Plugin> plugins_;  // by device type; guarded by mutex_, as is the next
  std::map<std::pair<int32_t, int32_t>, std::shared_ptr<PluginDevice>> devices_;
};

}  // namespace outrigger::device
