// SPDX-License-Identifier: Apache-2.0
// Memory that ranks share: private to the process (threads), or an unnamed sealed file (processes),
// so that nothing appears in /dev/shm or any file system and nothing is left after a crash.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <boost/interprocess/mapped_region.hpp>
#include <cstddef>
#include <memory>
#include <string_view>

#include "core/comm/unique_fd.h"

namespace outrigger::comm {

[[nodiscard]] size_t page_size();
inline constexpr size_t kHugePage = 2 << 20;

[[nodiscard]] constexpr size_t round_up(size_t bytes, size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

// Zero-filled, page-aligned, never inherited by a forked child. Any thread.
class Region {
 public:
  // Of this process. Both throw OTR_E_OUT_OF_MEMORY where `bytes` cannot be had; neither touches a
  // page.
  [[nodiscard]] static std::shared_ptr<Region> make_private(size_t bytes);
  // A new memfd that can neither shrink nor grow.
  [[nodiscard]] static std::shared_ptr<Region> make_shared(size_t bytes);
  // A memfd from a peer. Throws OTR_E_MISMATCH unless it has the size and is sealed.
  [[nodiscard]] static std::shared_ptr<Region> attach(UniqueFd fd, size_t bytes);

  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(map_->get_address()); }
  [[nodiscard]] size_t bytes() const { return map_->get_size(); }
  [[nodiscard]] int fd() const { return fd_.get(); }

  // Gives [offset, offset + bytes) its pages now, on this thread's memory node, so that no later
  // access fails; huge pages where whole ones fit. Throws OTR_E_OUT_OF_MEMORY naming need and free
  // bytes.
  void populate(size_t offset, size_t bytes);
  // Ranks of one process may have one region. With the last of its users the pages here go; the
  // addresses stay mapped, and read zeros.
  void add_user() noexcept { ++users_; }
  void give_back() noexcept;
  // The mapping stays; call it once nobody else needs to be given the file.
  void close_fd() { fd_.reset(); }

 private:
  Region(UniqueFd fd, size_t bytes);

  UniqueFd fd_;  // none: private memory
  std::unique_ptr<boost::interprocess::mapped_region> map_;
  pid_t owner_;
  std::atomic<int32_t> users_{0};
};

// Throws OTR_E_OUT_OF_MEMORY unless `bytes` more can be touched.
void require_free_memory(size_t bytes);

}  // namespace outrigger::comm
