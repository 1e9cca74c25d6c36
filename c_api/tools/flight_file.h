// SPDX-License-Identifier: Apache-2.0
// What flight recorders have left (core/observe/flight_format.h), as read from files that anybody
// may have written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/observe/flight_format.h"

namespace outrigger::tools {

enum class Fate : uint8_t {
  running,  // its process is there
  ended,
  unknown  // it is another machine's
};

struct FlightOperation {
  uint64_t serial, group, number, bytes, offset;
  int64_t begun, ended;  // nanoseconds since 1970; ended 0: under way
  int64_t step, micro_step;
  int32_t status, culprit;
  std::string what, label;
  [[nodiscard]] bool is_under_way() const { return ended == 0; }
};

struct RankGroup {
  uint64_t identity;
  int32_t rank, size;
  std::string provider, name;
  bool is_closed;
  std::optional<FlightOperation> current;  // the last that began
};

struct FlightFailure {
  uint64_t group;
  int64_t at;  // nanoseconds since 1970
  int32_t status, culprit;
  std::string text;
};

struct Flight {
  std::string path, host, library;
  int64_t process, began;
  uint64_t left_out;
  Fate fate;
  std::vector<RankGroup> groups;
  std::vector<FlightOperation> operations;  // that ended, oldest first
  std::optional<FlightFailure> failure;

  // The rank's number among all: that in its largest group.
  [[nodiscard]] const RankGroup* largest() const;
  [[nodiscard]] const RankGroup* find(uint64_t identity) const;
  // The innermost operation that it is in, or was in when it ended; null: none.
  [[nodiscard]] const FlightOperation* under_way() const;
  [[nodiscard]] int64_t last_moment() const;
};

// Throws Fault: OTR_E_IO, OTR_E_CORRUPT, or OTR_E_UNSUPPORTED for that of another version.
[[nodiscard]] Flight read_flight(const std::string& path);

// Whether a folder has files of flight recorders.
[[nodiscard]] bool has_flights(const std::string& folder);

struct Flights {
  std::vector<Flight> good;
  std::vector<std::string> damaged;  // what is wrong with each
};
// Of a folder, or of one file. Throws Fault where there is none to read.
[[nodiscard]] Flights read_flights(const std::string& where);

}  // namespace outrigger::tools
