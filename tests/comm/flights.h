// SPDX-License-Identifier: Apache-2.0
// A folder for flight recorders, and what their files have.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/observe/flight_recorder.h"

namespace outrigger::comm::test {

using namespace observe;
namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string path = (fs::temp_directory_path() / "flight-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = path;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path_); }
  [[nodiscard]] FlightPlace place(bool is_stated = true) const { return {path_, is_stated}; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(path_)) found.push_back(entry.path().string());
    return found;
  }

 private:
  std::string path_;
};

struct Content {
  FlightHeader header;
  std::vector<FlightGroup> groups;
  std::vector<FlightEntry> entries;  // whole ones, by serial
};

inline Content read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(bytes.size(), kFlightBytes) << path;
  Content content{};
  if (bytes.size() != kFlightBytes) return content;
  std::memcpy(&content.header, bytes.data(), sizeof content.header);
  EXPECT_EQ(std::string_view(bytes.data(), 8), "OTRFLGHT");
  EXPECT_EQ(content.header.version, 1U);
  size_t at = sizeof(FlightHeader);
  content.groups.resize(kFlightGroups);
  std::memcpy(content.groups.data(), bytes.data() + at, kFlightGroups * sizeof(FlightGroup));
  at += kFlightGroups * sizeof(FlightGroup);
  for (size_t i = 0; i < kFlightEntries; ++i) {
    FlightEntry entry;
    std::memcpy(&entry, bytes.data() + at + i * sizeof entry, sizeof entry);
    if (entry.serial == 0) continue;
    EXPECT_EQ((entry.serial - 1) % kFlightEntries, i);
    if (entry.serial == entry.serial_again) content.entries.push_back(entry);
  }
  std::sort(content.entries.begin(), content.entries.end(),
            [](const auto& a, const auto& b) { return a.serial < b.serial; });
  return content;
}

template <size_t Size>
std::string text(const char (&from)[Size]) {
  return {from, strnlen(from, Size)};
}

// Since 1970, as the files have it.
inline int64_t nanoseconds_now() {
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace outrigger::comm::test
