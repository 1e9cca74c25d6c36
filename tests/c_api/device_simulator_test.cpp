// SPDX-License-Identifier: Apache-2.0
// The simulated device says no: to work that races, to copies of pages that are not locked, and to
// whoever counts on more speed than its settings give.
#include <chrono>
#include <vector>

#include "device_support.h"

namespace {

using namespace otr_test;

// Simulated device 6, opened by nobody else, with a range of each memory.
class Alone : public testing::Test {
 protected:
  static constexpr size_t kBytes = 4096;

  void SetUp() override {
    ASSERT_EQ(table_.open(6, &device_), OTR_OK);
    ASSERT_EQ(table_.allocate(device_, kBytes, OTR_PLUGIN_NO_STREAM, &there_), OTR_OK);
    ASSERT_EQ(table_.stream_create(device_, &first_), OTR_OK);
    ASSERT_EQ(table_.stream_create(device_, &second_), OTR_OK);
    ASSERT_EQ(table_.pin(device_, here_.data(), kBytes), OTR_OK);
  }
  void TearDown() override {
    static_cast<void>(table_.synchronize(device_));
    table_.unpin(device_, here_.data());
    table_.stream_destroy(device_, first_);
    table_.stream_destroy(device_, second_);
    EXPECT_EQ(table_.release(device_, there_, OTR_PLUGIN_NO_STREAM), OTR_OK);
    table_.close(device_);
  }
  int32_t up(uint64_t stream, size_t offset = 0, size_t bytes = kBytes) {
    return table_.copy(device_, static_cast<char*>(there_) + offset, here_.data() + offset, bytes,
                       OTR_PLUGIN_HOST_TO_DEVICE, stream);
  }
  int32_t down(uint64_t stream, size_t offset = 0, size_t bytes = kBytes) {
    return table_.copy(device_, here_.data() + offset, static_cast<char*>(there_) + offset, bytes,
                       OTR_PLUGIN_DEVICE_TO_HOST, stream);
  }
  int32_t zero(uint64_t stream, size_t offset, size_t bytes) {
    return table_.zero(device_, static_cast<char*>(there_) + offset, bytes, stream);
  }
  void order(uint64_t before, uint64_t after) {
    otr_plugin_event* event = nullptr;
    ASSERT_EQ(table_.event_record(device_, before, &event), OTR_OK);
    ASSERT_EQ(table_.stream_wait(device_, after, event), OTR_OK);
    table_.event_destroy(device_, event);
  }
  [[nodiscard]] double value(const char* name) {
    double value = -1;
    EXPECT_EQ(table_.get_value(device_, name, &value), OTR_OK);
    return value;
  }
  void expect_race(const char* what, const char* other) {
    ASSERT_EQ(table_.synchronize(device_), OTR_E_DEVICE_FAULT);
    const std::string text = table_.last_error();
    EXPECT_NE(text.find("a race"), std::string::npos) << text;
    EXPECT_NE(text.find(what), std::string::npos) << text;
    EXPECT_NE(text.find(other), std::string::npos) << text;
  }

  const otr_device_plugin& table_ = simulated_table();
  otr_plugin_device* device_ = nullptr;
  void* there_ = nullptr;
  uint64_t first_ = 0, second_ = 0;
  std::vector<char> here_ = std::vector<char>(kBytes, 1);
};

TEST_F(Alone, TwoStreamsThatWriteTheSameBytesRace) {
  ASSERT_EQ(up(first_), OTR_OK);
  ASSERT_EQ(zero(second_, 256, 8), OTR_OK);
  expect_race("zero", "a copy from the host");
}

TEST_F(Alone, AReadBesideAWriteRacesInBothMemories) {
  ASSERT_EQ(down(first_), OTR_OK);  // writes host memory
  order(first_, first_);
  ASSERT_EQ(table_.copy(device_, there_, here_.data(), 16, OTR_PLUGIN_HOST_TO_DEVICE, second_),
            OTR_OK);
  expect_race("a copy from the host", "a copy to the host");
}

TEST_F(Alone, AWriteAfterAReadThatNobodyWaitedForRaces) {
  ASSERT_EQ(down(first_), OTR_OK);
  ASSERT_EQ(zero(second_, 0, kBytes), OTR_OK);
  expect_race("zero", "reads");
}

TEST_F(Alone, EventsAndWaitsOrder) {
  ASSERT_EQ(up(first_), OTR_OK);
  order(first_, second_);
  ASSERT_EQ(zero(second_, 0, kBytes), OTR_OK);
  ASSERT_EQ(table_.stream_synchronize(device_, second_), OTR_OK);
  ASSERT_EQ(up(first_), OTR_OK);  // the host has waited for the zeros
  order(first_, second_);
  ASSERT_EQ(down(second_, 0, 128), OTR_OK);
  ASSERT_EQ(zero(first_, 128, 128), OTR_OK);  // other bytes
  EXPECT_EQ(table_.synchronize(device_), OTR_OK) << table_.last_error();
}

// An event stands for what was given before it, not for what came after.
TEST_F(Alone, AnEventDoesNotOrderWhatComesAfterIt) {
  ASSERT_EQ(up(first_, 0, 64), OTR_OK);
  order(first_, second_);
  ASSERT_EQ(up(first_, 64, 64), OTR_OK);
  ASSERT_EQ(zero(second_, 0, 65), OTR_OK);
  expect_race("zero", "a copy from the host");
}

TEST_F(Alone, MemoryIsFreedInAStreamsOrderAndComesUninitialised) {
  void* data = nullptr;
  ASSERT_EQ(table_.allocate(device_, 512, first_, &data), OTR_OK);
  ASSERT_EQ(table_.copy(device_, here_.data(), data, 512, OTR_PLUGIN_DEVICE_TO_HOST, first_),
            OTR_OK);
  ASSERT_EQ(table_.stream_synchronize(device_, first_), OTR_OK);
  EXPECT_EQ(here_[511], static_cast<char>(0xff));
  uint64_t before = 0, after = 0, total = 0;
  ASSERT_EQ(table_.memory_info(device_, &before, &total), OTR_OK);
  ASSERT_EQ(table_.release(device_, data, first_), OTR_OK);
  ASSERT_EQ(table_.stream_synchronize(device_, first_), OTR_OK);
  ASSERT_EQ(table_.memory_info(device_, &after, &total), OTR_OK);
  EXPECT_EQ(after - before, 512U);
  // Another stream still used it.
  ASSERT_EQ(table_.allocate(device_, 512, first_, &data), OTR_OK);
  order(first_, second_);
  ASSERT_EQ(table_.zero(device_, data, 512, second_), OTR_OK);
  ASSERT_EQ(table_.release(device_, data, first_), OTR_OK);
  expect_race("a release", "zero");
}

// Pages that are locked go beside the host; others make it wait, and are counted.
TEST_F(Alone, CopiesOfOtherPagesWaitAndAreCounted) {
  ASSERT_EQ(table_.set_value(device_, "copy_latency", 0.05), OTR_OK);
  otr_plugin_event* event = nullptr;
  int32_t done = -1;
  ASSERT_EQ(up(first_), OTR_OK);
  ASSERT_EQ(table_.event_record(device_, first_, &event), OTR_OK);
  ASSERT_EQ(table_.event_query(device_, event, &done), OTR_OK);
  EXPECT_EQ(done, 0);
  ASSERT_EQ(table_.event_synchronize(device_, event), OTR_OK);
  ASSERT_EQ(table_.event_query(device_, event, &done), OTR_OK);
  EXPECT_EQ(done, 1);
  table_.event_destroy(device_, event);
  EXPECT_EQ(value("unpinned_bytes"), 0);
  std::vector<char> other(64, 2);
  ASSERT_EQ(table_.copy(device_, there_, other.data(), 64, OTR_PLUGIN_HOST_TO_DEVICE, first_),
            OTR_OK);
  EXPECT_EQ(value("unpinned_bytes"), 64);
  ASSERT_EQ(table_.event_record(device_, first_, &event), OTR_OK);
  // Its host memory may go: nothing still reads it.
  other.assign(64, 3);
  ASSERT_EQ(table_.set_value(device_, "copy_latency", 0), OTR_OK);
  ASSERT_EQ(down(first_, 0, 64), OTR_OK);
  ASSERT_EQ(table_.stream_synchronize(device_, first_), OTR_OK);
  EXPECT_EQ(here_[63], 2);
  table_.event_destroy(device_, event);
  EXPECT_EQ(value("bytes_to_device"), kBytes + 64);
  EXPECT_EQ(value("bytes_to_host"), 64);
}

// Work takes the time that the settings give, one after the other on an engine, beside each other
// on two: never less, whatever the host does.
TEST_F(Alone, WorkTakesItsTime) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_of = [&](const auto& body) {
    const auto begin = Clock::now();
    body();
    EXPECT_EQ(table_.synchronize(device_), OTR_OK);
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  ASSERT_EQ(table_.set_value(device_, "copy_bytes_per_second", kBytes / 0.02), OTR_OK);
  EXPECT_GE(seconds_of([&] {
              for (int i = 0; i < 4; ++i) EXPECT_EQ(up(first_), OTR_OK);
            }),
            0.08);
  ASSERT_EQ(table_.set_value(device_, "copy_bytes_per_second", 0), OTR_OK);
  ASSERT_EQ(table_.set_value(device_, "kernel_bytes_per_second", kBytes / 0.02), OTR_OK);
  ASSERT_EQ(table_.set_value(device_, "launch_latency", 0.01), OTR_OK);
  EXPECT_GE(seconds_of([&] { EXPECT_EQ(zero(first_, 0, kBytes), OTR_OK); }), 0.03);
  EXPECT_GE(seconds_of([&] { EXPECT_EQ(table_.set_value(device_, "delay", 0.02), OTR_OK); }), 0.02);
  EXPECT_LT(seconds_of([&] {
              EXPECT_EQ(table_.set_value(device_, "delay", 20), OTR_OK);
              EXPECT_EQ(table_.set_value(device_, "delay", 20), OTR_OK);
              EXPECT_EQ(table_.set_value(device_, "delay", 0), OTR_OK);
            }),
            20)
      << "0 ends the others";
  EXPECT_GE(seconds_of([&] { EXPECT_EQ(table_.set_value(device_, "delay", 0.02), OTR_OK); }), 0.02);
  ASSERT_EQ(up(first_), OTR_OK);
  ASSERT_EQ(table_.synchronize(device_), OTR_OK);
  ASSERT_EQ(table_.set_value(device_, "skip_kernels", 1), OTR_OK);
  ASSERT_EQ(zero(first_, 0, kBytes), OTR_OK);
  here_.assign(kBytes, 0);
  ASSERT_EQ(down(first_), OTR_OK);
  ASSERT_EQ(table_.synchronize(device_), OTR_OK);
  EXPECT_EQ(here_[0], 1) << "the kernel was skipped";
}

TEST(DeviceValues, AreReadByName) {
  const auto context = device_context();
  double value = -1;
  EXPECT_OK(otr_device_set_value(context.get(), kSimulated, 5, "copy_latency", 0.5));
  EXPECT_OK(otr_device_get_value(context.get(), kSimulated, 5, "copy_latency", &value));
  EXPECT_EQ(value, 0.5);
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_device_get_value(context.get(), kSimulated, 5, "speed", &value),
               "\"speed\"", "unpinned_bytes");
  EXPECT_EQ(value, 0);
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_device_set_value(context.get(), kSimulated, 5, "kernels", 0),
               "\"kernels\"", "cannot be set");
}

}  // namespace
