// SPDX-License-Identifier: Apache-2.0
// One GPU's primary context, which the process shares with whoever else uses it (PyTorch does), and
// calls in it.
#pragma once

#include <mutex>
#include <string>
#include <type_traits>

#include "plugins/cuda/driver.h"

namespace outrigger::cuda {

class Gpu {
 public:
  explicit Gpu(int32_t id);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  // Throws what the driver refuses with. The context is current.
  template <typename... P>
  void call(const Entry<P...>& entry, std::type_identity_t<P>... arguments) {
    const Result result = entry.at(arguments...);
    if (result != kSuccess) failed(entry.name, result);
  }
  // Where nothing can be done about it: the context is gone, or was lost before.
  template <typename... P>
  void try_call(const Entry<P...>& entry, std::type_identity_t<P>... arguments) noexcept {
    static_cast<void>(entry.at(arguments...));
  }
  [[noreturn]] void failed(const char* call, Result result);
  // Throws the failure that ended the context, if there was one.
  void require_alive() const;
  [[nodiscard]] bool is_alive() const;

  [[nodiscard]] int attribute(int which) const;
  [[nodiscard]] int32_t id() const { return id_; }
  [[nodiscard]] std::string text() const;  // "CUDA device 0 (NVIDIA H100)"
  [[nodiscard]] int multiprocessors() const { return multiprocessors_; }

  const Driver& driver;

 private:
  friend class Current;
  int32_t id_;
  Ordinal ordinal_ = 0;
  std::string name_;
  int multiprocessors_ = 0;
  Context context_ = nullptr;
  mutable std::mutex mutex_;
  std::string end_;  // what ended the context; guarded by mutex_
};

// The context is this thread's current one while the object lives; then that of before is again.
class Current {
 public:
  explicit Current(Gpu& gpu) : gpu_(gpu) { gpu.call(gpu.driver.cuCtxPushCurrent_v2, gpu.context_); }
  ~Current() {
    Context popped = nullptr;
    gpu_.try_call(gpu_.driver.cuCtxPopCurrent_v2, &popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  Gpu& gpu_;
};

}  // namespace outrigger::cuda
