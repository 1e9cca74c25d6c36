// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace otr_test {

namespace fs = std::filesystem;

// A folder of this test's own.
class Place {
 public:
  Place() {
    std::string name = (fs::temp_directory_path() / "otr-test-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Place() { fs::remove_all(path_); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  [[nodiscard]] const char* text() const { return path_.c_str(); }
  [[nodiscard]] fs::path operator/(const std::string& name) const { return fs::path(path_) / name; }

 private:
  std::string path_;
};

}  // namespace otr_test
