// SPDX-License-Identifier: Apache-2.0
// What outrigger estimate has found, and how it says so.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "changes.h"
#include "model.h"

namespace outrigger::tools {

// How the first values may come.
struct StartWay {
  const char* name;
  int32_t way;
  const char* text;
};
inline constexpr StartWay kStartWays[] = {
    {"given", OTR_START_GIVEN, "given to otr_engine_add_parameter"},
    {"held", OTR_START_HELD, "held whole by every rank"},
    {"shared-out", OTR_START_SHARED_OUT, "one part of them held by each rank"},
};

struct Room {
  Bytes bytes;
  std::string host_source;  // "given", "free here"
  int64_t reserved = 0;     // of what was given of a device, beside bytes.device
};

// A configuration in the table of the largest models.
struct Candidate {
  Change change;
  Largest largest;
};

struct Written {
  std::string file, change, reason;
};

struct Answer {
  int64_t parameters;
  size_t tensors;
  Setting setting;
  Room room;
  Entries ours, theirs;
  std::vector<Model::Peaks> starts;  // of kStartWays
  std::string start, dtype;          // that counts
  Bytes needed;
  std::vector<Change> changes;  // that fit
  std::vector<Candidate> candidates;
  std::vector<std::string> warnings;  // of the configuration as it was
  std::optional<Written> written;

  [[nodiscard]] bool fits() const { return needed.fit_in(room.bytes); }
};

void print_json(const Answer& answer);
void print_text(const Answer& answer);

// "a host needs 1.00 GiB instead of 2.00 GiB; 1.50 GiB are given", and the same of a device.
[[nodiscard]] std::string reason_for(const Answer& answer, const Bytes& needed);

}  // namespace outrigger::tools
