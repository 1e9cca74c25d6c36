// SPDX-License-Identifier: Apache-2.0
// Each call of the driver fails once, for all of them in a training: an error or none, nothing is
// kept, and the next training has the right bits.
#include "../../sanitizers.h"
#include "cuda_support.h"

namespace {

using namespace otr_test;

// A training in a context of its own, all of which is given back; its text, or none.
std::string trained_once(const std::string& config, std::vector<Values>& values) {
  const auto context = make_context();
  const auto comm = make_self(context.get());
  try {
    values = trained_on_cuda(context.get(), comm.get(), config);
    return {};
  } catch (const Refused& refused) {
    EXPECT_FALSE(std::string(refused.what()).empty());
    return refused.what();
  }
}

void fail_each(const std::string& config, int result, int every) {
  if (outrigger::test::kSanitized) every *= 5;
  std::vector<Values> expected, values;
  ASSERT_EQ(trained_once(config, expected), "");
  int errors = 0, tried = 0;
  for (int n = 1;; n += every) {
    mock_cuda().set("fail_with", result);
    mock_cuda().set("fail_in", n);
    const std::string text = trained_once(config, values);
    const std::string failed = mock_cuda().failed();
    mock_cuda().set("fail_in", 0);
    if (failed.empty()) break;
    ++tried;
    SCOPED_TRACE(failed + ", call " + std::to_string(n) + ": " + text);
    if (text.empty()) {
      EXPECT_EQ(values, expected);
    } else {
      ++errors;
    }
    if (failed == "cuCtxPushCurrent_v2") accept_what_is_held();
    expect_nothing_held();
    if (n % 10 == 1) {
      EXPECT_EQ(trained_once(config, values), "");
      EXPECT_EQ(values, expected);
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(tried, 100 / every);
  EXPECT_GT(errors, tried / 2);
}

std::string offloaded_to(const char* device) {
  return R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.03}},
             "zero_optimization": {"stage": 2, "offload_optimizer": {"device": ")" +
         std::string(device) + R"("}}})";
}

constexpr int kOutOfMemory = 2, kSystem = 304, kIllegalAddress = 700;

TEST(CudaFailures, EachCallOfATrainingOnce) { fail_each(offloaded_to("none"), kSystem, 1); }
TEST(CudaFailures, EachCallOfATrainingThatIsOffloaded) {
  fail_each(offloaded_to("cpu"), kOutOfMemory, 3);
}
TEST(CudaFailures, EachCallThatEndsTheContext) {
  fail_each(offloaded_to("none"), kIllegalAddress, 3);
}

// What has ended a context is what every later call tells.
TEST(CudaFailures, TheFirstFaultIsTheOneThatIsTold) {
  const otr_device_plugin& table = cuda_table();
  otr_plugin_device* device = nullptr;
  ASSERT_EQ(table.open(0, &device), OTR_OK) << table.last_error();
  void* data = nullptr;
  ASSERT_EQ(table.allocate(device, 1024, OTR_PLUGIN_NO_STREAM, &data), OTR_OK);
  mock_cuda().fail("cuMemsetD8Async", kIllegalAddress);
  EXPECT_EQ(table.zero(device, data, 1024, 0), OTR_E_DEVICE_FAULT);
  EXPECT_EQ(std::string(table.last_error()),
            "cuMemsetD8Async: CUDA_ERROR_ILLEGAL_ADDRESS (700), an illegal memory access was "
            "encountered");
  mock_cuda().fail("cuMemsetD8Async", 0);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(table.synchronize(device), OTR_E_DEVICE_FAULT);
    EXPECT_EQ(
        std::string(table.last_error())
            .find("CUDA device 0 (Mock 0) is lost: cuMemsetD8Async: CUDA_ERROR_ILLEGAL_ADDRESS"),
        0U)
        << table.last_error();
  }
  EXPECT_EQ(table.release(device, data, OTR_PLUGIN_NO_STREAM), OTR_OK) << "it goes with the device";
  table.close(device);
  ASSERT_EQ(table.open(0, &device), OTR_OK) << "a new one";
  EXPECT_EQ(table.synchronize(device), OTR_OK);
  table.close(device);
}

}  // namespace
