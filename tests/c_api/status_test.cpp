// SPDX-License-Identifier: Apache-2.0
// Statuses, error texts, versions.
#include <map>
#include <thread>

#include "support.h"

namespace {

using namespace otr_test;

TEST(Status, EveryCodeHasItsName) {
  const std::map<int32_t, std::string> names{{OTR_OK, "OTR_OK"},
                                             {OTR_E_ARGUMENT, "OTR_E_ARGUMENT"},
                                             {OTR_E_STATE, "OTR_E_STATE"},
                                             {OTR_E_CONFIG, "OTR_E_CONFIG"},
                                             {OTR_E_UNSUPPORTED, "OTR_E_UNSUPPORTED"},
                                             {OTR_E_SHAPE, "OTR_E_SHAPE"},
                                             {OTR_E_DTYPE, "OTR_E_DTYPE"},
                                             {OTR_E_DEVICE, "OTR_E_DEVICE"},
                                             {OTR_E_NOT_FOUND, "OTR_E_NOT_FOUND"},
                                             {OTR_E_DUPLICATE, "OTR_E_DUPLICATE"},
                                             {OTR_E_OUT_OF_MEMORY, "OTR_E_OUT_OF_MEMORY"},
                                             {OTR_E_BUFFER_SIZE, "OTR_E_BUFFER_SIZE"},
                                             {OTR_E_PEER_DEAD, "OTR_E_PEER_DEAD"},
                                             {OTR_E_TIMEOUT, "OTR_E_TIMEOUT"},
                                             {OTR_E_MISMATCH, "OTR_E_MISMATCH"},
                                             {OTR_E_ABORTED, "OTR_E_ABORTED"},
                                             {OTR_E_POISONED, "OTR_E_POISONED"},
                                             {OTR_E_SYSTEM, "OTR_E_SYSTEM"},
                                             {OTR_E_ABI, "OTR_E_ABI"},
                                             {OTR_E_HOST, "OTR_E_HOST"},
                                             {OTR_E_INTERRUPTED, "OTR_E_INTERRUPTED"},
                                             {OTR_E_LOSS_SCALE, "OTR_E_LOSS_SCALE"},
                                             {OTR_E_DEVICE_FAULT, "OTR_E_DEVICE_FAULT"},
                                             {OTR_E_IO, "OTR_E_IO"},
                                             {OTR_E_CORRUPT, "OTR_E_CORRUPT"},
                                             {OTR_E_INTERNAL, "OTR_E_INTERNAL"}};
  for (int32_t status = -200; status <= 200; ++status) {
    const auto found = names.find(status);
    EXPECT_EQ(otr_status_name(status), found == names.end() ? "unknown" : found->second);
  }
  EXPECT_STREQ(otr_status_name(INT32_MIN), "unknown");
  EXPECT_EQ(otr_status_name(OTR_E_SHAPE), otr_status_name(OTR_E_SHAPE)) << "static";
}

TEST(Status, VersionsAreTheHeaders) {
  EXPECT_STREQ(otr_version(), OTR_VERSION_STRING);
  EXPECT_EQ(otr_abi_version(), OTR_ABI_VERSION);
  const std::string info = otr_build_info();
  EXPECT_EQ(info.front(), '{');
  EXPECT_EQ(info.back(), '}');
  for (const char* word : {OTR_VERSION_STRING, "compiler", "simd", "self", "threads", "shm"}) {
    EXPECT_NE(info.find(word), std::string::npos) << word << " is not in " << info;
  }
  EXPECT_EQ(otr_build_info(), otr_build_info()) << "static";
}

TEST(ErrorText, EndsWithTheNextSuccess) {
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_context_create(nullptr, nullptr), "out_context");
  const auto context = make_context();  // its calls succeed
  EXPECT_STREQ(otr_last_error_message(), "");
}

TEST(ErrorText, IsReplacedByTheNextFailure) {
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_context_create(nullptr, nullptr), "out_context");
  const std::string first = otr_last_error_message();
  otr_call_info info;
  EXPECT_FAILS(OTR_E_ABI, otr_call_info_init(&info, 1), "1");
  EXPECT_NE(first, otr_last_error_message());
}

TEST(ErrorText, IsLeftAloneByFunctionsWithoutAStatus) {
  Solo solo("");
  solo.engine.add("w", {2}, {1, 2});
  solo.engine.commit();
  auto pass = solo.engine.begin();
  int64_t count = 2;
  float values[2] = {1, 2};
  otr_tensor tensor;
  ASSERT_OK(otr_tensor_init(values, "float32", 1, &count, &tensor));
  otr_shard* shard = nullptr;
  ASSERT_OK(otr_shard_wrap(solo.context.get(), &tensor, &tensor, nullptr, &shard));
  otr_optimizer* optimizer = nullptr;
  ASSERT_OK(otr_optimizer_create(solo.context.get(), nullptr, &optimizer));

  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_engine_parameter_id(solo.engine.get(), "x", &count), "x");
  const std::string text = otr_last_error_message();
  otr_pass_destroy(pass.release());
  EXPECT_EQ(text, otr_last_error_message());
  otr_engine_destroy(solo.engine.release());
  otr_comm_destroy(solo.comm.release());
  otr_context_destroy(solo.context.release());
  otr_shard_destroy(shard);
  otr_optimizer_destroy(optimizer);
  otr_pass_destroy(nullptr);
  otr_engine_destroy(nullptr);
  otr_comm_destroy(nullptr);
  otr_context_destroy(nullptr);
  otr_shard_destroy(nullptr);
  otr_optimizer_destroy(nullptr);
  static_cast<void>(otr_status_name(OTR_E_STATE));
  static_cast<void>(otr_version());
  static_cast<void>(otr_abi_version());
  static_cast<void>(otr_build_info());
  EXPECT_EQ(text, otr_last_error_message());
}

TEST(ErrorText, BelongsToItsThread) {
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_context_create(nullptr, nullptr), "out_context");
  std::thread([] {
    EXPECT_STREQ(otr_last_error_message(), "");
    EXPECT_FAILS(OTR_E_ARGUMENT, otr_call_info_init(nullptr, 100), "info");
  }).join();
  EXPECT_NE(std::string(otr_last_error_message()).find("out_context"), std::string::npos);
}

// A text quotes names that came from the caller, whatever they hold.
TEST(ErrorText, IsOneLineAndWholeCharacters) {
  Solo solo("");
  int64_t id = 0;
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_engine_parameter_id(solo.engine.get(), "a\nb\tc\r", &id), "a",
               "b");

  for (size_t shift = 0; shift < 4; ++shift) {
    std::string name(shift, 'x');
    for (int i = 0; i < 5000; ++i) name += "\xe2\x82\xac";  // the euro sign, three bytes
    EXPECT_FAILS(OTR_E_NOT_FOUND, otr_engine_parameter_id(solo.engine.get(), name.c_str(), &id),
                 "\xe2\x82\xac");
    const std::string text = otr_last_error_message();
    size_t tail = 0;  // bytes after the last whole character
    while (tail < text.size() &&
           (static_cast<unsigned char>(text[text.size() - 1 - tail]) & 0xc0) == 0x80)
      ++tail;
    const auto last = static_cast<unsigned char>(text[text.size() - 1 - tail]);
    const size_t needed = last < 0x80 ? 0 : last < 0xe0 ? 1 : last < 0xf0 ? 2 : 3;
    EXPECT_EQ(tail, needed)
        << "the text ends inside a character: hosts that decode UTF-8 cannot read it";
  }
}

}  // namespace
