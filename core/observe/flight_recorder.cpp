// SPDX-License-Identifier: Apache-2.0
#include "core/observe/flight_recorder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <fstream>
#include <system_error>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/observe/timeline.h"

namespace outrigger::observe {
namespace {

constexpr uint64_t kLookAtCalendar = 256;  // operations between two looks: a clock may be set
constexpr size_t kCacheLine = 64;
constexpr int kMostFlights = 1000;  // of one process in a folder

// Every store is ordered after those before it, so that a process that is ended in the middle
// leaves nothing that looks whole.
template <typename Word>
void put(Word& word, Word value) noexcept {
  std::atomic_ref<Word>(word).store(value, std::memory_order_release);
}
template <typename Word>
Word get_word(const Word& word) noexcept {
  return std::atomic_ref<Word>(const_cast<Word&>(word)).load(std::memory_order_acquire);
}

constexpr size_t kWords = sizeof(FlightEntry) / sizeof(uint64_t);
constexpr size_t kTexts = offsetof(FlightEntry, what) / sizeof(uint64_t);
static_assert(kTexts * sizeof(uint64_t) == offsetof(FlightEntry, what));

// serial last, and its copy first, which is behind the texts.
void put_entry(FlightEntry& to, const FlightEntry& from, bool with_texts = true) noexcept {
  const auto* const source = reinterpret_cast<const std::byte*>(&from);
  auto* const target = reinterpret_cast<uint64_t*>(&to);
  put(target[0], uint64_t{0});
  for (size_t i = with_texts ? kWords : kTexts; i-- > 0;) {
    uint64_t word = 0;
    std::memcpy(&word, source + i * sizeof word, sizeof word);
    put(target[i], word);
  }
}

int64_t to_calendar_now() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec - now();
}

// For the name of a file.
std::string plain(std::string name) {
  for (char& c : name) {
    const bool is_plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_';
    if (!is_plain) c = '-';
  }
  return name;
}

[[noreturn]] void fail_to_make(const std::string& path, int error) {
  fail(OTR_E_IO,
       "cannot make the flight recorder's file {}: {}; OTR_FLIGHT_RECORDER names another folder, "
       "or is \"off\"",
       printable(path, 200), std::generic_category().message(error));
}

}  // namespace

FlightRecorder::FlightRecorder(const FlightPlace& place) : process_(current_process()) {
  static_assert(std::atomic_ref<uint64_t>::is_always_lock_free);
  make_file(place);
  void* const mapped =
      mmap(nullptr, kFlightBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    unlink(path_.c_str());
    ::close(descriptor_);
    fail_to_make(path_, error);
  }
  header_ = static_cast<FlightHeader*>(mapped);
  FlightHeader& h = *header_;
  h.version = kFlightVersion;
  h.group_count = kFlightGroups;
  h.entry_count = kFlightEntries;
  h.header_bytes = sizeof(FlightHeader);
  h.group_bytes = sizeof(FlightGroup);
  h.entry_bytes = sizeof(FlightEntry);
  h.process = process_;
  h.to_calendar = to_calendar_now();
  h.began = now() + h.to_calendar;
  put_text(h.host, host_name());
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  put_text(h.boot, boot);
  put_text(h.library, OTR_VERSION_STRING);
  put(h.magic, kFlightMagic);
}

// With all its memory, so that no store finds the disk full; locked, so that a reader can tell
// whether its process is there. The lock of a file that others are told of is there already.
void FlightRecorder::make_file(const FlightPlace& place) {
  make_flight_folder(place);
  for (int number = 1; number <= kMostFlights && descriptor_ < 0; ++number) {
    path_ = format_text("{}/{}-{}{}{}", place.folder, plain(host_name()), process_,
                        number == 1 ? "" : format_text("-{}", number), kFlightSuffix);
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (descriptor_ < 0 && errno != EEXIST) fail_to_make(path_, errno);
  }
  if (descriptor_ < 0) fail_to_make(path_, EEXIST);
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  static_cast<void>(fcntl(descriptor_, F_SETLK, &lock));  // where it cannot be, nothing is told
  int error = 0;
  struct statvfs space{};
  // Somebody's shared memory must not become scarce by this.
  if (!place.is_stated && fstatvfs(descriptor_, &space) == 0 &&
      space.f_bavail * space.f_frsize / 64 < kFlightBytes) {
    error = ENOSPC;
  }
  rlimit most{};  // to exceed it would raise SIGXFSZ
  if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < kFlightBytes) error = EFBIG;
  while (error == 0) {
    error = posix_fallocate(descriptor_, 0, static_cast<off_t>(kFlightBytes));
    if (error != EINTR) break;
    error = 0;
  }
  if (error == 0) return;
  unlink(path_.c_str());
  ::close(descriptor_);
  fail_to_make(path_, error);
}

FlightRecorder::~FlightRecorder() {
  const bool keeps = get_word(header_->failed) != 0;
  munmap(header_, kFlightBytes);
  if (is_mine() && !keeps) unlink(path_.c_str());
  ::close(descriptor_);
}

bool FlightRecorder::is_mine() const { return current_process() == process_; }

FlightGroup& FlightRecorder::group(int32_t place) const {
  return reinterpret_cast<FlightGroup*>(header_ + 1)[place];
}

FlightEntry& FlightRecorder::entry(uint64_t serial) const {
  return reinterpret_cast<FlightEntry*>(&group(kFlightGroups))[(serial - 1) % kFlightEntries];
}

int32_t FlightRecorder::open(const Group& made) noexcept {
  if (!is_mine()) return -1;
  // First a place that nobody had, so that groups that are gone keep their names for long.
  for (const bool again : {false, true}) {
    for (int32_t place = 0; place < static_cast<int32_t>(kFlightGroups); ++place) {
      FlightGroup& g = group(place);
      uint64_t before = get_word(g.identity);
      if (before != 0 && !(again && get_word(g.is_closed) == 1)) continue;
      if (!std::atomic_ref(g.identity).compare_exchange_strong(before, made.identity)) continue;
      std::atomic_ref(g.rank).store(made.rank, std::memory_order_relaxed);
      std::atomic_ref(g.size).store(made.size, std::memory_order_relaxed);
      put_entry(g.current, {});
      put_text(g.provider, made.provider);
      put_text(g.name, made.name);
      put(g.is_closed, uint64_t{0});
      return place;
    }
  }
  std::atomic_ref(header_->left_out).fetch_add(1, std::memory_order_relaxed);
  return -1;
}

void FlightRecorder::close(int32_t place) noexcept {
  if (place >= 0 && is_mine()) put(group(place).is_closed, uint64_t{1});
}

bool FlightRecorder::begin(int32_t place, FlightEntry& entry, bool has_other_texts) noexcept {
  if (place < 0 || !is_mine()) return false;
  entry.ended = 0;
  entry.serial = entry.serial_again = 1;  // of a group's place: that it is whole
  put_entry(group(place).current, entry, has_other_texts);
  return true;
}

void FlightRecorder::end(int32_t place, FlightEntry& done) noexcept {
  done.serial = std::atomic_ref(header_->serials).fetch_add(1, std::memory_order_relaxed) + 1;
  done.serial_again = done.serial;
  put_entry(entry(done.serial), done);
  // The ring is more than the nearest cache holds: the next place is brought there meanwhile.
  const auto* const next = reinterpret_cast<const std::byte*>(&entry(done.serial + 1));
  for (size_t at = 0; at < sizeof(FlightEntry); at += kCacheLine) {
    __builtin_prefetch(next + at, 1);
  }
  FlightEntry& current = group(place).current;
  if (done.status != OTR_OK) {
    std::atomic_ref(current.status).store(done.status, std::memory_order_relaxed);
    std::atomic_ref(current.culprit).store(done.culprit, std::memory_order_relaxed);
  }
  put(current.ended, done.ended);
  if (done.serial % kLookAtCalendar == 0) put(header_->to_calendar, to_calendar_now());
}

void FlightRecorder::fail(uint64_t group, int32_t status, int32_t culprit,
                          std::string_view text) noexcept {
  if (!is_mine()) return;
  uint64_t none = 0;
  if (!std::atomic_ref(header_->failed).compare_exchange_strong(none, 1)) return;
  header_->failed_group = group;
  header_->failed_at = now();
  header_->failed_status = status;
  header_->failed_culprit = culprit;
  put_text(header_->failure, text);
  put(header_->failed, uint64_t{2});
}

}  // namespace outrigger::observe
