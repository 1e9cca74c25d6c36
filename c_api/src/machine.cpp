// SPDX-License-Identifier: Apache-2.0
// What this library is, and what the machine under it offers.
#include "core/topology/machine.h"

#include <string>

#include "c_api/src/guard.h"
#include "core/device/plugin.h"
#include "kernels/kernels.h"
#include "outrigger.h"

using namespace outrigger;  // NOLINT(google-build-using-namespace): the boundary names both worlds
using namespace outrigger::c_api;  // NOLINT(google-build-using-namespace)

namespace {

using Json = nlohmann::ordered_json;

const Json& communicators() {
  static const Json kNames = {"self", "threads", "shm"};
  return kNames;
}

// Texts of the environment need not be UTF-8.
std::string text_of(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string describe_build() {
  const char* simd_error = kernels::simd_error();
  return text_of({{"version", OTR_VERSION_STRING},
                  {"abi", OTR_ABI_VERSION},
                  {"compiler", __VERSION__},
                  {"simd", kernels::simd_name()},
                  {"simd_available", kernels::simd_available()},
                  {"simd_error", simd_error == nullptr ? "" : simd_error},
                  {"communicators", communicators()}},
                 -1);
}

Json instruction_sets() {
  Json found = Json::array();
  const std::string_view all = kernels::simd_available();
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = std::min(all.find(',', begin), all.size());
    found.push_back(all.substr(begin, end - begin));
    begin = end + 1;
  }
  const char* error = kernels::simd_error();
  return {{"found", found},
          {"used", kernels::simd_name()},
          {"error", error == nullptr ? Json() : Json(error)}};
}

Json plugins() {
  Json all = Json::array();
  for (const device::FoundPlugin& plugin : device::find_plugins()) {
    all.push_back({{"name", plugin.name},
                   {"path", plugin.path},
                   {"device_type", plugin.device_type},
                   {"devices", plugin.devices},
                   {"error", plugin.error.empty() ? Json() : Json(plugin.error)}});
  }
  return all;
}

}  // namespace

const char* otr_version(void) noexcept { return OTR_VERSION_STRING; }
int32_t otr_abi_version(void) noexcept { return OTR_ABI_VERSION; }

const char* otr_build_info(void) noexcept {
  try {
    static const std::string kText = describe_build();
    return kText.c_str();
  } catch (...) {
    return "{}";
  }
}

int32_t otr_machine_info(char* buffer, size_t* inout_size) noexcept {
  return guard([&] {
    const bool asked = required(inout_size, "inout_size") == 0 && buffer == nullptr;
    Json machine = {{"version", OTR_VERSION_STRING}, {"abi", OTR_ABI_VERSION}};
    machine.update(topology::machine());
    machine["instruction_sets"] = instruction_sets();
    machine["communicators"] = communicators();
    machine["plugins"] = plugins();
    write_text(text_of(machine, 2), buffer, inout_size);
    constexpr size_t kRoom = 256;  // for numbers that have grown when the text is fetched
    if (asked) *inout_size += kRoom;
  });
}
