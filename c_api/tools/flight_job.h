// SPDX-License-Identifier: Apache-2.0
// The ranks of a job, as their flight recorders show them, and who held up whom.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flight_file.h"

namespace outrigger::tools {

// Ranks that have groups in common, by number.
struct Job {
  std::vector<Flight> ranks;
  [[nodiscard]] int64_t last_moment() const;
  [[nodiscard]] int32_t size() const;  // of its largest group
  // Ranks of which there is no file.
  [[nodiscard]] std::vector<int32_t> missing() const;
};

// The one with the last moment first.
[[nodiscard]] std::vector<Job> jobs_of(std::vector<Flight> flights);

[[nodiscard]] int32_t rank_of(const Flight& flight);  // −1: it had come to no group
// The last that failed, of a rank that failed.
[[nodiscard]] const FlightOperation* failed_operation(const Flight& flight);
// "0-2, 5"
[[nodiscard]] std::string list_of(std::vector<int32_t> ranks);
// "reduce 'reduce gradients' (operation 12 of 'gradients' of ranks 0-1, step 101)"
[[nodiscard]] std::string text_of(const Job& job, const Flight& flight,
                                  const FlightOperation& operation);

struct Verdict {
  int32_t culprit = -1;          // the rank that held up the others; −1: none is known
  std::vector<int32_t> held_up;  // that waited for it
  std::string text;              // one line
};
[[nodiscard]] Verdict verdict_of(const Job& job);

}  // namespace outrigger::tools
