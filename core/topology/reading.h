// SPDX-License-Identifier: Apache-2.0
// Values that the system tells in small text files. A missing or odd file is no fault: the reading
// then has no value and says why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace outrigger::topology {

template <typename T>
struct Reading {
  std::optional<T> value;
  std::string reason;  // why there is none; "no limit is set", for one
};

// Up to the first newline.
[[nodiscard]] Reading<std::string> line_in(const std::string& file);
// The number that the file begins with; of "max" or -1, no limit.
[[nodiscard]] Reading<uint64_t> number_in(const std::string& file);
// The number after `key` on the first line that has this word.
[[nodiscard]] Reading<uint64_t> number_after(const std::string& file, std::string_view key);
// The same, times 1024: /proc writes kB.
[[nodiscard]] Reading<uint64_t> kib_after(const std::string& file, std::string_view key);
// The text after `key` on the line that begins with it, without the blanks around.
[[nodiscard]] Reading<std::string> text_after(const std::string& file, std::string_view key);

// "0-3,8" → 5; nothing where that is no list of cores.
[[nodiscard]] std::optional<int32_t> count_cores(std::string_view list);
// "always [madvise] never" → "madvise"; nothing without brackets.
[[nodiscard]] std::optional<std::string> chosen_word(std::string_view line);

// A control group of this process, or one above it.
struct Group {
  std::string folder;
  bool unified;  // version 2
};
// Innermost first. controller: "memory", "cpu". root stands before /proc and /sys; empty: the
// system's own.
[[nodiscard]] std::vector<Group> groups_of(std::string_view controller, const std::string& root);

}  // namespace outrigger::topology
