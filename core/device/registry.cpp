// SPDX-License-Identifier: Apache-2.0
#include "core/device/registry.h"

#include "core/base/error.h"

namespace outrigger::device {

void Registry::load(const std::string& name) {
  const Plugin plugin = load_plugin(name);
  const std::lock_guard lock(mutex_);
  const auto [entry, added] = plugins_.try_emplace(plugin.table.device_type, plugin);
  if (!added && entry->second.given != plugin.given) {
    fail(OTR_E_DUPLICATE, "{} drives devices of type {}, and so does {}, which is loaded",
         plugin.path, plugin.table.device_type, entry->second.path);
  }
}

const Plugin& Registry::plugin_for(int32_t device_type) {
  const auto found = plugins_.find(device_type);
  if (found != plugins_.end()) return found->second;
  if (device_type == OTR_DEVICE_CUDA) {
    return plugins_.emplace(device_type, load_plugin("cuda")).first->second;
  }
  fail(OTR_E_NOT_FOUND,
       "no plugin drives devices of type {}: load one with otr_context_load_plugin", device_type);
}

std::shared_ptr<PluginDevice> Registry::open(otr_device id) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<PluginDevice>& device = devices_[{id.device_type, id.device_id}];
  if (!device) device = std::make_shared<PluginDevice>(plugin_for(id.device_type), id.device_id);
  return device;
}

int32_t Registry::count(int32_t device_type) {
  const std::lock_guard lock(mutex_);
  int32_t count = 0;
  const Plugin& plugin = plugin_for(device_type);
  const int32_t status = plugin.table.device_count(&count);
  if (status != OTR_OK) fail(status, "{}: {}", plugin.path, plugin.table.last_error());
  return count;
}

}  // namespace outrigger::device
