// SPDX-License-Identifier: Apache-2.0
// Where the files of flight recorders lie, and when they go.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/observe/flight_recorder.h"

namespace outrigger::observe {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSecond = 1'000'000'000;             // in nanoseconds
constexpr int64_t kOldest = int64_t{86400} * kSecond;  // how long a file is kept
constexpr int64_t kYoungest = 10;                      // seconds before it may be left over
constexpr size_t kMostLeft = (size_t{32} << 20) / kFlightBytes;

// Another user must not be able to lay files or links where ours are to be.
void make_private_folder(const std::string& folder) {
  struct stat facts{};
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    fail(OTR_E_IO, "cannot make the folder {}: {}", folder, std::generic_category().message(errno));
  }
  if (lstat(folder.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode) || facts.st_uid != geteuid() ||
      (facts.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    fail(OTR_E_IO, "{} is no folder that this user alone may write to", folder);
  }
}

// When the file's process did something last, in nanoseconds since 1970; of a file that is no
// recorder's of this version, when it was changed.
int64_t last_moment(int file, int64_t changed) {
  std::vector<FlightGroup> groups(kFlightGroups);
  FlightHeader header{};
  const size_t bytes = groups.size() * sizeof(FlightGroup);
  if (pread(file, &header, sizeof header, 0) != ssize_t{sizeof header} ||
      header.magic != kFlightMagic || header.version != kFlightVersion ||
      pread(file, groups.data(), bytes, sizeof header) != static_cast<ssize_t>(bytes)) {
    return changed;
  }
  int64_t last = header.began;
  for (const FlightGroup& group : groups) {
    if (group.identity == 0) continue;
    last = std::max(last, std::max(group.current.begun, group.current.ended) + header.to_calendar);
  }
  return last;
}

struct Leftover {
  int64_t moment;
  fs::path path;
};

// A file that no process holds, and that was not made just now. It is not one of this process's
// own: to close it would take its lock away.
bool is_left(int file, const timespec& time, Leftover& found) {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  struct stat facts{};
  if (fcntl(file, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK) return false;
  if (fstat(file, &facts) != 0 || time.tv_sec - facts.st_mtim.tv_sec < kYoungest) return false;
  found.moment = last_moment(file, int64_t{facts.st_mtim.tv_sec} * kSecond);
  return true;
}

}  // namespace

void make_flight_folder(const FlightPlace& place) {
  if (!place.is_stated) return make_private_folder(place.folder);
  std::error_code reason;
  fs::create_directories(place.folder, reason);
  if (reason) {
    fail(OTR_E_IO,
         "OTR_FLIGHT_RECORDER names the folder {}, which cannot be made: {}; \"off\" writes none",
         printable(place.folder, 200), reason.message());
  }
}

void sweep_flights(const std::string& folder) noexcept {
  try {
    timespec time{};
    clock_gettime(CLOCK_REALTIME, &time);
    const int64_t today = int64_t{time.tv_sec} * kSecond;
    std::vector<Leftover> left;
    const std::string own = format_text("-{}", current_process());
    for (const auto& found : fs::directory_iterator(folder)) {
      const std::string name = found.path().filename().string();
      // To close a file of this process's own would take its lock away.
      if (!name.ends_with(kFlightSuffix) || name.find(own) != std::string::npos) continue;
      const int file = open(found.path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
      if (file < 0) continue;
      Leftover one{0, found.path()};
      if (is_left(file, time, one)) left.push_back(std::move(one));
      close(file);
    }
    std::sort(left.begin(), left.end(),
              [](const Leftover& a, const Leftover& b) { return a.moment > b.moment; });
    for (size_t i = 0; i < left.size(); ++i) {
      if (i >= kMostLeft || today - left[i].moment > kOldest) unlink(left[i].path.c_str());
    }
  } catch (const std::exception&) {  // another rank sweeps, too, or there is no memory for names
  }
}

}  // namespace outrigger::observe
