// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/api/state.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/base/text.h"

namespace otr_fuzz {
namespace {

std::string seen_of(Rank& rank, const EnginePlace& place) {
  Out<int64_t> parameters, passes, first, count;
  Out<int32_t> boundary;
  Out<double> scale, lr;
  CALL(rank, otr_engine_parameter_count, place.handle, parameters);
  CALL(rank, otr_engine_live_children, place.handle, passes);
  CALL(rank, otr_engine_get_boundary, place.handle, boundary);
  CALL(rank, otr_engine_get_loss_scale, place.handle, scale);
  CALL(rank, otr_engine_get_group_value, place.handle, nullptr, "lr", lr);
  std::string line =
      outrigger::format_text("{} parameters, {} passes, boundary {}, scale {}, lr {}",
                             parameters.value, passes.value, boundary.value, scale.value, lr.value);
  if (CALL(rank, otr_engine_local_range, place.handle, 0, first, count) == OTR_OK) {
    std::vector<float> values(static_cast<size_t>(count.value));
    otr_tensor out;
    otr_tensor_init(values.data(), "float32", 1, &count.value, &out);
    const int32_t status = otr_engine_local_read(place.handle, 0, OTR_VALUE_MASTER, &out);
    // On a device that another rank or call has made fail.
    if (status == OTR_E_DEVICE_FAULT || status == OTR_E_OUT_OF_MEMORY) return "";
    if (status == OTR_OK) {
      for (const float value : values) line += outrigger::format_text(" {}", value);
    }
  }
  return line + "\n";
}

size_t entries_of(const char* folder) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

}  // namespace

std::string seen(Rank& rank) {
  std::string text;
  for (const EnginePlace& place : rank.engines.all) {
    if (place.handle == nullptr) continue;
    const int32_t status = otr_engine_check(place.handle);
    examine("otr_engine_check", status);
    if (status != OTR_OK) return "";
    const std::string line = seen_of(rank, place);
    if (line.empty()) return "";
    text += line;
  }
  return text;
}

Holdings holdings() {
  Holdings now{entries_of("/proc/self/fd"), entries_of("/proc/self/task"), 0};
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:") != std::string::npos) ++now.mappings;
  }
  return now;
}

void expect_back_to(const Holdings& before) {
  for (int attempt = 0;; ++attempt) {
    const Holdings now = holdings();
    if (now.descriptors == before.descriptors && now.threads == before.threads &&
        now.mappings == before.mappings) {
      return;
    }
    if (attempt == 1000) {
      broken(outrigger::format_text(
          "after the last destroy {} descriptors, {} threads, {} shared mappings; "
          "before the first call {}, {}, {}",
          now.descriptors, now.threads, now.mappings, before.descriptors, before.threads,
          before.mappings));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace otr_fuzz
