// SPDX-License-Identifier: Apache-2.0
// The dtypes of safetensors files.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace outrigger::checkpoint {

enum class Dtype : uint8_t {
  boolean,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64
};
inline constexpr int kDtypes = 19;

[[nodiscard]] std::string_view name_of(Dtype dtype);  // "BF16"
[[nodiscard]] int64_t size_of(Dtype dtype);           // bytes of an element
[[nodiscard]] std::optional<Dtype> dtype_named(std::string_view name);
// Whether the format has it, with elements smaller than a byte: those are not read here.
[[nodiscard]] bool is_packed_dtype(std::string_view name);

}  // namespace outrigger::checkpoint
