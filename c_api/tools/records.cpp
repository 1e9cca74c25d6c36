// SPDX-License-Identifier: Apache-2.0
#include "records.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <optional>
#include <tuple>
#include <utility>

#include "fault.h"

namespace outrigger::tools {
namespace {

constexpr std::streamoff kTail = 64 << 10;  // has the last lines
constexpr size_t kFirstLine = 64 << 10;

using Name = std::pair<int64_t, int64_t>;  // rank and number

std::optional<int64_t> take_number(std::string_view& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

// "rank-3.jsonl" → 3 and 1, "rank-3-2.jsonl" → 3 and 2.
std::optional<Name> name_of(std::string_view text, std::string_view suffix) {
  constexpr std::string_view kBegin = "rank-";
  if (!text.starts_with(kBegin) || !text.ends_with(suffix)) return std::nullopt;
  text.remove_prefix(kBegin.size());
  text.remove_suffix(suffix.size());
  const std::optional<int64_t> rank = take_number(text);
  if (!rank) return std::nullopt;
  if (text.empty()) return Name{*rank, 1};
  if (text[0] != '-') return std::nullopt;
  text.remove_prefix(1);
  const std::optional<int64_t> number = take_number(text);
  if (!number || !text.empty()) return std::nullopt;
  return Name{*rank, *number};
}

std::string host_name() {
  std::array<char, 65> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return {};
  return name.data();
}

bool is_record(const Record& line, std::string_view kind) {
  return line.is_object() && line.contains("record") && line["record"] == kind;
}

// The complete lines of a file's end.
std::string tail_of(std::ifstream& file) {
  file.clear();
  file.seekg(0, std::ios::end);
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(0, size - kTail));
  std::string text(static_cast<size_t>(std::min(size, kTail)), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  const size_t last = text.rfind('\n');
  text.resize(last == std::string::npos ? 0 : last + 1);
  return text;
}

void read_tail(std::ifstream& file, RankFile& into) {
  const std::string text = tail_of(file);
  for (size_t end = text.size(); end > 0 && into.step.is_null();) {
    const size_t begin = text.rfind('\n', end - 2);
    const size_t first = end < 2 || begin == std::string::npos ? 0 : begin + 1;
    Record line = Record::parse(text.substr(first, end - first), nullptr, false);
    if (is_record(line, "end"))
      into.end = std::move(line);
    else if (is_record(line, "step"))
      into.step = std::move(line);
    end = first;
  }
}

std::optional<RankFile> read_one(const std::filesystem::path& path, const std::string& host) {
  std::ifstream file(path);
  std::string line(kFirstLine, '\0');
  if (!file.getline(line.data(), static_cast<std::streamsize>(line.size()))) return std::nullopt;
  line.resize(static_cast<size_t>(file.gcount()));
  RankFile found;
  found.path = path.string();
  found.start = Record::parse(line.c_str(), nullptr, false);
  if (!is_record(found.start, "start")) return std::nullopt;
  read_tail(file, found);
  struct stat facts{};
  if (stat(path.c_str(), &facts) == 0) {
    found.written = static_cast<double>(facts.st_mtim.tv_sec) +
                    static_cast<double>(facts.st_mtim.tv_nsec) * 1e-9;
  }
  if (found.end.is_null() && found.start.value("host", "") == host) {
    const auto process = found.start.value("process", int64_t{0});
    found.is_gone = process > 0 && kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH;
  }
  return found;
}

}  // namespace

std::vector<std::filesystem::path> rank_files(const std::string& folder,
                                              const std::string& suffix) {
  std::error_code reason;
  std::vector<std::pair<Name, std::filesystem::path>> named;
  for (const auto& entry : std::filesystem::directory_iterator(folder, reason)) {
    if (const auto name = name_of(entry.path().filename().string(), suffix)) {
      named.emplace_back(*name, entry.path());
    }
  }
  if (reason) throw Misuse(format_text("{}: {}", folder, reason.message()), OTR_E_NOT_FOUND);
  std::sort(named.begin(), named.end());
  std::vector<std::filesystem::path> paths;
  for (auto& [name, path] : named) paths.push_back(std::move(path));
  return paths;
}

std::vector<RankFile> read_records(const std::string& folder) {
  const std::string host = host_name();
  std::vector<RankFile> all;
  for (const auto& path : rank_files(folder, ".jsonl")) {
    if (auto file = read_one(path, host)) all.push_back(std::move(*file));
  }
  const auto key = [](const RankFile& file) {
    const Record& name = file.start["name"];
    return std::tuple(name.is_string() ? name.get<std::string>() : std::string(),
                      file.start.value("rank", int64_t{0}));
  };
  const auto began = [](const RankFile& file) { return file.start.value("time", 0.0); };
  std::stable_sort(all.begin(), all.end(), [&](const RankFile& a, const RankFile& b) {
    return std::tuple(key(a), began(a)) < std::tuple(key(b), began(b));
  });
  std::vector<RankFile> shown;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool is_last = i + 1 == all.size() || key(all[i]) != key(all[i + 1]);
    if (is_last || !all[i].is_over()) shown.push_back(std::move(all[i]));
  }
  return shown;
}

}  // namespace outrigger::tools
