// SPDX-License-Identifier: Apache-2.0
// Page-locking: in pieces, all of them or none, as the configuration asks.
#include "core/memory/pinned.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/device/host.h"

namespace outrigger::memory {
namespace {

// Notes what is locked, and refuses the n-th piece.
class Driver final : public device::Host {
 public:
  explicit Driver(int refused = 0) : Host(nullptr), refused_(refused) {}
  otr_device id() const override { return {OTR_DEVICE_CUDA, 0}; }
  void pin(void* data, size_t bytes) override {
    if (--refused_ == 0) fail(OTR_E_OUT_OF_MEMORY, "refused");
    EXPECT_TRUE(locked.emplace(data, bytes).second);
  }
  void unpin(void* data) noexcept override { EXPECT_EQ(locked.erase(data), 1U); }
  std::map<void*, size_t> locked;

 private:
  int refused_;
};

TEST(Pinned, IsInPiecesAndComesBackWhole) {
  Ledger ledger;
  std::vector<std::byte> memory(1000);
  Driver driver;
  {
    Pinned pinned(driver, ledger, memory, Pin::require, 400);
    EXPECT_EQ(driver.locked,
              (std::map<void*, size_t>{
                  {memory.data(), 400}, {memory.data() + 400, 400}, {memory.data() + 800, 200}}));
    EXPECT_EQ(ledger.locked().bytes, 1000);
    Pinned other = std::move(pinned);
    pinned = std::move(other);
    EXPECT_EQ(driver.locked.size(), 3U);
    EXPECT_EQ(ledger.locked().wanted, 1000);
  }
  EXPECT_TRUE(driver.locked.empty());
  EXPECT_EQ(ledger.locked().wanted, 0);
  EXPECT_EQ(ledger.locked().bytes, 0);
}

TEST(Pinned, WhateverPieceIsRefusedNothingStaysLocked) {
  for (int refused = 1; refused <= 3; ++refused) {
    Ledger ledger;
    std::vector<std::byte> memory(1000);
    Driver strict(refused), lenient(refused);
    try {
      const Pinned pinned(strict, ledger, memory, Pin::require, 400);
      FAIL() << "piece " << refused;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), OTR_E_OUT_OF_MEMORY);
      const std::string text = error.what();
      for (const char* part : {"1000 bytes", "refused", "\"prefer\""}) {
        EXPECT_NE(text.find(part), std::string::npos) << text;
      }
    }
    EXPECT_TRUE(strict.locked.empty());
    EXPECT_EQ(ledger.locked().wanted, 0);
    const Pinned pinned(lenient, ledger, memory, Pin::prefer, 400);
    EXPECT_TRUE(lenient.locked.empty());
    EXPECT_EQ(ledger.locked().wanted, 1000);
    EXPECT_EQ(ledger.locked().bytes, 0);
    EXPECT_EQ(ledger.locked().reason, "refused");
  }
}

TEST(Pinned, OffAsksForNothing) {
  Ledger ledger;
  std::vector<std::byte> memory(1000);
  Driver driver(1);
  const Pinned pinned(driver, ledger, memory, Pin::off);
  EXPECT_EQ(ledger.locked().bytes, 0);
  EXPECT_NE(ledger.locked().reason.find("\"off\""), std::string::npos);
  device::Host host(nullptr);
  const Pinned none(host, ledger, memory, Pin::require);  // a host has nothing to lock
  EXPECT_EQ(ledger.locked().wanted, 1000);
}

}  // namespace
}  // namespace outrigger::memory
