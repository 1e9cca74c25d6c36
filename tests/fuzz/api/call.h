// SPDX-License-Identifier: Apache-2.0
// One call of the library: written down, made, and held against what the header says of every call.
#pragma once

#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "core/base/text.h"
#include "outrigger.h"
#include "tests/fuzz/api/bytes.h"
#include "tests/fuzz/api/trace.h"

namespace otr_fuzz {

// An output: full of garbage before the call, NULL or 0 after a failure. Now and then the pointer
// to it is NULL itself.
template <typename T>
class Out {
 public:
  Out() { std::memset(static_cast<void*>(&value), 0xA5, sizeof value); }
  explicit Out(Bytes& bytes) : Out() { null = bytes.one_in(64); }
  [[nodiscard]] bool cleared() const {
    const T zero{};
    return null || std::memcmp(&value, &zero, sizeof value) == 0;
  }
  T value;
  bool null = false;
};

// An options struct with zeros behind it, as a newer header's has, so that its size may be wrong.
template <typename T>
struct Roomy : T {
  unsigned char room[256] = {};
  void mistake_size(Bytes& bytes) { this->struct_size = bytes.byte(); }
};

template <typename T>
decltype(auto) raw(T&& argument) {
  return std::forward<T>(argument);
}
template <typename T>
T* raw(Out<T>& out) {
  return out.null ? nullptr : &out.value;
}

template <typename T>
void require_cleared(const char*, const T&) {}
template <typename T>
void require_cleared(const char* call, const Out<T>& out) {
  if (!out.cleared())
    broken(outrigger::format_text("{} failed and left something in an output", call));
}

std::string text_of(const otr_tensor* tensor);
std::string text_of(const char* text);
template <typename T>
std::string text_of(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return outrigger::format_text("{}", static_cast<int>(value));
  } else if constexpr (std::is_arithmetic_v<T>) {
    return outrigger::format_text("{}", value);
  } else if constexpr (std::is_null_pointer_v<T>) {
    return "NULL";
  } else if constexpr (std::is_function_v<std::remove_pointer_t<T>>) {
    return value == nullptr ? "NULL" : "function";
  } else {
    return value == nullptr ? "NULL"
                            : outrigger::format_text("{}", static_cast<const void*>(value));
  }
}
template <typename T>
std::string text_of(const Out<T>& out) {
  return out.null ? "NULL" : "&out";
}

// What holds after every fallible call.
void examine(const char* call, int32_t status);

// Whether a call may change something: a query's handle points to const, an init has no handle.
template <typename Function>
struct MayChange : std::true_type {};
template <typename Handle, typename... More>
struct MayChange<int32_t (*)(const Handle*, More...) noexcept> : std::false_type {};
template <typename Struct>
struct MayChange<int32_t (*)(Struct*, size_t) noexcept> : std::false_type {};

template <typename Function, typename... Arguments>
int32_t call(Trace& trace, const char* name, Function* function, Arguments&&... arguments) {
  std::string line = name;
  const char* separator = "(";
  ((line += separator, line += text_of(arguments), separator = ", "), ...);
  const size_t at = trace.begin(line + ")");
  const int32_t status = function(raw(arguments)...);
  trace.end(at, otr_status_name(status));
  examine(name, status);
  if (status != OTR_OK) (require_cleared(name, arguments), ...);
  if (status == OTR_OK && MayChange<Function*>::value) ++trace.changes;
  return status;
}
#define CALL(rank, function, ...) call((rank).trace, #function, function, __VA_ARGS__)

// Gives a handle back; the thread's last error stays as it was.
template <typename Handle>
void give_back(Trace& trace, const char* name, void (*destroy)(Handle*), Handle*& handle) {
  const std::string before = otr_last_error_message();
  const size_t at = trace.begin(outrigger::format_text("{}({})", name, text_of(handle)));
  if (handle != nullptr) ++trace.changes;
  destroy(std::exchange(handle, nullptr));
  trace.end(at, "done");
  if (before != otr_last_error_message())
    broken(outrigger::format_text("{} changed the last error", name));
}
#define GIVE_BACK(rank, function, handle) give_back((rank).trace, #function, function, handle)

}  // namespace otr_fuzz
