// SPDX-License-Identifier: Apache-2.0
// The simulated device's plugin as an older release might have been: its table ends before
// products, and its update knows two rules, two formats and one rounding, in a shorter struct.
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "outrigger_plugin.h"

namespace {

const otr_device_plugin& simulated() {
  static const otr_device_plugin* const kTable = [] {
    const std::string path =
        std::string(std::getenv("OTR_PLUGIN_PATH")) + "/liboutrigger_simulated.so";
    void* object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return reinterpret_cast<otr_device_plugin_function>(dlsym(object, OTR_DEVICE_PLUGIN_SYMBOL))();
  }();
  return *kTable;
}

constexpr uint64_t bit(int constant) { return uint64_t{1} << constant; }

// Without the random stream, which is for stochastic rounding.
constexpr size_t kKnown = offsetof(otr_plugin_update, key);

int32_t update(otr_plugin_device* device, const otr_plugin_update* pieces, int64_t count,
               otr_plugin_update_count* total, uint64_t stream) {
  std::vector<char> known(static_cast<size_t>(count) * kKnown);
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const auto* from = reinterpret_cast<const char*>(pieces) + i * pieces->struct_size;
    std::memcpy(known.data() + i * kKnown, from, kKnown);
    const auto size = static_cast<uint32_t>(kKnown);
    std::memcpy(known.data() + i * kKnown, &size, sizeof size);
  }
  return simulated().update(device, reinterpret_cast<const otr_plugin_update*>(known.data()), count,
                            total, stream);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const otr_device_plugin* otr_device_plugin_table(
    void) {
  static otr_device_plugin table;
  table = simulated();
  table.name = "older";
  table.struct_size = static_cast<uint32_t>(OTR_DEVICE_PLUGIN_LEAST_SIZE);
  if (std::getenv("OTR_TEST_SHORT_TABLE") != nullptr) table.struct_size -= uint32_t{sizeof(void*)};
  table.rules = bit(OTR_PLUGIN_ADAM) | bit(OTR_PLUGIN_SGD) | bit(OTR_PLUGIN_MUON);
  table.weight_formats = table.moment_formats = bit(OTR_PLUGIN_FLOAT32) | bit(OTR_PLUGIN_BFLOAT16);
  table.roundings = bit(OTR_PLUGIN_NEAREST);
  table.update = update;
  // Beyond the table's size is whatever the linker put there.
  std::memset(reinterpret_cast<char*>(&table) + table.struct_size, 0x5a,
              sizeof table - table.struct_size);
  return &table;
}
