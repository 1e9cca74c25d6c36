// SPDX-License-Identifier: Apache-2.0
// Tensors of a message: any element that machine learning sends, in any strides.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "core/checkpoint/dtype.h"
#include "outrigger.h"

namespace outrigger::message {

// Throws OTR_E_DTYPE naming `what`.
[[nodiscard]] checkpoint::Dtype dtype_of(const otr_dtype& dtype, std::string_view what);
// Throws OTR_E_DTYPE: safetensors has more than DLPack.
[[nodiscard]] otr_dtype dtype_of(checkpoint::Dtype dtype, std::string_view what);

// Throws unless the view is one of CPU memory with a legal shape and dtype. data may be NULL.
void require_view(const otr_tensor& view, std::string_view what);
[[nodiscard]] std::span<const int64_t> shape_of(const otr_tensor& view);
[[nodiscard]] bool is_row_major(const otr_tensor& view);
// Whether an element is in the memory.
[[nodiscard]] bool overlaps(const otr_tensor& view, std::span<const std::byte> memory);
// All elements, row-major.
void copy_row_major(const otr_tensor& view, std::byte* to);

}  // namespace outrigger::message
