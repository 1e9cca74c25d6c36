// SPDX-License-Identifier: Apache-2.0
// A snapshot and what it has.
#pragma once

#include <string>

#include "support.h"

namespace otr_test {

class Snapshot {
 public:
  Snapshot() { EXPECT_OK(otr_snapshot_create(&snapshot_)); }
  ~Snapshot() { otr_snapshot_destroy(snapshot_); }
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;
  // As the death of its process does.
  void lose() {
    otr_snapshot_destroy(snapshot_);
    ASSERT_OK(otr_snapshot_create(&snapshot_));
  }
  [[nodiscard]] otr_snapshot* get() const { return snapshot_; }
  [[nodiscard]] otr_snapshot_info info() const {
    otr_snapshot_info info = OTR_SNAPSHOT_INFO_INIT;
    EXPECT_OK(otr_snapshot_get_info(snapshot_, &info));
    return info;
  }
  [[nodiscard]] std::string part(const char* name) const {
    size_t size = 0;
    if (otr_snapshot_part(snapshot_, name, nullptr, &size) != OTR_OK) return "(none)";
    std::string bytes(size, '\0');
    EXPECT_OK(otr_snapshot_part(snapshot_, name, bytes.data(), &size));
    return bytes;
  }

 private:
  otr_snapshot* snapshot_ = nullptr;
};

}  // namespace otr_test
