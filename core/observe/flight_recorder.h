// SPDX-License-Identifier: Apache-2.0
// Keeps what a rank's groups did last in a file that outlives the process (flight_format.h). An
// operation costs some thirty stores; nothing is allocated and no lock is taken.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/observe/flight_folder.h"
#include "core/observe/flight_format.h"

namespace outrigger::observe {

// A text of a file, cut to its room and filled up with zeros, as the room was before. Most
// operations have the text of the one before them. Whether it is another one.
template <size_t Size>
bool put_text(char (&to)[Size], std::string_view from) noexcept {
  const size_t n = std::min(from.size(), Size);
  if (std::equal(to, to + n, from.data()) && (n == Size || to[n] == '\0')) return false;
  from.copy(to, n);
  std::fill(to + n, to + Size, '\0');
  return true;
}

// Makes it. Throws OTR_E_IO; so for one that nobody stated unless it is this user's alone.
void make_flight_folder(const FlightPlace& place);
// Removes files of processes that have ended: those whose last operation was a day ago, and the
// oldest beyond 32 MiB. Only of a folder that nobody stated.
void sweep_flights(const std::string& folder) noexcept;

class FlightRecorder {
 public:
  // Throws OTR_E_IO where the file cannot be made.
  explicit FlightRecorder(const FlightPlace& place);
  // The file goes, unless a group failed.
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  struct Group {
    uint64_t identity;
    int32_t rank, size;
    std::string_view provider, name;
  };
  // A place for a group of this rank; −1 where there is none left. Any thread, as all below.
  [[nodiscard]] int32_t open(const Group& group) noexcept;
  void close(int32_t place) noexcept;

  // An operation of one group at a time, with when it began, and then when it ended. begin: whether
  // it is kept, and has an end. has_other_texts: false where they are those of the one before it.
  [[nodiscard]] bool begin(int32_t place, FlightEntry& entry, bool has_other_texts = true) noexcept;
  void end(int32_t place, FlightEntry& entry) noexcept;
  // A group is over with this failure. The first is kept, and the file stays.
  void fail(uint64_t group, int32_t status, int32_t culprit, std::string_view text) noexcept;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  [[nodiscard]] bool is_mine() const;  // not a forked child's
  void make_file(const FlightPlace& place);
  [[nodiscard]] FlightGroup& group(int32_t place) const;
  [[nodiscard]] FlightEntry& entry(uint64_t serial) const;

  const pid_t process_;
  std::string path_;
  int descriptor_ = -1;  // holds the lock that says that the process is there
  FlightHeader* header_ = nullptr;
};

}  // namespace outrigger::observe
