// SPDX-License-Identifier: Apache-2.0
// Libraries that cannot be used: one error that says why, and the next call tries again.
#include <cstdlib>

#include "nccl_support.h"

namespace {

using namespace otr_test;

// A library is loaded once in a process, so each of these has one of its own.
template <typename Body>
void in_a_process_with(const char* library, const Body& body) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("OTR_NCCL_LIBRARY", library, 1);
        body();
        std::exit(testing::Test::HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

void expect_refused(int32_t expected, const std::vector<std::string>& parts) {
  int32_t version = -1;
  EXPECT_EQ(nccl_table().library_version(&version), expected);
  const std::string text = nccl_table().last_error();
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
  unsigned char id[OTR_PLUGIN_ID_BYTES];
  EXPECT_EQ(nccl_table().create_id(id), expected);
}

using NcclLibraryDeathTest = testing::Test;

TEST(NcclLibraryDeathTest, OneThatIsNotThereIsNamedAndLookedForAgain) {
  const std::string mock = std::getenv("OTR_NCCL_LIBRARY");
  in_a_process_with("/nowhere/libnccl.so.9", [&] {
    expect_refused(OTR_E_NOT_FOUND, {"there is no NCCL; tried: /nowhere/libnccl.so.9",
                                     "No such file", "OTR_NCCL_LIBRARY names it", "2.18"});
    setenv("OTR_NCCL_LIBRARY", mock.c_str(), 1);
    int32_t version = 0;
    EXPECT_EQ(nccl_table().library_version(&version), OTR_OK);
    EXPECT_EQ(version, 22809);
  });
}

// On a machine with a system's NCCL this finds it, so it is only asked where there is none.
TEST(NcclLibraryDeathTest, WithoutAVariableItIsTheSystems) {
  in_a_process_with("", [] {
    int32_t version = 0;
    if (nccl_table().library_version(&version) == OTR_OK) return;
    const std::string text = nccl_table().last_error();
    EXPECT_NE(text.find("libnccl.so.2"), std::string::npos) << text;
    EXPECT_NE(text.find("OTR_NCCL_LIBRARY is not set"), std::string::npos) << text;
  });
}

TEST(NcclLibraryDeathTest, FunctionsThatAreMissingAreNamed) {
  in_a_process_with(OTR_OLD_NCCL, [] {
    expect_refused(OTR_E_UNSUPPORTED, {OTR_OLD_NCCL,
                                       "has no ncclCommInitRankConfig, "
                                       "ncclGetLastError:",
                                       "2.18"});
  });
}

TEST(NcclLibraryDeathTest, AnOldReleaseIsRefused) {
  const std::string mock = std::getenv("OTR_NCCL_LIBRARY");
  in_a_process_with(mock.c_str(), [] {
    mock_nccl().set("version", 21705);
    expect_refused(OTR_E_UNSUPPORTED, {"is NCCL 2.17.5; install 2.18 or later"});
    mock_nccl().set("version", 21803);
    int32_t version = 0;
    EXPECT_EQ(nccl_table().library_version(&version), OTR_OK);
    EXPECT_EQ(version, 21803);
  });
}

TEST(NcclLibraryDeathTest, WhatANewerReleaseHasIsNotNeeded) {
  in_a_process_with(OTR_MOCK_NCCL_218, [] {
    on_ranks(1, [](NcclRank& r) {
      const float* const data = r.put(std::vector<float>{1, 2, 3});
      void* handle = nullptr;
      EXPECT_EQ(nccl_table().register_memory(r.collective, const_cast<float*>(data), 12, &handle),
                OTR_E_UNSUPPORTED);
      EXPECT_NE(std::string(nccl_table().last_error()).find("2.19"), std::string::npos);
      EXPECT_EQ(handle, nullptr);
    });
  });
}

}  // namespace
