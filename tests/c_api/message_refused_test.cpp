// SPDX-License-Identifier: Apache-2.0
// Messages that are damaged, that lie, and wrong use.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "messages.h"

namespace {

using namespace otr_test;

// ---- What is refused ----------------------------------------------------------------------------

TEST(Message, EveryFlippedBitIsSeen) {
  Parts parts = two_tensors();
  const otr_message_attribute given[] = {{"split", "train"}};
  parts.options.attributes = given;
  parts.options.attribute_count = 1;
  Buffer buffer = parts.packed();
  Message message;
  for (size_t bit = 0; bit < buffer.size() * 8; ++bit) {
    unsigned char& byte = buffer.data()[bit / 8];
    const auto mask = static_cast<unsigned char>(1U << bit % 8);
    byte ^= mask;
    const int32_t status = unpack(buffer.data(), buffer.size(), message);
    EXPECT_TRUE(status == OTR_E_CORRUPT || status == OTR_E_UNSUPPORTED)
        << "bit " << bit << ": " << status;
    byte ^= mask;
  }
  EXPECT_OK(unpack(buffer.data(), buffer.size(), message));
}

TEST(Message, EveryShorterAndLongerOneIsRefused) {
  Buffer buffer = two_tensors().packed();
  Message message;
  for (size_t size = 0; size <= buffer.size() + 8; ++size) {
    if (size == buffer.size()) continue;
    // Of that size, so that a sanitizer sees a read behind the end.
    Buffer cut(size);
    std::memcpy(cut.data(), buffer.data(), std::min(size, buffer.size()));
    for (const uint32_t flags : {0U, uint32_t{OTR_MESSAGE_UNCHECKED}}) {
      EXPECT_FAILS(OTR_E_CORRUPT, unpack(cut.data(), size, message, flags));
    }
    EXPECT_FAILS(OTR_E_CORRUPT, otr_message_seal(cut.data(), size));
  }
}

// Of another version, of another kind, or with a header that lies: sealed by somebody who can
// count.
TEST(Message, HeadersThatLieAreRefused) {
  Buffer good = two_tensors().packed();
  struct Row {
    const char *from, *to;  // of one length
    int32_t status;
    const char* said;
  };
  for (const Row& row : {
           Row{"message\":\"1:", "message\":\"2:", OTR_E_UNSUPPORTED, "version 2"},
           Row{"message\":\"1:", "message\":\"x:", OTR_E_CORRUPT, "version"},
           Row{"message\":\"1:", "message\":\"0:", OTR_E_CORRUPT, "version"},
           Row{"outrigger.message\"", "outrigger.massage\"", OTR_E_CORRUPT, "no message"},
           Row{"message\":\"1:", "message\":\"01", OTR_E_CORRUPT, "version"},
           Row{"message\":\"1:", "message\":\"1 ", OTR_E_CORRUPT, "version"},
           Row{"\",\"outrigger.message.m", "A\",\"outrigger.message.", OTR_E_CORRUPT, "checksum"},
           Row{"micro_batch\":\"7\"", "micro_batch\":\"a\"", OTR_E_CORRUPT, "micro_batch"},
           Row{"micro_batch\":\"7\"", "micro_botch\":\"7\"", OTR_E_CORRUPT, "micro_batch"},
           Row{"\"I64\"", "\"C64\"", OTR_E_DTYPE, "C64"},
           Row{"[2,3]", "[2,9]", OTR_E_CORRUPT, "bytes"},
           Row{"\"embedding\"", "\"em\\u0000g\"", OTR_E_CORRUPT, "NUL"},
       }) {
    SCOPED_TRACE(row.to);
    std::string text = good.text();
    const size_t at = text.find(row.from);
    ASSERT_NE(at, std::string::npos);
    text.replace(at, std::strlen(row.to), row.to);
    Buffer changed(text.size());
    std::memcpy(changed.data(), text.data(), text.size());
    Message message;
    EXPECT_FAILS(row.status, unpack(changed.data(), changed.size(), message, OTR_MESSAGE_UNCHECKED),
                 row.said);
    EXPECT_EQ(message, nullptr);
  }
}

// Another writer's file may have a header of any length.
TEST(Message, TensorsThatAreNotAlignedAreRefused) {
  std::string text = two_tensors().packed().text();
  uint64_t length = 0;
  std::memcpy(&length, text.data(), sizeof length);
  text.insert(8 + length, "    ");
  length += 4;
  std::memcpy(text.data(), &length, sizeof length);
  Buffer longer(text.size());
  std::memcpy(longer.data(), text.data(), text.size());
  Message message;
  EXPECT_FAILS(OTR_E_CORRUPT, unpack(longer.data(), longer.size(), message, OTR_MESSAGE_UNCHECKED),
               "'targets'", "I64", "no multiple of 8");
}

TEST(Message, AHeaderLongerThanTheMessageIsRefused) {
  Buffer buffer = two_tensors().packed();
  Message message;
  for (const uint64_t length : {uint64_t{0}, uint64_t{60}, uint64_t{buffer.size() - 7},
                                uint64_t{1} << 40, ~uint64_t{0}, ~uint64_t{7}}) {
    std::memcpy(buffer.data(), &length, sizeof length);
    for (const uint32_t flags : {0U, uint32_t{OTR_MESSAGE_UNCHECKED}}) {
      EXPECT_FAILS(OTR_E_CORRUPT, unpack(buffer.data(), buffer.size(), message, flags));
    }
  }
}

TEST(Message, WrongUseOfPackIsRefused) {
  const Parts good = two_tensors();
  size_t size = 0;
  {
    Parts parts = good;
    parts.names[1] = "embedding";
    EXPECT_FAILS(OTR_E_ARGUMENT, parts.pack(nullptr, &size), "two tensors", "'embedding'");
    parts.names[1] = "__metadata__";
    EXPECT_FAILS(OTR_E_ARGUMENT, parts.pack(nullptr, &size), "__metadata__");
    parts.names[1] = "\xff";
    EXPECT_FAILS(OTR_E_ARGUMENT, parts.pack(nullptr, &size), "UTF-8");
    parts.names[1] = nullptr;
    EXPECT_FAILS(OTR_E_ARGUMENT, parts.pack(nullptr, &size), "names[1]");
  }
  {
    Parts parts = good;
    parts.tensors[1].device = {OTR_DEVICE_CUDA, 2};
    EXPECT_FAILS(OTR_E_DEVICE, parts.pack(nullptr, &size), "'targets'", "otr_tensor_copy");
    parts = good;
    parts.tensors[1].dtype.bits = 4;
    EXPECT_FAILS(OTR_E_DTYPE, parts.pack(nullptr, &size), "'targets'", "int4", "float32");
    parts.tensors[1].dtype = {OTR_DTYPE_FLOAT, 32, 4};
    EXPECT_FAILS(OTR_E_DTYPE, parts.pack(nullptr, &size), "lanes");
    parts = good;
    parts.tensors[0].ndim = 65;
    EXPECT_FAILS(OTR_E_SHAPE, parts.pack(nullptr, &size), "65");
    parts.tensors[0].ndim = 1;
    parts.tensors[0].shape = nullptr;
    EXPECT_FAILS(OTR_E_ARGUMENT, parts.pack(nullptr, &size), "shape is NULL");
    int64_t shapes[2][2] = {{-1, 2}, {int64_t{1} << 40, int64_t{1} << 40}};
    parts.tensors[0].ndim = 2;
    for (auto& shape : shapes) {
      parts.tensors[0].shape = shape;
      EXPECT_FAILS(OTR_E_SHAPE, parts.pack(nullptr, &size), "'embedding'");
    }
  }
  {
    Parts parts = good;
    parts.options.micro_batch = -1;
    EXPECT_FAILS(OTR_E_ARGUMENT, parts.pack(nullptr, &size), "micro_batch = -1");
    parts = good;
    const otr_message_attribute twice[] = {{"a", "1"}, {"a", "2"}}, none[] = {{"a", nullptr}};
    parts.options.attributes = twice;
    parts.options.attribute_count = 2;
    EXPECT_FAILS(OTR_E_ARGUMENT, parts.pack(nullptr, &size), "'a'", "twice");
    parts.options.attributes = none;
    parts.options.attribute_count = 1;
    EXPECT_FAILS(OTR_E_ARGUMENT, parts.pack(nullptr, &size), "attributes[0]", "NULL");
    parts.options.attribute_count = -1;
    EXPECT_FAILS(OTR_E_ARGUMENT, parts.pack(nullptr, &size), "-1");
    parts = good;
    otr_call_info tag;
    ASSERT_OK(otr_call_info_init(&tag, sizeof tag));
    parts.options.tag = &tag;
    for (const double scale : {-1.0, std::nan(""), HUGE_VAL}) {
      tag.loss_scale = scale;
      EXPECT_FAILS(OTR_E_ARGUMENT, parts.pack(nullptr, &size), "loss_scale");
    }
    tag.loss_scale = 1;
    tag.ranks = -2;
    EXPECT_FAILS(OTR_E_ARGUMENT, parts.pack(nullptr, &size), "ranks -2");
    tag.ranks = 0;
    tag.struct_size = 3;
    EXPECT_FAILS(OTR_E_ABI, parts.pack(nullptr, &size), "struct_size");
  }
  Buffer buffer = good.packed();
  size = buffer.size() - 1;
  EXPECT_FAILS(OTR_E_BUFFER_SIZE, good.pack(buffer.data(), &size),
               std::to_string(buffer.size()) + " bytes");
  EXPECT_EQ(size, buffer.size());
  EXPECT_FAILS(OTR_E_ARGUMENT, good.pack(buffer.data() + 4, &size), "multiple of 8");
  EXPECT_FAILS(OTR_E_ARGUMENT, good.pack(buffer.data(), nullptr), "inout_size");
  // A tensor in the buffer itself, forwards and backwards; behind it, it is good.
  size = buffer.size();
  int64_t two[1] = {2}, back[1] = {-2};
  Parts parts;
  otr_tensor inside;
  ASSERT_OK(otr_tensor_init(buffer.data() + 16, "int64", 1, two, &inside));
  parts.add("inside", inside);
  EXPECT_FAILS(OTR_E_ARGUMENT, parts.pack(buffer.data(), &size), "'inside' lies in the buffer");
  size_t needed = 0;
  ASSERT_OK(parts.pack(nullptr, &needed));
  Buffer larger(needed + 64);
  parts.tensors[0].data = larger.data() + needed / 8 * 8 + 16;
  size = larger.size();
  EXPECT_OK(parts.pack(larger.data(), &size));
  parts.tensors[0].strides = back;
  parts.tensors[0].data = larger.data() + needed / 8 * 8 + 8;
  EXPECT_FAILS(OTR_E_ARGUMENT, parts.pack(larger.data(), &size), "'inside' lies in the buffer");
}

TEST(Message, WrongUseOfAMessageIsRefused) {
  Buffer buffer = two_tensors().packed();
  Message message;
  EXPECT_FAILS(OTR_E_ARGUMENT, unpack(buffer.data() + 1, buffer.size() - 1, message), "of 8");
  EXPECT_FAILS(OTR_E_ARGUMENT, unpack(nullptr, 0, message), "memory is NULL");
  EXPECT_FAILS(OTR_E_ARGUMENT, unpack(buffer.data(), buffer.size(), message, 2), "flags = 2",
               "OTR_MESSAGE_UNCHECKED");
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_message_seal(buffer.data() + 1, 100), "of 8");
  message = unpacked(buffer);
  otr_tensor tensor;
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_message_get_tensor(message.get(), "embeding", &tensor),
               "'embedding'");
  EXPECT_EQ(tensor.data, nullptr);
  const char* text = "";
  for (const int64_t index : {-1, 2}) {
    EXPECT_FAILS(OTR_E_NOT_FOUND, otr_message_tensor_name(message.get(), index, &text), "of 2");
    EXPECT_EQ(text, nullptr);
  }
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_message_attribute_name(message.get(), 0, &text), "of 0");
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_message_get_attribute(message.get(), "step", &text), "'step'");
  otr_call_info info{};
  EXPECT_FAILS(OTR_E_ABI, otr_message_get_tag(message.get(), &info), "struct_size");
}

}  // namespace
