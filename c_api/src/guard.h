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

#include "c_api/src/structs.h"
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

template <typename T>
int64_t required_count(int64_t count, const T* array, const char* what) {
  if (count < 0) fail(OTR_E_ARGUMENT, "the number of {} is {}; legal is 0 or more", what, count);
  if (count > 0 && array == nullptr)
    fail(OTR_E_ARGUMENT, "{} is NULL with a count of {}", what, count);
  return count;
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
    if (size < kFirstSize<T> || size > kLargestSize) {
      fail(OTR_E_ABI, "size = {} for {}; legal is {} (the first release's) to {}", size, what,
           kFirstSize<T>, kLargestSize);
    }
    out->struct_size = static_cast<uint32_t>(size);
    write_struct(out, defaults);
  });
}

// Text to a caller's buffer: *inout_size is its size in, the needed size (with the NUL) out.
void write_text(std::string_view text, char* buffer, size_t* inout_size);

}  // namespace outrigger::c_api
