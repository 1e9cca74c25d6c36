// SPDX-License-Identifier: Apache-2.0
// What the system tells of memory: from tables made up here, and of memory of this process.
#include "core/memory/page_facts.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/memory/block.h"

namespace outrigger::memory {
namespace {

const std::byte* address(uintptr_t place) { return reinterpret_cast<const std::byte*>(place); }

class SmapsTest : public testing::Test {
 protected:
  PageFacts facts(const std::vector<device::Neighbour>& ranges) const {
    return page_facts(ranges, path_);
  }
  void write(const std::string& text) const { std::ofstream(path_) << text; }
  ~SmapsTest() override { std::filesystem::remove(path_); }
  const std::string path_ =
      std::filesystem::temp_directory_path() / ("otr-smaps-" + std::to_string(getpid()));
};

TEST_F(SmapsTest, CountsWhatIsOurs) {
  write(
      "100000-180000 rw-p 00000000 00:00 0 \n"
      "Size:  512 kB\nRss:  400 kB\nAnonHugePages:  200 kB\nLocked:  100 kB\n"
      "VmFlags: rd wr mr\n"
      "200000-300000 rw-s 00000000 00:01 5   /memfd:outrigger (deleted)\n"
      "Rss: 1024 kB\nAnonHugePages: 0 kB\nShmemPmdMapped: 512 kB\nFilePmdMapped: 0 kB\n"
      "Locked: 1024 kB\n"
      "300000-400000 rw-p 00000000 00:00 0    [heap]\nRss: 1024 kB\nLocked: 1024 kB\n");
  // A half of the first mapping in two parts that meet, the second as a whole, none of the third.
  const PageFacts found = facts(
      {{address(0x120000), 0x20000}, {address(0x100000), 0x20000}, {address(0x200000), 0x100000}});
  EXPECT_EQ(found.bytes, 0x140000);
  EXPECT_EQ(found.resident, (200 + 1024) << 10);
  EXPECT_EQ(found.huge, (100 + 512) << 10);
  EXPECT_EQ(found.locked, (50 + 1024) << 10);
  EXPECT_EQ(facts({}).resident, 0);
  EXPECT_EQ(facts({{address(0x500000), 0x1000}}).resident, 0);
}

TEST_F(SmapsTest, SaysWhyItDoesNotKnow) {
  EXPECT_NE(facts({}).reason.find("No such file"), std::string::npos);
  write("no table\n-\n12-\nRss: x kB\n");
  EXPECT_EQ(facts({{address(0x1000), 0x1000}}).resident, 0);
}

// Under a sanitizer, mlock does nothing.
bool process_has_locked() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmLck:")) return std::stoll(line.substr(6)) > 0;
  }
  return false;
}

TEST(PageFacts, FollowABlock) {
  constexpr int64_t kBytes = int64_t{8} << 20;
  Ledger ledger;
  {
    Block block(ledger, Purpose::master, kBytes);
    const Block small(ledger, Purpose::exp_avg, 4096);
    ASSERT_EQ(ledger.pages().size(), 1U);
    EXPECT_EQ(page_facts(ledger.pages()).bytes, kBytes);
    EXPECT_LT(page_facts(ledger.pages()).resident, kBytes / 2) << "nobody has touched it";
    std::memset(block.data(), 1, static_cast<size_t>(kBytes));
    const PageFacts touched = page_facts(ledger.pages());
    EXPECT_GT(touched.resident, kBytes * 9 / 10);
    EXPECT_LE(touched.resident, kBytes + (kBytes >> 4));
    EXPECT_EQ(touched.locked, 0);
    if (mlock(block.data(), static_cast<size_t>(kBytes)) == 0 && process_has_locked()) {
      EXPECT_GT(page_facts(ledger.pages()).locked, kBytes * 9 / 10);
      munlock(block.data(), static_cast<size_t>(kBytes));
    }
    Block moved = std::move(block);
    EXPECT_EQ(ledger.pages().size(), 1U);
  }
  EXPECT_TRUE(ledger.pages().empty());
}

}  // namespace
}  // namespace outrigger::memory
