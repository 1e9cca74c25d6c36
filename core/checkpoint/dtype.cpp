// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/dtype.h"

namespace outrigger::checkpoint {
namespace {

struct Row {
  std::string_view name;
  int64_t size;
};

// In the order of Dtype.
constexpr Row kRows[kDtypes] = {
    {"BOOL", 1},    {"U8", 1},          {"I8", 1},          {"F8_E5M2", 1}, {"F8_E4M3", 1},
    {"F8_E8M0", 1}, {"F8_E4M3FNUZ", 1}, {"F8_E5M2FNUZ", 1}, {"I16", 2},     {"U16", 2},
    {"F16", 2},     {"BF16", 2},        {"I32", 4},         {"U32", 4},     {"F32", 4},
    {"C64", 8},     {"F64", 8},         {"I64", 8},         {"U64", 8}};

const Row& row_of(Dtype dtype) { return kRows[static_cast<size_t>(dtype)]; }

}  // namespace

std::string_view name_of(Dtype dtype) { return row_of(dtype).name; }

int64_t size_of(Dtype dtype) { return row_of(dtype).size; }

std::optional<Dtype> dtype_named(std::string_view name) {
  for (int i = 0; i < kDtypes; ++i) {
    if (kRows[i].name == name) return static_cast<Dtype>(i);
  }
  return std::nullopt;
}

bool is_packed_dtype(std::string_view name) {
  return name == "F4" || name == "F6_E2M3" || name == "F6_E3M2";
}

}  // namespace outrigger::checkpoint
