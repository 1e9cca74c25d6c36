// SPDX-License-Identifier: Apache-2.0
#include "flight_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "fault.h"
#include "text.h"

namespace outrigger::tools {
namespace {

using namespace observe;  // NOLINT(google-build-using-namespace): the file's format
namespace fs = std::filesystem;

constexpr int64_t kMostRanks = 1 << 24;

class File {
 public:
  explicit File(const std::string& path)
      : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (descriptor_ < 0) tools::fail(OTR_E_IO, "cannot open {}: {}", path, std::strerror(errno));
  }
  ~File() { close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // As much as there is, up to one byte more than a file has.
  [[nodiscard]] std::string read() const {
    std::string all(kFlightBytes + 1, '\0');
    size_t done = 0;
    while (done < all.size()) {
      const ssize_t n = ::read(descriptor_, all.data() + done, all.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      done += static_cast<size_t>(n);
    }
    all.resize(done);
    return all;
  }
  // The process that writes it holds a lock, of which its end is the end.
  [[nodiscard]] bool is_held() const {
    struct flock lock{};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    return fcntl(descriptor_, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  }

 private:
  int descriptor_;
};

template <size_t Size>
std::string text_of(const char (&text)[Size]) {
  return shown(std::string(text, strnlen(text, Size)));
}

template <typename Struct>
Struct take(const std::string& bytes, size_t at) {
  Struct value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::optional<FlightOperation> operation_of(const FlightEntry& e, int64_t to_calendar) {
  if (e.serial == 0 || e.serial != e.serial_again || e.number == 0) return std::nullopt;
  const int64_t ended = e.ended == 0 ? 0 : e.ended + to_calendar;
  return FlightOperation{
      e.serial, e.group,      e.number, e.bytes,   e.offset,        e.begun + to_calendar, ended,
      e.step,   e.micro_step, e.status, e.culprit, text_of(e.what), text_of(e.label)};
}

std::string boot_of_this_machine() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot;
}

void require_format(const std::string& path, const std::string& bytes, const FlightHeader& h) {
  if (h.version != kFlightVersion) {
    tools::fail(OTR_E_UNSUPPORTED,
                "{} is of version {} of flight recorders' files, and this command reads version "
                "{}: use the outrigger that belongs to the library that wrote it",
                path, h.version, kFlightVersion);
  }
  const bool fits = h.header_bytes == sizeof(FlightHeader) &&
                    h.group_bytes == sizeof(FlightGroup) && h.entry_bytes == sizeof(FlightEntry) &&
                    h.group_count == kFlightGroups && h.entry_count == kFlightEntries;
  if (!fits) tools::fail(OTR_E_CORRUPT, "{}: its header is damaged", path);
  if (bytes.size() != kFlightBytes) {
    tools::fail(OTR_E_CORRUPT, "{} has {} bytes{}, and {} are right: it was cut short or added to",
                path, std::min(bytes.size(), kFlightBytes),
                bytes.size() > kFlightBytes ? " and more" : "", kFlightBytes);
  }
}

void read_groups(const std::string& path, const std::string& bytes, const FlightHeader& h,
                 Flight& into) {
  for (size_t i = 0; i < kFlightGroups; ++i) {
    const auto g = take<FlightGroup>(bytes, sizeof(FlightHeader) + i * sizeof(FlightGroup));
    if (g.identity == 0) continue;
    if (g.size < 1 || g.size > kMostRanks || g.rank < 0 || g.rank >= g.size) {
      tools::fail(OTR_E_CORRUPT, "{}: group {} says that it is rank {} of {}", path, i, g.rank,
                  g.size);
    }
    into.groups.push_back({g.identity, g.rank, g.size, text_of(g.provider), text_of(g.name),
                           g.is_closed != 0, operation_of(g.current, h.to_calendar)});
  }
}

void read_operations(const std::string& bytes, const FlightHeader& h, Flight& into) {
  constexpr size_t kFirst = sizeof(FlightHeader) + kFlightGroups * sizeof(FlightGroup);
  for (size_t i = 0; i < kFlightEntries; ++i) {
    const auto entry = take<FlightEntry>(bytes, kFirst + i * sizeof(FlightEntry));
    if (auto operation = operation_of(entry, h.to_calendar)) {
      into.operations.push_back(std::move(*operation));
    }
  }
  std::sort(into.operations.begin(), into.operations.end(),
            [](const auto& a, const auto& b) { return a.serial < b.serial; });
}

// Its process was ended, or is just about to write to it.
bool is_unwritten(const std::string& path) {
  uint64_t magic = 0;
  std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(&magic), sizeof magic);
  return magic == 0;
}

}  // namespace

const RankGroup* Flight::largest() const {
  const auto most = std::max_element(groups.begin(), groups.end(),
                                     [](const auto& a, const auto& b) { return a.size < b.size; });
  return most == groups.end() ? nullptr : &*most;
}

const RankGroup* Flight::find(uint64_t identity) const {
  const auto found = std::find_if(groups.begin(), groups.end(), [&](const RankGroup& group) {
    return group.identity == identity;
  });
  return found == groups.end() ? nullptr : &*found;
}

const FlightOperation* Flight::under_way() const {
  const FlightOperation* last = nullptr;
  for (const RankGroup& group : groups) {
    if (!group.current || !group.current->is_under_way() || group.is_closed) continue;
    if (last == nullptr || last->begun < group.current->begun) last = &*group.current;
  }
  return last;
}

int64_t Flight::last_moment() const {
  int64_t last = began;
  for (const RankGroup& group : groups) {
    if (group.current) last = std::max({last, group.current->begun, group.current->ended});
  }
  return last;
}

Flight read_flight(const std::string& path) {
  const File file(path);
  const bool is_held = file.is_held();
  const std::string bytes = file.read();
  if (bytes.size() < sizeof(FlightHeader) || take<uint64_t>(bytes, 0) != kFlightMagic) {
    tools::fail(OTR_E_CORRUPT, "{} is no file of a flight recorder", path);
  }
  const auto header = take<FlightHeader>(bytes, 0);
  require_format(path, bytes, header);
  Flight flight{};
  flight.path = path;
  flight.host = text_of(header.host);
  flight.library = text_of(header.library);
  flight.process = header.process;
  flight.began = header.began;
  flight.left_out = header.left_out;
  const bool is_here = text_of(header.boot) == boot_of_this_machine();
  flight.fate = is_held ? Fate::running : is_here ? Fate::ended : Fate::unknown;
  if (header.failed == 2) {
    flight.failure = {header.failed_group, header.failed_at + header.to_calendar,
                      header.failed_status, header.failed_culprit, text_of(header.failure)};
  }
  read_groups(path, bytes, header, flight);
  read_operations(bytes, header, flight);
  return flight;
}

bool has_flights(const std::string& folder) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    if (entry.path().extension() == kFlightSuffix) return true;
  }
  return false;
}

Flights read_flights(const std::string& where) {
  std::error_code none;
  std::vector<std::string> paths;
  if (fs::is_directory(where, none)) {
    for (const auto& entry : fs::directory_iterator(where, none)) {
      if (entry.path().extension() == kFlightSuffix) paths.push_back(entry.path().string());
    }
    std::sort(paths.begin(), paths.end());
  } else {
    paths.push_back(where);
  }
  Flights all;
  for (const std::string& path : paths) {
    try {
      all.good.push_back(read_flight(path));
    } catch (const Fault& fault) {
      if (paths.size() == 1) throw;
      if (!is_unwritten(path)) all.damaged.emplace_back(fault.what());
    }
  }
  return all;
}

}  // namespace outrigger::tools
