// SPDX-License-Identifier: Apache-2.0
// The file of a flight recorder: what one rank's groups did last. Mapped by the process that writes
// it, so that it outlives that process; read by `outrigger inspect`, which trusts nothing of it.
//
//   FlightHeader                whose it is, and the first failure
//   FlightGroup × kFlightGroups a group of ranks, with the operation that it is at
//   FlightEntry × kFlightEntries a ring of operations that are over, by serial number
#pragma once

#include <cstddef>
#include <cstdint>

namespace outrigger::observe {

inline constexpr uint64_t kFlightMagic = 0x5448474c4652544f;  // "OTRFLGHT", little-endian
inline constexpr uint32_t kFlightVersion = 1;
inline constexpr uint32_t kFlightGroups = 64, kFlightEntries = 1024;
inline constexpr const char* kFlightSuffix = ".flight";

// Texts are filled up with zero bytes, and need not end with one. Times are nanoseconds of the
// machine's monotonic clock.
struct FlightEntry {
  uint64_t serial;       // from 1, as operations of the process ended; 0: none, or half written
  uint64_t group;        // FlightGroup::identity
  uint64_t number;       // from 1, as the group's operations began: the same on all its ranks
  int64_t begun, ended;  // ended 0: under way
  uint64_t bytes, offset;
  int64_t step, micro_step;  // from 1; 0: outside of an engine
  int32_t status, culprit;   // culprit: as Error::culprit
  char what[20];
  char label[52];
  uint64_t serial_again;  // written first, as serial is written last
};

struct FlightGroup {
  uint64_t identity;  // alike on the group's ranks, and no other group's; 0: none
  int32_t rank, size;
  char provider[16];
  char name[56];
  uint64_t is_closed;   // 1: its object is gone, and the place may be used again
  FlightEntry current;  // the last that began; number 0: none did
};

struct FlightHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t group_count, entry_count;
  uint32_t header_bytes, group_bytes, entry_bytes;
  int64_t process;
  int64_t began;        // nanoseconds since 1970
  int64_t to_calendar;  // from the monotonic clock to nanoseconds since 1970
  uint64_t serials;     // that were given out
  uint64_t left_out;    // groups for which there was no place
  uint64_t failed;      // 1: the failure is being written, 2: it is there
  uint64_t failed_group;
  int64_t failed_at;
  int32_t failed_status, failed_culprit;
  char host[64];
  char boot[40];  // of the machine: tells whether its clock and processes are the reader's
  char library[24];
  char failure[1024];
  char rest[2840];
};

static_assert(sizeof(FlightEntry) == 160 && offsetof(FlightEntry, serial_again) == 152);
static_assert(sizeof(FlightGroup) == 256 && offsetof(FlightGroup, current) == 96);
static_assert(sizeof(FlightHeader) == 4096);

inline constexpr size_t kFlightBytes = sizeof(FlightHeader) + kFlightGroups * sizeof(FlightGroup) +
                                       kFlightEntries * sizeof(FlightEntry);

}  // namespace outrigger::observe
