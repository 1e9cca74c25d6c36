// SPDX-License-Identifier: Apache-2.0
// The NCCL plugin for devices of the simulated device's type, beside the CUDA plugin under its name
// (tests/plugins/cuda/as_simulated.cpp).
#include <dlfcn.h>

#include <stdexcept>

#include "outrigger_plugin.h"

extern "C" __attribute__((visibility("default"))) const otr_collective_plugin*
otr_collective_plugin_table(void) {
  static const otr_collective_plugin kTable = [] {
    void* object = dlopen(OTR_NCCL_PLUGIN, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (object == nullptr) throw std::runtime_error(dlerror());
    otr_collective_plugin table = *reinterpret_cast<otr_collective_plugin_function>(
        dlsym(object, OTR_COLLECTIVE_PLUGIN_SYMBOL))();
    table.device_type = OTR_DEVICE_EXTENSION;
    return table;
  }();
  return &kTable;
}
