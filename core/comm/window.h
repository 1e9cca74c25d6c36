// SPDX-License-Identifier: Apache-2.0
// Memory that a group's ranks may read of each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace outrigger::comm {

// per_rank: each rank has a block of its own; common: one block for all. Zero-filled, page-aligned,
// first touched by the rank that owns it (common: in equal page-aligned parts by all ranks),
// MADV_DONTFORK.
enum class WindowKind : uint8_t { per_rank, common };

class Window {
 public:
  virtual ~Window() = default;
  // The rank's block as mapped here; null for another rank's where the ranks share no memory.
  [[nodiscard]] virtual std::byte* block(int32_t rank) const = 0;
  [[nodiscard]] virtual size_t bytes() const = 0;
  // This rank's block, if it is a device's memory, goes, and comes back zero-filled, perhaps
  // elsewhere; other memory stays. While nobody uses it. restore throws OTR_E_OUT_OF_MEMORY.
  virtual void drop() noexcept {}
  virtual void restore() {}
  // Nothing uses it here any more. The address of this rank's block stays as long as the window;
  // the pages of host memory go with its last user, and what is read there then means nothing.
  virtual void give_back() noexcept {}
};

// One that is filled again and again, each time when every rank has read what was there before.
class ReusedWindow {
 public:
  // Room for so many bytes. make(bytes): a window, where this one is too small; drain(ticket):
  // waits until the exchange with that ticket is drained.
  template <typename Make, typename Drain>
  Window& room(size_t bytes, const Make& make, const Drain& drain) {
    if (!window_ || window_->bytes() < bytes) {
      window_ = make(bytes);
    } else if (ticket_ != 0) {
      drain(ticket_);
    }
    ticket_ = 0;
    return *window_;
  }
  [[nodiscard]] Window& operator*() const { return *window_; }
  // What it holds was exchanged.
  void exchanged(uint64_t ticket) { ticket_ = ticket; }

 private:
  std::shared_ptr<Window> window_;
  uint64_t ticket_ = 0;  // 0 is drained
};

}  // namespace outrigger::comm
