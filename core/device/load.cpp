// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/device/plugin.h"

namespace outrigger::device {
namespace {

constexpr std::string_view kPrefix = "liboutrigger_", kSuffix = ".so";

std::string folder_of_this_library() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&load_plugin), &info) == 0) return {};
  const std::string path = info.dli_fname == nullptr ? "" : info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

// Of OTR_PLUGIN_PATH, then this library's own.
std::vector<std::string> folders() {
  std::vector<std::string> all;
  const char* variable = std::getenv("OTR_PLUGIN_PATH");
  for (std::string rest = variable == nullptr ? "" : variable; !rest.empty();) {
    const size_t colon = rest.find(':');
    if (colon != 0) all.push_back(rest.substr(0, colon));
    rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
  }
  const std::string own = folder_of_this_library();
  if (!own.empty()) all.push_back(own);
  return all;
}

std::vector<std::string> candidates(const std::string& name) {
  if (name.find('/') != std::string::npos) return {name};
  const std::string file = format_text("{}{}{}", kPrefix, name, kSuffix);
  std::vector<std::string> paths;
  for (const std::string& folder : folders()) paths.push_back(format_text("{}/{}", folder, file));
  paths.push_back(file);  // the system's folders
  return paths;
}

FoundPlugin examine(const std::string& path) {
  FoundPlugin found;
  found.path = path;
  try {
    const otr_device_plugin table = load_plugin(path).table;
    found.name = table.name;
    found.device_type = table.device_type;
    if (table.device_count(&found.devices) != OTR_OK) found.error = table.last_error();
  } catch (const Error& error) {
    found.error = error.what();
  }
  return found;
}

}  // namespace

Plugin load_plugin(const std::string& name) {
  if (name.empty()) fail(OTR_E_ARGUMENT, "the plugin's name is empty; \"simulated\" is one");
  std::string tried;
  for (const std::string& path : candidates(name)) {
    void* object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (object == nullptr) {
      const char* reason = dlerror();
      tried += format_text("{}{}", tried.empty() ? "" : "; ", reason == nullptr ? path : reason);
      continue;
    }
    const auto function =
        reinterpret_cast<otr_device_plugin_function>(dlsym(object, OTR_DEVICE_PLUGIN_SYMBOL));
    if (function == nullptr) {
      fail(OTR_E_ABI, "{} is no device plugin: it has no {}", path, OTR_DEVICE_PLUGIN_SYMBOL);
    }
    const otr_device_plugin* table = function();
    if (table == nullptr || table->struct_size < OTR_DEVICE_PLUGIN_LEAST_SIZE ||
        table->version != OTR_DEVICE_PLUGIN_VERSION) {
      fail(OTR_E_ABI,
           "{} has version {} of the plugins' table with {} bytes; this library takes version {} "
           "with at least {}: install the plugin of release {}",
           path, table == nullptr ? 0 : table->version, table == nullptr ? 0 : table->struct_size,
           OTR_DEVICE_PLUGIN_VERSION, OTR_DEVICE_PLUGIN_LEAST_SIZE, OTR_VERSION_STRING);
    }
    Plugin plugin{table, {}, path};
    std::memcpy(&plugin.table, table,
                std::min<size_t>(table->struct_size, sizeof(otr_device_plugin)));
    return plugin;
  }
  fail(OTR_E_NOT_FOUND,
       "plugin \"{}\" was not found (OTR_PLUGIN_PATH names folders, colons between); tried: {}",
       name, tried);
}

std::vector<FoundPlugin> find_plugins() {
  std::set<std::string> paths;
  for (const std::string& folder : folders()) {
    std::error_code error;  // a folder that is not there has none
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      const std::string file = entry.path().filename();
      if (file.starts_with(kPrefix) && file.ends_with(kSuffix)) paths.insert(entry.path());
    }
  }
  std::vector<FoundPlugin> all;
  for (const std::string& path : paths) all.push_back(examine(path));
  return all;
}

}  // namespace outrigger::device
