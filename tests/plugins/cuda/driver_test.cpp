// SPDX-License-Identifier: Apache-2.0
// Drivers and GPUs that cannot be used: one error that says why, and the next call tries again.
#include <cstdlib>

#include <sys/wait.h>
#include <unistd.h>

#include "cuda_support.h"

namespace {

using namespace otr_test;

// A driver is loaded once in a process, so each of these has one of its own.
template <typename Body>
void in_a_new_process(const Body& body) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        body();
        std::exit(testing::Test::HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

int32_t device_of(const Owned<otr_context>& context, int32_t id = 0) {
  void* data = nullptr;
  const int32_t status = otr_device_allocate(context.get(), OTR_DEVICE_CUDA, id, 64, &data);
  return status != OTR_OK ? status : otr_device_free(context.get(), OTR_DEVICE_CUDA, id, data);
}

using CudaDriverDeathTest = testing::Test;

TEST(CudaDriverDeathTest, OneThatIsNotThereIsNamedAndLookedForAgain) {
  in_a_new_process([] {
    const std::string mock = std::getenv("OTR_CUDA_DRIVER");
    setenv("OTR_CUDA_DRIVER", "/nowhere/libcuda.so.7", 1);
    const auto context = make_context();
    EXPECT_FAILS(OTR_E_NOT_FOUND, device_of(context), "/nowhere/libcuda.so.7", "No such file",
                 "OTR_CUDA_DRIVER names it", "driver");
    int32_t count = -1;
    EXPECT_FAILS(OTR_E_NOT_FOUND, otr_device_count(context.get(), OTR_DEVICE_CUDA, &count),
                 "/nowhere/libcuda.so.7");
    setenv("OTR_CUDA_DRIVER", mock.c_str(), 1);
    EXPECT_OK(device_of(context));
  });
}

// On a machine with a driver this finds it, so it is only asked where there is none.
TEST(CudaDriverDeathTest, WithoutAVariableItIsTheSystems) {
  in_a_new_process([] {
    for (const char* value : {"", static_cast<const char*>(nullptr)}) {
      if (value == nullptr) {
        unsetenv("OTR_CUDA_DRIVER");
      } else {
        setenv("OTR_CUDA_DRIVER", value, 1);
      }
      const auto context = make_context();
      if (device_of(context) == OTR_OK) return;
      EXPECT_NE(std::string(otr_last_error_message()).find("libcuda.so.1"), std::string::npos);
    }
  });
}

TEST(CudaDriverDeathTest, FunctionsThatAreMissingAreNamed) {
  in_a_new_process([] {
    setenv("OTR_CUDA_DRIVER", OTR_OLD_CUDA, 1);
    EXPECT_FAILS(OTR_E_UNSUPPORTED, device_of(make_context()), OTR_OLD_CUDA,
                 "has no cuMemPoolTrimTo, cuMemAllocFromPoolAsync:", "460");
  });
}

TEST(CudaDriverDeathTest, NoDeviceIsSaid) {
  in_a_new_process([] {
    mock_cuda().set("devices", 0);
    const auto context = make_context();
    EXPECT_FAILS(OTR_E_NOT_FOUND, device_of(context), "cuInit: CUDA_ERROR_NO_DEVICE (100)",
                 "no CUDA-capable device");
    mock_cuda().set("devices", 2);
    EXPECT_OK(device_of(context, 1));
    EXPECT_FAILS(OTR_E_ARGUMENT, device_of(context, 2), "CUDA device 2 does not exist",
                 "there are 2", "CUDA_VISIBLE_DEVICES");
  });
}

TEST(CudaDriverDeathTest, AForkedChildIsRefused) {
  in_a_new_process([] {
    const auto context = make_context();
    EXPECT_OK(device_of(context));
    const pid_t child = fork();
    if (child == 0) {
      EXPECT_FAILS(OTR_E_STATE, device_of(make_context()), "had initialised CUDA before it forked");
      _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  });
}

TEST(CudaDriver, OldDevicesAreRefused) {
  mock_cuda().set("capability", 70);
  const auto context = make_context();
  EXPECT_FAILS(OTR_E_UNSUPPORTED, device_of(context), "CUDA device 0 (Mock 0)",
               "compute capability 7.0", "7.5 or more");
  mock_cuda().set("capability", 120);
  mock_cuda().set("memory_pools", 0);
  EXPECT_FAILS(OTR_E_UNSUPPORTED, device_of(context), "no memory pools", "CUDA 13.0");
  mock_cuda().set("memory_pools", 1);
  EXPECT_OK(device_of(context));
  mock_cuda().set("capability", 90);
}

// As a driver refuses kernels that it does not know, or none.
TEST(CudaDriver, KernelsThatItDoesNotKnowAreExplained) {
  for (const int result : {200, 209, 222}) {
    mock_cuda().fail("cuModuleLoadDataEx", result);
    const auto context = make_context();
    EXPECT_FAILS(OTR_E_UNSUPPORTED, device_of(context), "cuModuleLoadDataEx",
                 std::to_string(result).c_str(), "kernels", "nvcc");
    mock_cuda().fail("cuModuleLoadDataEx", 0);
    EXPECT_OK(device_of(context));
  }
  expect_nothing_held();
}

}  // namespace
