// SPDX-License-Identifier: Apache-2.0
#include "core/comm/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <boost/interprocess/exceptions.hpp>
#include <cerrno>
#include <system_error>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/topology/binding.h"
#include "core/topology/memory.h"

#ifndef MADV_POPULATE_WRITE  // Linux 5.14
#define MADV_POPULATE_WRITE 23
#endif

namespace outrigger::comm {
namespace {

namespace ipc = boost::interprocess;
using topology::FreeMemory;
using topology::memory_text;

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::string errno_text(int error) { return std::generic_category().message(error); }

// What Boost's mapped_region asks of a mappable object.
struct Mappable {
  int fd;
  [[nodiscard]] ipc::mapping_handle_t get_mapping_handle() const { return {fd, false}; }
  [[nodiscard]] ipc::mode_t get_mode() const { return ipc::read_write; }
};

std::unique_ptr<ipc::mapped_region> map(int fd, size_t bytes) {
  try {
    if (fd >= 0)
      return std::make_unique<ipc::mapped_region>(Mappable{fd}, ipc::read_write, 0, bytes);
    return std::make_unique<ipc::mapped_region>(Mappable{-1}, ipc::copy_on_write, 0, bytes, nullptr,
                                                MAP_ANONYMOUS);
  } catch (const ipc::interprocess_exception& error) {
    fail(OTR_E_OUT_OF_MEMORY,
         "cannot map {}: {}; see the limits RLIMIT_AS (ulimit -v) and vm.max_map_count",
         memory_text(bytes), error.what());
  }
}

// A file larger than RLIMIT_FSIZE would raise SIGXFSZ, not an error.
void require_file_size(size_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      bytes > limit.rlim_cur) {
    fail(OTR_E_OUT_OF_MEMORY, "{} of shared memory exceed RLIMIT_FSIZE = {}; raise it (ulimit -f)",
         memory_text(bytes), memory_text(limit.rlim_cur));
  }
}

// The kernel before 5.14: reserve the file's blocks; then, or without a file, write to each page.
void populate_by_hand(int fd, std::byte* base, size_t offset, size_t bytes) {
  if (fd >= 0) {
    int error = 0;
    do {
      error = posix_fallocate(fd, static_cast<off_t>(offset), static_cast<off_t>(bytes));
    } while (error == EINTR);
    if (error != 0) {
      fail(OTR_E_OUT_OF_MEMORY, "cannot reserve {} of shared memory: {}", memory_text(bytes),
           errno_text(error));
    }
  }
  for (size_t at = offset; at < offset + bytes; at += page_size()) {
    // An atomic no-op write: a neighbour's data on a shared page must survive.
    __atomic_fetch_or(reinterpret_cast<uint8_t*>(base + at), uint8_t{0}, __ATOMIC_RELAXED);
  }
}

}  // namespace

size_t page_size() {
  static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

void require_free_memory(size_t bytes) {
  constexpr size_t kLeaveFree = 64 << 20;  // for everybody else, so that the kernel need not kill
  const FreeMemory free = topology::free_memory();
  if (free.bytes() >= kLeaveFree && bytes <= free.bytes() - kLeaveFree) return;
  fail(OTR_E_OUT_OF_MEMORY, "{} are needed; free: {}", memory_text(bytes), free.text());
}

Region::Region(UniqueFd fd, size_t bytes)
    : fd_(std::move(fd)), map_(map(fd_.get(), bytes)), owner_(current_process()) {
  madvise(map_->get_address(), bytes, MADV_DONTFORK);
  if (!fd_) topology::bind_pages(map_->get_address(), bytes);
}

// In a forked child the addresses are no longer ours: leave whatever lies there alone.
Region::~Region() {
  if (current_process() != owner_) static_cast<void>(map_.release());
}

// Other processes have the file's pages still: here nothing takes their place. Where the system
// refuses, they stay until the mapping goes.
void Region::give_back() noexcept {
  if (--users_ > 0 || current_process() != owner_) return;
  void* const pages = mmap(data(), bytes(), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (pages != MAP_FAILED) madvise(pages, bytes(), MADV_DONTFORK);
}

std::shared_ptr<Region> Region::make_private(size_t bytes) {
  return std::shared_ptr<Region>(new Region(UniqueFd(), bytes));
}

std::shared_ptr<Region> Region::make_shared(size_t bytes) {
  require_file_size(bytes);
  UniqueFd fd(memfd_create("outrigger", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) {
    fail(errno == EMFILE || errno == ENFILE || errno == ENOMEM ? OTR_E_OUT_OF_MEMORY : OTR_E_SYSTEM,
         "cannot create shared memory (memfd_create): {}", errno_text(errno));
  }
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    fail(OTR_E_OUT_OF_MEMORY, "cannot size shared memory to {} (ftruncate): {}", memory_text(bytes),
         errno_text(errno));
  }
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    fail(OTR_E_SYSTEM, "cannot seal shared memory (F_ADD_SEALS): {}", errno_text(errno));
  }
  return std::shared_ptr<Region>(new Region(std::move(fd), bytes));
}

std::shared_ptr<Region> Region::attach(UniqueFd fd, size_t bytes) {
  struct stat status{};
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (fstat(fd.get(), &status) != 0 || seals < 0 || (seals & kSeals) != kSeals ||
      status.st_size != static_cast<off_t>(bytes)) {
    fail(OTR_E_MISMATCH,
         "rank 0 sent a file that is not the sealed shared memory of {} bytes that was agreed on",
         bytes);
  }
  return std::shared_ptr<Region>(new Region(std::move(fd), bytes));
}

void Region::populate(size_t offset, size_t bytes) {
  constexpr size_t kPiece =
      64 << 20;  // checked one by one: other processes allocate at the same time
  const size_t end = std::min(round_up(offset + bytes, page_size()), this->bytes());
  // Only whole huge pages, so that a block never takes more than its own pages.
  const size_t huge_begin = round_up(offset, kHugePage), huge_end = end / kHugePage * kHugePage;
  if (huge_begin < huge_end) madvise(data() + huge_begin, huge_end - huge_begin, MADV_HUGEPAGE);

  // A file's pages come from where its mapping is bound when they are made.
  const size_t first_page = offset / page_size() * page_size();
  if (fd_ && end > first_page) topology::bind_pages(data() + first_page, end - first_page);

  for (size_t at = first_page; at < end;) {
    const size_t n = std::min(end, round_up(at + 1, kPiece)) - at;
    require_free_memory(n);
    int error = 0;
    do {
      error = madvise(data() + at, n, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
    } while (error == EINTR || error == EAGAIN);
    if (error == EINVAL || error == ENOSYS) {
      populate_by_hand(fd_.get(), data(), at, n);
    } else if (error != 0) {  // EFAULT is what would have been a SIGBUS
      fail(OTR_E_OUT_OF_MEMORY, "cannot touch {} of memory: {}; free: {}", memory_text(n),
           errno_text(error), topology::free_memory().text());
    }
    at += n;
  }
}

}  // namespace outrigger::comm
