// SPDX-License-Identifier: Apache-2.0
// The boundary: exceptions become status codes, and only here is the thread's error text written.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/process.h"
#include "kernels/float_environment.h"

namespace outrigger::c_api {

inline constexpr size_t kErrorText = 2048;

// Both keep the text whole if memory is short: it is then a static one.
void set_error_text(const char* text) noexcept;
void clear_error_text() noexcept;

// A destroy leaves the text alone, though callbacks of the host that it runs may call in.
class KeptErrorText {
 public:
  KeptErrorText() noexcept;
  ~KeptErrorText();
  KeptErrorText(const KeptErrorText&) = delete;
  KeptErrorText& operator=(const KeptErrorText&) = delete;

 private:
  std::array<char, kErrorText> text_;
};

template <typename Body>
int32_t guard(const Body& body) noexcept {
  clear_error_text();
  // Doubles computed on the way must not depend on the host's rounding mode either.
  const kernels::FloatEnvironment float_environment;
  try {
    body();
    return OTR_OK;
  } catch (const Error& error) {
    set_error_text(error.what());
    return error.status();
  } catch (const std::bad_alloc&) {
    set_error_text("out of memory");
    return OTR_E_OUT_OF_MEMORY;
  } catch (const std::length_error&) {
    set_error_text("out of memory: a size is beyond what memory can hold");
    return OTR_E_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    set_error_text(error.what());
    return OTR_E_INTERNAL;
  } catch (...) {
    set_error_text("an exception of unknown type");
    return OTR_E_INTERNAL;
  }
}

// A handle is a tagged pointer to the object: a handle of another kind, or one that was destroyed
// and not overwritten yet, is told apart by its tag.
template <typename Object, uint64_t kTag>
struct Handle {
  explicit Handle(std::shared_ptr<Object> o) : process(current_process()), object(std::move(o)) {}
  ~Handle() { *const_cast<volatile uint64_t*>(&tag) = 0; }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  [[nodiscard]] bool valid() const { return tag == kTag; }

  uint64_t tag = kTag;
  pid_t process;  // a forked child has the memory, but not the threads and the shared memory
  std::shared_ptr<Object> object;
};

template <typename H>
auto& get(H* handle, const char* what) {
  if (handle == nullptr) fail(OTR_E_ARGUMENT, "{} is NULL", what);
  if (!handle->valid()) fail(OTR_E_ARGUMENT, "{} is not a live handle of its kind", what);
  if (handle->process != current_process()) {
    fail(OTR_E_STATE,
         "{} was made by process {}, and this is its forked child {}: make handles after the fork",
         what, handle->process, current_process());
  }
  return handle->object;
}

// Whether a destroy has something to do: what a forked child inherited is its parent's to end.
template <typename H>
bool is_ours(const H* handle) noexcept {
  return handle != nullptr && handle->valid() && handle->process == current_process();
}

template <typename H>
void destroy(H* handle) noexcept {
  if (!is_ours(handle)) return;
  const KeptErrorText kept;
  delete handle;
}

template <typename T>
T& required(T* pointer, const char* what) {
  if (pointer == nullptr) fail(OTR_E_ARGUMENT, "{} is NULL", what);
  return *pointer;
}

inline int64_t required_count(int64_t count, const void* array, const char* what) {
  if (count < 0) fail(OTR_E_ARGUMENT, "the number of {} is {}; legal is 0 or more", what, count);
  if (count > 0 && array == nullptr)
    fail(OTR_E_ARGUMENT, "{} is NULL with a count of {}", what, count);
  return count;
}

// Size-first structs: the caller's first bytes over the defaults. kFirst is the first release's
// size.
template <typename T>
T read_struct(const T* given, const T& defaults, const char* what, size_t first = sizeof(T)) {
  if (given == nullptr) return defaults;
  if (given->struct_size < first || given->struct_size > 4096) {
    fail(OTR_E_ABI,
         "{}.struct_size = {}; this library knows {} to {}: fill the struct with its init function",
         what, given->struct_size, first, sizeof(T));
  }
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

// Structs that the library fills: only the size is the caller's. NULL is fine.
template <typename T>
void check_output(const T* out, const char* what) {
  if (out != nullptr && (out->struct_size < sizeof(T) || out->struct_size > 4096)) {
    fail(OTR_E_ABI, "{}.struct_size = {}; the first release's is {}: set it before the call", what,
         out->struct_size, sizeof(T));
  }
}
template <typename T>
void write_output(T* out, T filled) {
  if (out == nullptr) return;
  filled.struct_size = out->struct_size;
  std::memset(static_cast<void*>(out), 0, filled.struct_size);
  *out = filled;
}

// Fills *out, which may be NULL, from a call that writes a whole struct.
template <typename T, typename Fill>
void fill_output(T* out, const char* what, const Fill& fill) {
  check_output(out, what);
  T filled{};
  fill(filled);
  write_output(out, filled);
}

// `owner`: "table has", "options have".
inline void require_rank(const char* owner, int32_t rank, int32_t world_size) {
  if (world_size < 1 || rank < 0 || rank >= world_size) {
    fail(OTR_E_ARGUMENT, "{} rank {} of world_size {}; legal is 0 to world_size - 1", owner, rank,
         world_size);
  }
}

template <typename T>
int32_t init_struct(T* out, size_t size, const T& defaults, const char* what) noexcept {
  return guard([&] {
    required(out, what);
    if (size < sizeof(T)) {
      fail(OTR_E_ABI, "size = {} for {}; the first release's is {}", size, what, sizeof(T));
    }
    std::memset(static_cast<void*>(out), 0, size);
    *out = defaults;
    out->struct_size = static_cast<uint32_t>(size);
  });
}

// Text to a caller's buffer: *inout_size is its size in, the needed size (with the NUL) out.
void write_text(std::string_view text, char* buffer, size_t* inout_size);

}  // namespace outrigger::c_api
