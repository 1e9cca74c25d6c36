// SPDX-License-Identifier: Apache-2.0
#include "core/memory/block.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "core/context/error.h"

namespace outrigger::memory {
namespace {

// From this size on a block has pages of its own: huge ones where the system gives them, returned
// when freed.
constexpr size_t kOwnPages = size_t{1} << 20;
constexpr std::align_val_t kAlignment{64};

}  // namespace

Block::Block(Ledger& ledger, Purpose purpose, int64_t bytes) {
  if (bytes <= 0) return;
  const auto size = static_cast<size_t>(bytes);
  if (size >= kOwnPages) {
    void* pages = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
      fail(OTR_E_OUT_OF_MEMORY,
           "{} bytes of {} are not to be had ({}): use more ranks, a higher ZeRO stage or "
           "lower-precision states",
           bytes, name_of(purpose), std::strerror(errno));
    }
    madvise(pages, size, MADV_HUGEPAGE);  // a wish; 4 KiB pages work too
    data_ = static_cast<std::byte*>(pages);
  } else {
    void* memory = ::operator new(size, kAlignment, std::nothrow);
    if (memory == nullptr) {
      fail(OTR_E_OUT_OF_MEMORY, "{} bytes of {} are not to be had", bytes, name_of(purpose));
    }
    std::memset(memory, 0, size);
    data_ = static_cast<std::byte*>(memory);
  }
  bytes_ = size;
  ledger_ = &ledger;
  ledger.charge_on_touch(bytes);
  charge_ = Charge(ledger, purpose, bytes);
}

Block& Block::operator=(Block&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    ledger_ = std::exchange(other.ledger_, nullptr);
    charge_ = std::move(other.charge_);
  }
  return *this;
}

void Block::release() noexcept {
  if (data_ == nullptr) return;
  ledger_->charge_on_touch(-static_cast<int64_t>(bytes_));
  if (bytes_ >= kOwnPages) {
    munmap(data_, bytes_);
  } else {
    ::operator delete(data_, kAlignment);
  }
  data_ = nullptr;
}

}  // namespace outrigger::memory
