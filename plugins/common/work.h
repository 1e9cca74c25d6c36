// SPDX-License-Identifier: Apache-2.0
// What plugins make of the table's structs: the kernels' own, and the errors of those that are
// wrong. Addresses stay what they are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "c_api/include/outrigger_plugin.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/decide.h"
#include "kernels/kernels.h"

namespace outrigger::plugins {

using kernels::Format;

// What a table function throws: an OTR_E_ code and a text.
struct Failure {
  int32_t status;
  std::string text;
};
[[noreturn]] void fail(int32_t status, std::string text);

// An element of a list whose maker may know more members, or fewer.
template <typename T>
T element_of(const T* list, int64_t index) {
  T element{};
  const size_t size = list->struct_size;
  std::memcpy(&element, reinterpret_cast<const char*>(list) + static_cast<size_t>(index) * size,
              std::min(size, sizeof element));
  return element;
}

[[nodiscard]] Format format_of(int32_t format);  // of a tensor
[[nodiscard]] kernels::cuda::Conversion conversion_of(const otr_plugin_convert& given);
[[nodiscard]] kernels::Fold fold_of(const otr_plugin_fold& given);  // without the norm
[[nodiscard]] kernels::Product product_of(const otr_plugin_product& given);

// Which kernel an update is, and of what.
enum class Use : uint8_t { update, lamb_norms, muon_direction };
[[nodiscard]] Use use_of(const otr_plugin_update& given);
[[nodiscard]] kernels::Update update_of(const otr_plugin_update& given);

// What decide is given, and the blocks in the device's memory that it reads and writes.
[[nodiscard]] kernels::cuda::Decide decide_of(const otr_plugin_decide& given);
[[nodiscard]] kernels::cuda::SumBlock* sum_of(const otr_plugin_fold& given);
[[nodiscard]] kernels::cuda::Decided* decided_of(otr_plugin_decision* decision);

[[nodiscard]] otr_plugin_norm written(const kernels::NormSum& norm, int32_t rank);

template <typename... Constants>
constexpr uint64_t bits(Constants... constants) {
  return (0U | ... | (uint64_t{1} << static_cast<uint32_t>(constants)));
}
// What the kernels of kernels/cuda can do.
inline constexpr uint64_t kRules =
    bits(OTR_PLUGIN_ADAM, OTR_PLUGIN_ADAGRAD, OTR_PLUGIN_LION, OTR_PLUGIN_SGD, OTR_PLUGIN_LAMB,
         OTR_PLUGIN_MUON, OTR_PLUGIN_LAMB_NORMS);
inline constexpr uint64_t kWeightFormats =
    bits(OTR_PLUGIN_FLOAT32, OTR_PLUGIN_BFLOAT16, OTR_PLUGIN_FLOAT16, OTR_PLUGIN_SPLIT);
inline constexpr uint64_t kMomentFormats =
    bits(OTR_PLUGIN_FLOAT32, OTR_PLUGIN_BFLOAT16, OTR_PLUGIN_BLOCK8, OTR_PLUGIN_POSITIVE_BLOCK8);
inline constexpr uint64_t kRoundings = bits(OTR_PLUGIN_NEAREST, OTR_PLUGIN_STOCHASTIC);

}  // namespace outrigger::plugins
