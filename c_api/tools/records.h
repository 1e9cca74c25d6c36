// SPDX-License-Identifier: Apache-2.0
// What the ranks of a run have written into a folder of records (docs/watching.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace outrigger::tools {

using Record = nlohmann::ordered_json;

struct RankFile {
  std::string path;
  Record start;      // its first line
  Record step, end;  // the last of each; null: none yet

  [[nodiscard]] bool is_over() const { return !end.is_null() || is_gone; }
  bool is_gone = false;  // its process was of this host, and is no more
  double written = 0;    // when, in seconds since 1970
};

// By rank and start; of those of one rank and name, only the last and what is not over. What cannot
// be read as records yet is left out. Throws Misuse where there is no such folder.
[[nodiscard]] std::vector<RankFile> read_records(const std::string& folder);

// The files of a folder whose names are those of ranks: "rank-3.jsonl", "rank-3-2.jsonl". By rank
// and number.
[[nodiscard]] std::vector<std::filesystem::path> rank_files(const std::string& folder,
                                                            const std::string& suffix);

}  // namespace outrigger::tools
