// SPDX-License-Identifier: Apache-2.0
// A whole save, as the tests of faults, of killed processes and of lost power play it.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "core/checkpoint/directory.h"

namespace outrigger::checkpoint::test {

struct Save {
  std::string tag;
  int value = 0;         // what its files hold
  bool replace = false;  // of the same tag
};

// The files of a checkpoint.
void write_files(Folder& folder, int value);

// Sweeps, writes two files, commits, sets `latest`, keeps two.
void save(Files& files, const std::string& path, const Save& what);

// The value of a checkpoint's files. Throws unless it is complete.
[[nodiscard]] int load(Files& files, const std::string& path, const std::string& tag);

// What lies in a folder, the last of it being `latest`, and the save to come.
struct Scenario {
  const char* name;
  std::vector<Save> before;
  Save after;
};
[[nodiscard]] const std::vector<Scenario>& scenarios();
void PrintTo(const Scenario& scenario, std::ostream* out);
void prepare(const std::string& path, const Scenario& scenario);

// After a save that may have ended anywhere: `latest` names the former checkpoint or the new one,
// all that is seen loads, a sweep leaves nothing else. Empty, or what is wrong.
[[nodiscard]] std::string fault_after(const std::string& path, const Scenario& scenario);

}  // namespace outrigger::checkpoint::test
