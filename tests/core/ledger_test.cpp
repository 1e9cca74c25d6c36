// SPDX-License-Identifier: Apache-2.0
// When memory that nobody has touched yet is in the total's peak.
#include "core/memory/ledger.h"

#include <gtest/gtest.h>

#include "core/memory/block.h"

namespace outrigger::memory {
namespace {

Entry total(const Ledger& ledger) { return ledger.entries().back(); }

TEST(LedgerTest, CountsPrivateBlocksInThePeakAsTheyAreTouched) {
  Ledger ledger;
  const Charge held(ledger, Purpose::initial, 100);
  const Block master(ledger, Purpose::master, 40), moment(ledger, Purpose::exp_avg, 70);
  const Charge window(ledger, Purpose::published, 10);
  EXPECT_EQ(total(ledger).resident, 220);
  EXPECT_EQ(total(ledger).peak, 110);
  EXPECT_EQ(ledger.entries()[static_cast<size_t>(Purpose::master)].peak, 40);
  EXPECT_EQ(ledger.untouched(), 110);
  ledger.touch(15);
  EXPECT_EQ(total(ledger).peak, 125);
  ledger.touch(1000);  // more than there is
  EXPECT_EQ(total(ledger).peak, 220);
  EXPECT_EQ(ledger.untouched(), 0);
}

TEST(LedgerTest, CountsEverythingOnceAllIsTouched) {
  Ledger ledger;
  Block moment(ledger, Purpose::exp_avg, 70);
  EXPECT_EQ(total(ledger).peak, 0);
  moment = {};
  EXPECT_EQ(ledger.untouched(), 0) << "it went untouched";
  moment = Block(ledger, Purpose::exp_avg_sq, 30);
  ledger.touch_all();
  EXPECT_EQ(total(ledger).peak, 30);
  const Block scratch(ledger, Purpose::scratch, 5);
  EXPECT_EQ(total(ledger).peak, 35);
  EXPECT_EQ(ledger.untouched(), 0);
}

TEST(LedgerTest, ADevicesMemoryCountsAtOnce) {
  Ledger ledger;
  const Block host(ledger, Purpose::exp_avg, 70);
  const Charge there(ledger, Purpose::master, 10, Space::device);
  EXPECT_EQ(ledger.entries(Space::device).back().peak, 10);
  EXPECT_EQ(total(ledger).peak, 0);
}

}  // namespace
}  // namespace outrigger::memory
