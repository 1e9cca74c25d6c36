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
#include "core/device/collective.h"
#include "core/device/plugin.h"
#include "core/device/transport.h"

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

// A plugin's shared object, and where it was.
struct Object {
  void* handle = nullptr;
  std::string path;
};
Object open_object(const std::string& name, const char* example) {
  if (name.empty()) fail(OTR_E_ARGUMENT, "the plugin's name is empty; \"{}\" is one", example);
  std::string tried;
  for (const std::string& path : candidates(name)) {
    void* object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (object != nullptr) return {object, path};
    const char* reason = dlerror();
    tried += format_text("{}{}", tried.empty() ? "" : "; ", reason == nullptr ? path : reason);
  }
  fail(OTR_E_NOT_FOUND,
       "plugin \"{}\" was not found (OTR_PLUGIN_PATH names folders, colons between); tried: {}",
       name, tried);
}

// What a plugin's table must be.
struct Wanted {
  const char *symbol, *kind;
  uint32_t version;
  size_t least_size;
};
// The object's table, of which a size and a version are known alike in each.
template <typename Table>
Table table_of(const Object& object, const Wanted& wanted, const Table*& given) {
  const auto function = reinterpret_cast<const Table* (*)()>(dlsym(object.handle, wanted.symbol));
  if (function == nullptr) {
    fail(OTR_E_ABI, "{} is no {}: it has no {}", object.path, wanted.kind, wanted.symbol);
  }
  given = function();
  if (given == nullptr || given->struct_size < wanted.least_size ||
      given->version != wanted.version) {
    fail(OTR_E_ABI,
         "{} has version {} of the plugins' table with {} bytes; this library takes version {} "
         "with at least {}: install the plugin of release {}",
         object.path, given == nullptr ? 0 : given->version,
         given == nullptr ? 0 : given->struct_size, wanted.version, wanted.least_size,
         OTR_VERSION_STRING);
  }
  Table table{};
  std::memcpy(&table, given, std::min<size_t>(given->struct_size, sizeof table));
  return table;
}

// One that drives no devices and is found beside those that do.
bool drives_no_device(const std::string& path) {
  void* object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  return object != nullptr && (dlsym(object, OTR_COLLECTIVE_PLUGIN_SYMBOL) != nullptr ||
                               dlsym(object, OTR_TRANSPORT_PLUGIN_SYMBOL) != nullptr);
}

}  // namespace

Plugin load_plugin(const std::string& name) {
  const Object object = open_object(name, "simulated");
  Plugin plugin{};
  plugin.path = object.path;
  plugin.table = table_of(object,
                          {OTR_DEVICE_PLUGIN_SYMBOL, "device plugin", OTR_DEVICE_PLUGIN_VERSION,
                           OTR_DEVICE_PLUGIN_LEAST_SIZE},
                          plugin.given);
  return plugin;
}

CollectivePlugin load_collective_plugin(const std::string& name) {
  const Object object = open_object(name, "nccl");
  const otr_collective_plugin* given = nullptr;
  return {table_of(object,
                   {OTR_COLLECTIVE_PLUGIN_SYMBOL, "plugin for collectives",
                    OTR_COLLECTIVE_PLUGIN_VERSION, OTR_COLLECTIVE_PLUGIN_LEAST_SIZE},
                   given),
          object.path};
}

TransportPlugin load_transport_plugin(const std::string& name) {
  const Object object = open_object(name, "mpi");
  const otr_transport_plugin* given = nullptr;
  return {table_of(object,
                   {OTR_TRANSPORT_PLUGIN_SYMBOL, "plugin for transports",
                    OTR_TRANSPORT_PLUGIN_VERSION, OTR_TRANSPORT_PLUGIN_LEAST_SIZE},
                   given),
          object.path};
}

std::vector<FoundPlugin> find_plugins() {
  std::set<std::string> paths;
  for (const std::string& folder : folders()) {
    std::error_code error;  // a folder that is not there has none
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      const std::string file = entry.path().filename();
      if (!file.starts_with(kPrefix) || !file.ends_with(kSuffix)) continue;
      if (!drives_no_device(entry.path())) paths.insert(entry.path());
    }
  }
  std::vector<FoundPlugin> all;
  for (const std::string& path : paths) all.push_back(examine(path));
  return all;
}

}  // namespace outrigger::device
