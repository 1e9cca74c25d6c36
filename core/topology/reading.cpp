// SPDX-License-Identifier: Apache-2.0
#include "core/topology/reading.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <system_error>

#include "core/base/text.h"

namespace outrigger::topology {
namespace {

constexpr int kMostLines = 10000;  // of a file that some other system wrote

// The first line for which take(line) gives a value.
template <typename T, typename Take>
Reading<T> first_of(const std::string& file, const std::string& wanted, const Take& take) {
  errno = 0;
  std::ifstream in(file);
  if (!in) {
    return {{},
            format_text("{}: {}", file,
                        errno == 0 ? "cannot be opened" : std::generic_category().message(errno))};
  }
  std::string line;
  for (int lines = 0; lines < kMostLines && std::getline(in, line); ++lines) {
    if (std::optional<T> value = take(std::string_view(line))) return {std::move(value), {}};
  }
  return {{}, format_text("{} has no {}", file, wanted)};
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

template <typename T>
std::optional<T> leading_number(std::string_view text) {
  T value{};
  text = trimmed(text);
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc()) return {};
  return value;
}

// What follows the word `key`; nothing if the line does not have it.
std::optional<std::string_view> after(std::string_view line, std::string_view key) {
  const size_t at = line.find(key);
  if (at == line.npos || (at > 0 && line[at - 1] != ' ' && line[at - 1] != '\t')) return {};
  const std::string_view rest = line.substr(at + key.size());
  if (!rest.empty() && rest[0] != ' ' && rest[0] != '\t') return {};
  return trimmed(rest);
}

}  // namespace

Reading<std::string> line_in(const std::string& file) {
  return first_of<std::string>(file, "text", [](std::string_view line) {
    return std::optional<std::string>(trimmed(line));
  });
}

Reading<uint64_t> number_in(const std::string& file) {
  const Reading<std::string> line = line_in(file);
  if (!line.value) return {{}, line.reason};
  if (*line.value == "-1" || line.value->starts_with("max")) return {{}, "no limit is set"};
  const auto number = leading_number<uint64_t>(*line.value);
  return {number, number ? "" : format_text("{} has no number", file)};
}

Reading<uint64_t> number_after(const std::string& file, std::string_view key) {
  return first_of<uint64_t>(file, std::string(key), [&](std::string_view line) {
    const auto rest = after(line, key);
    return rest ? leading_number<uint64_t>(*rest) : std::nullopt;
  });
}

Reading<uint64_t> kib_after(const std::string& file, std::string_view key) {
  Reading<uint64_t> kib = number_after(file, key);
  if (kib.value) kib.value = *kib.value << 10;
  return kib;
}

Reading<std::string> text_after(const std::string& file, std::string_view key) {
  return first_of<std::string>(file, std::string(key), [&](std::string_view line) {
    if (!line.starts_with(key)) return std::optional<std::string>();
    return std::optional<std::string>(trimmed(line.substr(key.size())));
  });
}

std::optional<int32_t> count_cores(std::string_view list) {
  int64_t count = 0;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string_view part = list.substr(begin, end - begin);
    const size_t dash = part.find('-');
    const auto first = leading_number<int32_t>(part.substr(0, dash));
    const auto last = dash == part.npos ? first : leading_number<int32_t>(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= 1 << 20) return {};
    count += *last - *first + 1;
    begin = end + 1;
  }
  return static_cast<int32_t>(std::min<int64_t>(count, 1 << 20));
}

std::optional<std::string> chosen_word(std::string_view line) {
  const size_t begin = line.find('['), end = line.find(']', begin);
  if (begin == line.npos || end == line.npos) return {};
  return std::string(line.substr(begin + 1, end - begin - 1));
}

std::vector<Group> groups_of(std::string_view controller, const std::string& root) {
  // Lines are "hierarchy:controllers:path"; version 2 has hierarchy 0 and no controllers. A limit
  // may sit on the group itself or on any group above it.
  std::vector<Group> groups;
  std::ifstream in(root + "/proc/self/cgroup");
  std::string line;
  for (int lines = 0; lines < 100 && std::getline(in, line); ++lines) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified &&
        format_text(",{},", controllers).find(format_text(",{},", controller)) == std::string::npos)
      continue;
    const std::string mount =
        root + (unified ? "/sys/fs/cgroup" : format_text("/sys/fs/cgroup/{}", controller));
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    for (int depth = 0; depth < 64; ++depth) {
      groups.push_back({mount + path, unified});
      const size_t slash = path.rfind('/');
      if (slash == std::string::npos) break;
      path.resize(slash);
    }
  }
  return groups;
}

}  // namespace outrigger::topology
