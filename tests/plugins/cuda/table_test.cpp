// SPDX-License-Identifier: Apache-2.0
// The CUDA plugin's table, function by function, beside what the mock driver has seen.
#include <array>
#include <memory>

#include "cuda_support.h"

namespace {

using namespace otr_test;

constexpr size_t kPage = 4096;

class CudaTable : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(table.open(0, &device), OTR_OK) << table.last_error(); }
  void TearDown() override {
    table.close(device);
    expect_nothing_held();
  }
  double value(const char* name) const {
    double out = -1;
    EXPECT_EQ(table.get_value(device, name, &out), OTR_OK) << table.last_error();
    return out;
  }
  static double seen(const char* name) {
    double out = -1;
    EXPECT_EQ(mock_cuda().device_get(0, name, &out), OTR_OK);
    return out;
  }
  const otr_device_plugin& table = cuda_table();
  otr_plugin_device* device = nullptr;
};

// Pages of their own.
std::shared_ptr<std::byte> pages(size_t bytes) {
  return {static_cast<std::byte*>(std::aligned_alloc(kPage, bytes)), std::free};
}

TEST_F(CudaTable, EveryCallLeavesTheThreadsContextAsItWas) {
  void* data = nullptr;
  EXPECT_EQ(table.allocate(device, 100, 0, &data), OTR_OK);
  EXPECT_EQ(mock_cuda().get("depth"), 0);
  EXPECT_EQ(table.copy(device, data, data, 8, 7, 0), OTR_E_ARGUMENT);
  EXPECT_NE(std::string(table.last_error()).find("direction 7"), std::string::npos);
  EXPECT_EQ(mock_cuda().get("depth"), 0);
  EXPECT_EQ(table.release(device, data, 0), OTR_OK);
  EXPECT_EQ(table.release(device, data, 0), OTR_E_ARGUMENT);
  EXPECT_NE(std::string(table.last_error()).find("no live allocation"), std::string::npos);
}

TEST_F(CudaTable, CountsAreWhatTheDriverHasSeen) {
  const auto host = pages(2 * kPage);
  void* data = nullptr;
  ASSERT_EQ(table.allocate(device, 2 * kPage, OTR_PLUGIN_NO_STREAM, &data), OTR_OK);
  EXPECT_EQ(value("allocations"), 1);
  const double unpinned = seen("unpinned_bytes");
  ASSERT_EQ(table.copy(device, data, host.get(), 100, OTR_PLUGIN_HOST_TO_DEVICE, 0), OTR_OK);
  EXPECT_EQ(value("unpinned_bytes"), 100);
  EXPECT_EQ(seen("unpinned_bytes") - unpinned, 100);
  ASSERT_EQ(table.pin(device, host.get(), 2 * kPage), OTR_OK) << table.last_error();
  ASSERT_EQ(table.copy(device, host.get(), data, 300, OTR_PLUGIN_DEVICE_TO_HOST, 0), OTR_OK);
  ASSERT_EQ(table.copy(device, data, host.get(), 50, OTR_PLUGIN_HOST_TO_DEVICE, 0), OTR_OK);
  EXPECT_EQ(value("unpinned_bytes"), 100);
  EXPECT_EQ(value("bytes_to_device"), seen("bytes_to_device"));
  EXPECT_EQ(value("bytes_to_host"), seen("bytes_to_host"));
  EXPECT_EQ(value("bytes_to_host"), 300);
  table.unpin(device, host.get());
  EXPECT_EQ(table.release(device, data, OTR_PLUGIN_NO_STREAM), OTR_OK);
}

// Two pieces beside each other, as 64 GiB and the rest are: a copy of both is two.
TEST_F(CudaTable, CopiesEndWhereARegistrationDoes) {
  const auto host = pages(3 * kPage);
  for (size_t i = 0; i < 3 * kPage; ++i) host.get()[i] = std::byte(i % 251);
  ASSERT_EQ(table.pin(device, host.get(), kPage), OTR_OK);
  ASSERT_EQ(table.pin(device, host.get() + kPage, kPage), OTR_OK);
  EXPECT_EQ(table.pin(device, host.get() + kPage / 2, kPage), OTR_E_ARGUMENT);
  void* data = nullptr;
  ASSERT_EQ(table.allocate(device, 3 * kPage, 0, &data), OTR_OK);
  ASSERT_EQ(table.copy(device, data, host.get(), 2 * kPage, OTR_PLUGIN_HOST_TO_DEVICE, 0), OTR_OK);
  EXPECT_EQ(value("unpinned_bytes"), 0);
  EXPECT_EQ(seen("unpinned_bytes"), 0);
  ASSERT_EQ(table.copy(device, data, host.get(), 3 * kPage, OTR_PLUGIN_HOST_TO_DEVICE, 0), OTR_OK);
  EXPECT_EQ(value("unpinned_bytes"), kPage);
  const auto back = pages(3 * kPage);
  ASSERT_EQ(table.copy(device, back.get(), data, 3 * kPage, OTR_PLUGIN_DEVICE_TO_HOST, 0), OTR_OK);
  ASSERT_EQ(table.synchronize(device), OTR_OK);
  EXPECT_TRUE(std::equal(back.get(), back.get() + 3 * kPage, host.get()));
  table.unpin(device, host.get());
  table.unpin(device, host.get() + kPage);
  EXPECT_EQ(table.release(device, data, 0), OTR_OK);
}

TEST_F(CudaTable, TwoDevicesLockTheSamePages) {
  otr_plugin_device* other = nullptr;
  ASSERT_EQ(table.open(1, &other), OTR_OK);
  const auto host = pages(kPage);
  const double before = mock_cuda().get("registrations");
  ASSERT_EQ(table.pin(device, host.get(), kPage), OTR_OK);
  ASSERT_EQ(table.pin(other, host.get(), kPage), OTR_OK);
  EXPECT_EQ(mock_cuda().get("registrations") - before, 1);
  table.unpin(device, host.get());
  EXPECT_EQ(mock_cuda().get("registrations") - before, 1) << "the other one needs them";
  table.close(other);  // with what it has not unlocked
  EXPECT_EQ(mock_cuda().get("registrations"), before);
}

TEST_F(CudaTable, OneDeviceIsOpenedTwice) {
  otr_plugin_device* again = nullptr;
  ASSERT_EQ(table.open(0, &again), OTR_OK);
  EXPECT_EQ(mock_cuda().get("contexts"), 1);
  void* data = nullptr;
  ASSERT_EQ(table.allocate(again, 64, OTR_PLUGIN_NO_STREAM, &data), OTR_OK);
  table.close(again);
  EXPECT_EQ(table.release(device, data, OTR_PLUGIN_NO_STREAM), OTR_OK);
  EXPECT_EQ(table.open(8, &again), OTR_E_ARGUMENT);
  EXPECT_EQ(again, nullptr);
}

TEST_F(CudaTable, WhatIsLeftGoesWithTheDevice) {
  void* data = nullptr;
  uint64_t stream = 0;
  otr_plugin_event* event = nullptr;
  const double before = mock_cuda().get("events");
  ASSERT_EQ(table.allocate(device, 64, 0, &data), OTR_OK);
  ASSERT_EQ(table.stream_create(device, &stream), OTR_OK);
  ASSERT_EQ(table.event_record(device, stream, &event), OTR_OK);
  table.event_destroy(device, event);
  EXPECT_EQ(mock_cuda().get("events") - before, 1) << "kept for the next";
  ASSERT_EQ(table.event_record(device, stream, &event), OTR_OK);
  EXPECT_EQ(mock_cuda().get("events") - before, 1);
  table.event_destroy(device, event);
}

TEST_F(CudaTable, PrioritiesAreTheDrivers) {
  EXPECT_EQ(value("stream_priority"), 5) << "the greatest is what there is without a setting";
  EXPECT_EQ(table.set_value(device, "stream_priority", 0), OTR_OK);
  EXPECT_EQ(value("stream_priority"), 0);
  EXPECT_EQ(table.set_value(device, "stream_priority", 6), OTR_E_ARGUMENT);
  EXPECT_NE(std::string(table.last_error()).find("0 to 5"), std::string::npos);
  EXPECT_EQ(table.set_value(device, "speed", 1), OTR_E_NOT_FOUND);
  EXPECT_NE(std::string(table.last_error()).find("stream_priority"), std::string::npos);
}

TEST_F(CudaTable, AStreamThatIsNoneIsNamed) {
  EXPECT_EQ(table.stream_synchronize(device, 12345), OTR_E_ARGUMENT);
  EXPECT_NE(std::string(table.last_error()).find("12345"), std::string::npos);
  uint64_t free_bytes = 0, total = 0;
  EXPECT_EQ(table.memory_info(device, &free_bytes, &total), OTR_OK);
  EXPECT_GT(free_bytes, 0U);
  EXPECT_LE(free_bytes, total);
}

TEST_F(CudaTable, ASumOfTooManyRanksIsRefused) {
  void* data = nullptr;
  ASSERT_EQ(table.allocate(device, 1024, OTR_PLUGIN_NO_STREAM, &data), OTR_OK);
  const std::vector<const void*> sources(481, data);
  otr_plugin_fold fold{};
  fold.struct_size = sizeof fold;
  fold.sources = sources.data();
  fold.world = 481;
  fold.accumulator = data;
  fold.count = 256;
  EXPECT_EQ(table.fold(device, &fold, 0), OTR_E_UNSUPPORTED);
  EXPECT_NE(std::string(table.last_error()).find("481 ranks; at most 480"), std::string::npos);
  fold.world = 480;
  EXPECT_EQ(table.fold(device, &fold, 0), OTR_OK);
  EXPECT_EQ(table.release(device, data, OTR_PLUGIN_NO_STREAM), OTR_OK);
}

// A model's list of hundreds of tensors, in as few launches as its arguments allow.
TEST_F(CudaTable, LongListsAreSeveralLaunches) {
  constexpr int64_t kTensors = 100;
  void* data = nullptr;
  ASSERT_EQ(table.allocate(device, kTensors * 1024, OTR_PLUGIN_NO_STREAM, &data), OTR_OK);
  std::vector<otr_plugin_convert> list(kTensors);
  for (size_t i = 0; i < list.size(); ++i) {
    list[i].struct_size = sizeof list[i];
    list[i].from = static_cast<std::byte*>(data) + 1024 * i;
    list[i].to = static_cast<std::byte*>(data) + 1024 * i + 512;
    list[i].count = 100;
    list[i].factor = 1;
  }
  const double before = value("kernels");
  EXPECT_EQ(table.convert(device, list.data(), kTensors, 0), OTR_OK) << table.last_error();
  EXPECT_EQ(value("kernels") - before, 1);
  for (otr_plugin_convert& c : list) {  // with gaps: a longer description
    c.ndim = 1;
    static constexpr int64_t kCount[] = {50}, kStride[] = {2};
    c.shape = kCount;
    c.to_strides = c.from_strides = kStride;
  }
  EXPECT_EQ(table.convert(device, list.data(), kTensors, 0), OTR_OK) << table.last_error();
  EXPECT_EQ(value("kernels") - before, 1 + 12);
  EXPECT_EQ(table.release(device, data, OTR_PLUGIN_NO_STREAM), OTR_OK);
}

// Memory there with float32 values, as long as the object lives.
class There {
 public:
  There(otr_plugin_device* device, const std::vector<float>& values)
      : device_(device), count_(values.size()) {
    EXPECT_EQ(cuda_table().allocate(device, bytes(), OTR_PLUGIN_NO_STREAM, &data_), OTR_OK);
    EXPECT_EQ(
        cuda_table().copy(device, data_, values.data(), bytes(), OTR_PLUGIN_HOST_TO_DEVICE, 0),
        OTR_OK);
  }
  ~There() { EXPECT_EQ(cuda_table().release(device_, data_, OTR_PLUGIN_NO_STREAM), OTR_OK); }
  There(const There&) = delete;
  There& operator=(const There&) = delete;
  [[nodiscard]] float* at() const { return static_cast<float*>(data_); }
  [[nodiscard]] std::vector<float> values() const {
    std::vector<float> out(count_);
    EXPECT_EQ(cuda_table().copy(device_, out.data(), data_, bytes(), OTR_PLUGIN_DEVICE_TO_HOST, 0),
              OTR_OK);
    EXPECT_EQ(cuda_table().synchronize(device_), OTR_OK);
    return out;
  }

 private:
  [[nodiscard]] size_t bytes() const { return count_ * sizeof(float); }
  otr_plugin_device* device_;
  size_t count_;
  void* data_ = nullptr;
};

// Each update's counts begin at zero there, and are added to what the host has.
TEST_F(CudaTable, CountsOfUpdatesAddUp) {
  const There weight(device, std::vector<float>(300, 1)), grad(device, std::vector<float>(300, 2));
  otr_plugin_update u{};
  u.struct_size = sizeof u;
  u.rule = OTR_PLUGIN_SGD;
  u.grad = grad.at();
  u.weight = weight.at();
  u.count = 300;
  u.gradient_factor = 0.5F;
  u.clip_value = 100;
  u.minus_step = -0.25F;
  otr_plugin_update_count total{7, 0};
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(table.update(device, &u, 1, &total, 0), OTR_OK) << table.last_error();
  }
  EXPECT_EQ(weight.values(), std::vector<float>(300, 0.25F));
  EXPECT_EQ(total.updates, 7 + 3 * 300);
  EXPECT_EQ(total.vanished, 0);
}

// A list's pieces have each their own.
TEST_F(CudaTable, DirectionsOfAListAreEachPiecesOwn) {
  const There grads(device, {1, 2, 3, 4}), momentum(device, {8, 8, 8, 8});
  const There out(device, {0, 0, 0, 0});
  std::array<otr_plugin_update, 2> list{};
  for (size_t i = 0; i < 2; ++i) {
    otr_plugin_update& u = list[i];
    u.struct_size = sizeof u;
    u.rule = OTR_PLUGIN_MUON;
    u.grad = grads.at() + 2 * i;
    u.exp_avg = momentum.at() + 2 * i;
    u.direction = out.at() + 2 * (1 - i);
    u.count = 2;
    u.gradient_factor = 1;
    u.clip_value = 100;
    u.beta1 = 0.5F;
    u.one_minus_beta1 = 1;
  }
  ASSERT_EQ(table.update(device, list.data(), 2, nullptr, 0), OTR_OK) << table.last_error();
  const std::vector<float> m = momentum.values(), d = out.values();
  EXPECT_EQ(d, (std::vector<float>{m[2], m[3], m[0], m[1]}));
  EXPECT_NE(m[0], m[2]);
  EXPECT_NE(m[0], 8);
}

}  // namespace
