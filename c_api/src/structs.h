// SPDX-License-Identifier: Apache-2.0
// Size-first structs, which later releases may make longer: a caller may be built against a shorter
// one (the missing fields have their defaults) or a longer one (what this library does not know has
// to be zero).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/base/error.h"
#include "outrigger.h"

namespace outrigger::c_api {

// Bytes in the first release that had the struct. Never changes.
template <typename T>
inline constexpr size_t kFirstSize = 0;
template <>
inline constexpr size_t kFirstSize<otr_call_info> = 56;
template <>
inline constexpr size_t kFirstSize<otr_context_options> = 80;
template <>
inline constexpr size_t kFirstSize<otr_comm_options> = 80;
template <>
inline constexpr size_t kFirstSize<otr_comm_table> = 120;
template <>
inline constexpr size_t kFirstSize<otr_device_allocator> = 64;
template <>
inline constexpr size_t kFirstSize<otr_param_options> = 80;
template <>
inline constexpr size_t kFirstSize<otr_memory_entry> = 32;
template <>
inline constexpr size_t kFirstSize<otr_offload_options> = 48;
template <>
inline constexpr size_t kFirstSize<otr_estimate_options> = 96;
template <>
inline constexpr size_t kFirstSize<otr_step_report> = 104;
template <>
inline constexpr size_t kFirstSize<otr_save_options> = 72;
template <>
inline constexpr size_t kFirstSize<otr_save_status> = 72;
template <>
inline constexpr size_t kFirstSize<otr_load_options> = 112;
template <>
inline constexpr size_t kFirstSize<otr_snapshot_options> = 56;
template <>
inline constexpr size_t kFirstSize<otr_snapshot_info> = 64;
template <>
inline constexpr size_t kFirstSize<otr_watch_options> = 80;
template <>
inline constexpr size_t kFirstSize<otr_export_options> = 56;
template <>
inline constexpr size_t kFirstSize<otr_writer_options> = 72;
template <>
inline constexpr size_t kFirstSize<otr_writer_param_options> = 72;
template <>
inline constexpr size_t kFirstSize<otr_import_options> = 48;
template <>
inline constexpr size_t kFirstSize<otr_shard_options> = 80;
template <>
inline constexpr size_t kFirstSize<otr_message_options> = 72;
template <>
inline constexpr size_t kFirstSize<otr_message_info> = 72;

inline constexpr size_t kLargestSize = 4096;  // beyond, it is no size

template <typename T>
void require_size(size_t size, const char* what) {
  static_assert(kFirstSize<T> > 0 && sizeof(T) >= kFirstSize<T>);
  if (size < kFirstSize<T> || size > kLargestSize) {
    fail(OTR_E_ABI,
         "{}.struct_size = {}; legal is {} (the first release's) to {}: set it to sizeof the "
         "struct, "
         "or fill the struct with its init function",
         what, size, kFirstSize<T>, kLargestSize);
  }
}

// What the caller gave, over the defaults.
template <typename T>
T read_struct(const T* given, const T& defaults, const char* what) {
  if (given == nullptr) return defaults;
  require_size<T>(given->struct_size, what);
  T read = defaults;
  std::memcpy(&read, given, std::min<size_t>(given->struct_size, sizeof(T)));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(T); i < given->struct_size; ++i) {
    if (bytes[i] != 0) {
      fail(OTR_E_ABI, "{} sets a field at byte {} that this library ({}) does not know", what, i,
           OTR_VERSION_STRING);
    }
  }
  return read;
}

// Fills what there is room for; the caller's struct_size stays.
template <typename T>
void write_struct(T* out, T filled) {
  if (out == nullptr) return;
  const size_t size = out->struct_size;
  filled.struct_size = out->struct_size;
  std::memset(static_cast<void*>(out), 0, size);
  std::memcpy(static_cast<void*>(out), &filled, std::min(size, sizeof(T)));
}

// Fills *out, which may be NULL, from a call that writes a whole struct.
template <typename T, typename Fill>
void fill_output(T* out, const char* what, const Fill& fill) {
  if (out != nullptr) require_size<T>(out->struct_size, what);
  T filled{};
  fill(filled);
  write_struct(out, filled);
}

// An array of structs that the library fills, each as long as the caller's header has it.
template <typename T>
class OutputArray {
 public:
  // every: each element's struct_size is set, and is that of the first.
  OutputArray(T* first, size_t count, const char* what, bool every) : first_(first) {
    if (first == nullptr || count == 0) return;
    require_size<T>(first->struct_size, what);
    stride_ = first->struct_size;
    for (size_t i = 1; every && i < count; ++i) {
      if (at(i)->struct_size == stride_) continue;
      fail(OTR_E_ABI, "{} {} has struct_size {}, the first one {}: they must be equal", what, i,
           at(i)->struct_size, stride_);
    }
  }
  void write(size_t i, T filled) {
    if (first_ == nullptr) return;
    at(i)->struct_size = static_cast<uint32_t>(stride_);
    write_struct(at(i), filled);
  }

 private:
  [[nodiscard]] T* at(size_t i) const {
    return reinterpret_cast<T*>(reinterpret_cast<char*>(first_) + i * stride_);
  }
  T* first_;
  size_t stride_ = sizeof(T);
};

}  // namespace outrigger::c_api
