// SPDX-License-Identifier: Apache-2.0
// The CUDA plugin's table, for programs that call it without the library.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "outrigger_plugin.h"

namespace outrigger::cuda {

// Of the plugin in OTR_PLUGIN_PATH, or in the working folder.
inline const otr_device_plugin& table() {
  static const otr_device_plugin* const kTable = [] {
    const char* folder = std::getenv("OTR_PLUGIN_PATH");
    const std::string path =
        std::string(folder == nullptr ? "." : folder) + "/liboutrigger_cuda.so";
    void* object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (object == nullptr) throw std::runtime_error(dlerror());
    return reinterpret_cast<otr_device_plugin_function>(dlsym(object, OTR_DEVICE_PLUGIN_SYMBOL))();
  }();
  return *kTable;
}

inline void need(int32_t status) {
  if (status != OTR_OK) throw std::runtime_error(table().last_error());
}

}  // namespace outrigger::cuda
