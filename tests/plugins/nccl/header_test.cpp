// SPDX-License-Identifier: Apache-2.0
// Our declarations beside those of NCCL's header; built where that is.
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "plugins/nccl/library.h"

namespace {

namespace ours = outrigger::nccl;

template <typename A, typename B>
constexpr bool is_nccl_passed_alike() {
  return sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B> &&
         std::is_class_v<A> == std::is_class_v<B>;
}
template <typename... A, typename R, typename... B>
constexpr bool is_nccl_called_alike(const ours::Entry<A...>&, R (*)(B...)) {
  if constexpr (sizeof...(A) != sizeof...(B)) {
    return false;
  } else {
    return sizeof(R) == sizeof(ours::Result) && (... && is_nccl_passed_alike<A, B>());
  }
}

TEST(NcclHeader, EveryFunctionIsCalledAlike) {
  const ours::Library library;
#define OTR_NCCL_COMPARE(symbol, ...) \
  EXPECT_TRUE(is_nccl_called_alike(library.symbol, decltype(&::symbol){})) << #symbol;
  OTR_NCCL_FUNCTIONS(OTR_NCCL_COMPARE)
  OTR_NCCL_NEWER_FUNCTIONS(OTR_NCCL_COMPARE)
#undef OTR_NCCL_COMPARE
}

TEST(NcclHeader, NumbersAreTheSame) {
  EXPECT_EQ(ours::kSuccess, ncclSuccess);
  EXPECT_EQ(ours::kUnhandledCudaError, ncclUnhandledCudaError);
  EXPECT_EQ(ours::kSystemError, ncclSystemError);
  EXPECT_EQ(ours::kInternalError, ncclInternalError);
  EXPECT_EQ(ours::kInvalidArgument, ncclInvalidArgument);
  EXPECT_EQ(ours::kInvalidUsage, ncclInvalidUsage);
  EXPECT_EQ(ours::kRemoteError, ncclRemoteError);
  EXPECT_EQ(ours::kInProgress, ncclInProgress);
  EXPECT_EQ(ours::kUint8, ncclUint8);
  EXPECT_EQ(ours::kFloat16, ncclFloat16);
  EXPECT_EQ(ours::kFloat32, ncclFloat32);
  EXPECT_EQ(ours::kFloat64, ncclFloat64);
  EXPECT_EQ(ours::kBfloat16, ncclBfloat16);
  EXPECT_EQ(ours::kSum, ncclSum);
}

TEST(NcclHeader, StructsLieAlike) {
  EXPECT_EQ(sizeof(ours::UniqueId), sizeof(ncclUniqueId));
  EXPECT_EQ(offsetof(ours::Config, size), offsetof(ncclConfig_t, size));
  EXPECT_EQ(offsetof(ours::Config, magic), offsetof(ncclConfig_t, magic));
  EXPECT_EQ(offsetof(ours::Config, version), offsetof(ncclConfig_t, version));
  EXPECT_EQ(offsetof(ours::Config, blocking), offsetof(ncclConfig_t, blocking));
  EXPECT_EQ(offsetof(ours::Config, cga_cluster_size), offsetof(ncclConfig_t, cgaClusterSize));
  EXPECT_EQ(offsetof(ours::Config, min_ctas), offsetof(ncclConfig_t, minCTAs));
  EXPECT_EQ(offsetof(ours::Config, max_ctas), offsetof(ncclConfig_t, maxCTAs));
  EXPECT_EQ(offsetof(ours::Config, net_name), offsetof(ncclConfig_t, netName));
  EXPECT_EQ(offsetof(ours::Config, split_share), offsetof(ncclConfig_t, splitShare));
  const ours::Config config;
  EXPECT_EQ(config.magic, static_cast<unsigned>(NCCL_API_MAGIC));
  EXPECT_EQ(config.min_ctas, NCCL_CONFIG_UNDEF_INT);
}

}  // namespace
