// SPDX-License-Identifier: Apache-2.0
// A window's blocks inside its region, and which rank touches which bytes first.
#pragma once

#include <memory>

#include "core/comm/communicator.h"
#include "core/comm/region.h"
#include "core/comm/region_exchange.h"

namespace outrigger::comm {

struct WindowLayout {
  WindowKind kind;
  int32_t world;
  size_t bytes;   // of a block
  size_t stride;  // from block to block; 0: common
  size_t total;   // of the region

  // Throws OTR_E_OUT_OF_MEMORY where the sum exceeds the address space.
  static WindowLayout make(WindowKind kind, int32_t world, size_t bytes);

  struct Part {
    size_t offset, bytes;
  };
  [[nodiscard]] Part first_touch(int32_t rank) const;
};

class HostWindow final : public Window {
 public:
  HostWindow(std::shared_ptr<Region> region, const WindowLayout& layout, const void* job,
             RegionId id)
      : region_(std::move(region)), layout_(layout), job_(job), id_(id) {
    region_->add_user();
  }

  std::byte* block(int32_t rank) const override {
    return region_->data() + static_cast<size_t>(rank) * layout_.stride;
  }
  size_t bytes() const override { return layout_.bytes; }
  void give_back() noexcept override { region_->give_back(); }
  [[nodiscard]] WindowKind kind() const { return layout_.kind; }
  [[nodiscard]] const void* job() const { return job_; }
  [[nodiscard]] RegionId id() const { return id_; }

 private:
  const std::shared_ptr<Region> region_;
  const WindowLayout layout_;
  const void* const job_;  // whose window it is; never followed
  const RegionId id_;
};

}  // namespace outrigger::comm
