// SPDX-License-Identifier: Apache-2.0
#include "core/memory/releasable_block.h"

#include <sys/mman.h>

#include <utility>

#include "core/base/error.h"
#include "core/memory/shown.h"

namespace outrigger::memory {
namespace {

#ifdef NDEBUG
constexpr bool kGuarded = false;
#else
constexpr bool kGuarded = true;
#endif
constexpr int64_t kHuge = int64_t{1} << 21;

}  // namespace

ReleasableBlock::ReleasableBlock(Ledger& ledger, Purpose purpose, int64_t bytes,
                                 device::Device* device, Shown* shown)
    : ledger_(&ledger), purpose_(purpose), bytes_(bytes), device_(device), shown_(shown) {
  if (bytes <= 0 || !is_host()) return;
  const int access = kGuarded ? PROT_NONE : PROT_READ | PROT_WRITE;
  void* pages = mmap(nullptr, static_cast<size_t>(bytes), access,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) {
    fail(OTR_E_OUT_OF_MEMORY, "{}: no address space for {} bytes", name_of(purpose), bytes);
  }
  if (bytes >= kHuge) madvise(pages, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // a wish
  address_ = static_cast<std::byte*>(pages);
}

ReleasableBlock& ReleasableBlock::operator=(ReleasableBlock&& other) noexcept {
  std::swap(ledger_, other.ledger_);
  std::swap(purpose_, other.purpose_);
  std::swap(bytes_, other.bytes_);
  std::swap(device_, other.device_);
  std::swap(shown_, other.shown_);
  std::swap(filled_, other.filled_);
  std::swap(address_, other.address_);
  std::swap(charge_, other.charge_);
  std::swap(block_, other.block_);
  return *this;
}

ReleasableBlock::~ReleasableBlock() {
  drop();
  if (address_ != nullptr) shown_->keep_mapping(address_, static_cast<size_t>(bytes_));
}

void ReleasableBlock::fill() {
  if (filled_ || bytes_ <= 0) return;
  if (is_host()) {
    charge_ = Charge(*ledger_, purpose_, bytes_);
    if (kGuarded && mprotect(address_, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE) != 0) {
      charge_ = {};
      fail(OTR_E_OUT_OF_MEMORY, "{} bytes of {} are not to be had", bytes_, name_of(purpose_));
    }
  } else {
    block_ = Block(*ledger_, purpose_, bytes_, device_, device_->upload_stream());
  }
  filled_ = true;
}

void ReleasableBlock::drop() noexcept {
  if (!filled_) return;
  if (is_host()) {
    madvise(address_, static_cast<size_t>(bytes_), MADV_DONTNEED);
    if (kGuarded) mprotect(address_, static_cast<size_t>(bytes_), PROT_NONE);
    charge_ = {};
  } else {
    block_ = {};
  }
  filled_ = false;
}

}  // namespace outrigger::memory
