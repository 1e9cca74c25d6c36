// SPDX-License-Identifier: Apache-2.0
// Messages: what goes in comes out, bit by bit.
#include <array>
#include <cstring>
#include <numeric>

#include "messages.h"

namespace {

using namespace otr_test;

// ---- What comes out -----------------------------------------------------------------------------

TEST(Message, EveryDtypeComesOutBitByBit) {
  std::array<uint8_t, 48> bits{};
  std::iota(bits.begin(), bits.end(), static_cast<uint8_t>(0xf0));  // NaNs and Infs among them
  for (const char* dtype : {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
                            "uint64", "float16", "bfloat16", "float32", "float64"}) {
    SCOPED_TRACE(dtype);
    int64_t shape[2] = {2, 3};
    otr_tensor t;
    ASSERT_OK(otr_tensor_init(bits.data(), dtype, 2, shape, &t));
    Parts parts;
    parts.add("x", t);
    Buffer buffer = parts.packed();
    const Message message = unpacked(buffer);
    const otr_tensor x = tensor_in(message, "x");
    EXPECT_EQ(std::memcmp(&x.dtype, &t.dtype, sizeof t.dtype), 0);
    ASSERT_EQ(x.ndim, 2);
    EXPECT_EQ(x.shape[0], 2);
    EXPECT_EQ(x.shape[1], 3);
    EXPECT_EQ(x.strides, nullptr);
    const size_t bytes = size_t{6} * t.dtype.bits / 8;
    EXPECT_EQ(std::memcmp(x.data, bits.data(), bytes), 0);
    const auto place = static_cast<unsigned char*>(x.data) - buffer.data();
    EXPECT_EQ(place % (t.dtype.bits / 8), 0) << "not aligned";
    EXPECT_EQ(static_cast<size_t>(place) + bytes, buffer.size()) << "not in the buffer itself";
  }
}

// Any strides, negative ones and 0 too, and a byte offset.
TEST(Message, ViewsComeOutRowMajor) {
  std::array<float, 24> values{};
  std::iota(values.begin(), values.end(), 1.0F);
  struct Row {
    Shape shape, strides;
    uint64_t byte_offset;
  };
  for (const Row& row : {Row{{4, 6}, {6, 1}, 0}, Row{{6, 4}, {1, 6}, 0}, Row{{3, 2}, {8, 2}, 4},
                         Row{{4, 3}, {-6, -2}, 23 * 4}, Row{{2, 3, 2}, {12, 0, 1}, 8},
                         Row{{}, {}, 20}, Row{{1, 5}, {99, 1}, 0}, Row{{5, 1}, {3, 99}, 0}}) {
    otr_tensor t{};
    t.data = values.data();
    t.device = {OTR_DEVICE_CPU, 0};
    t.dtype = {OTR_DTYPE_FLOAT, 32, 1};
    t.ndim = static_cast<int32_t>(row.shape.size());
    t.shape = const_cast<int64_t*>(row.shape.data());
    t.strides = const_cast<int64_t*>(row.strides.data());
    t.byte_offset = row.byte_offset;
    Parts parts;
    parts.add("x", t);
    Buffer buffer = parts.packed();
    const Message message = unpacked(buffer);
    const otr_tensor x = tensor_in(message, "x");
    EXPECT_EQ(Shape(x.shape, x.shape + x.ndim), row.shape);
    EXPECT_EQ(values_of(x), values_of(t));
  }
}

// Larger than what is hashed at a time, in two layouts, behind elements of another width.
TEST(Message, LargeTensorsComeOutWhole) {
  const int64_t rows = 700, columns = 1101;
  std::vector<float> values(static_cast<size_t>(rows * columns));
  std::iota(values.begin(), values.end(), 0.5F);
  std::vector<uint8_t> bytes(3'000'001);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7 + i / 256);
  int64_t shape[2] = {rows, columns}, turned[2] = {columns, rows}, strides[2] = {1, columns};
  int64_t count[1] = {static_cast<int64_t>(bytes.size())};
  otr_tensor whole, transposed, b;
  ASSERT_OK(otr_tensor_init(values.data(), "float32", 2, shape, &whole));
  ASSERT_OK(otr_tensor_init(values.data(), "float32", 2, turned, &transposed));
  ASSERT_OK(otr_tensor_init(bytes.data(), "uint8", 1, count, &b));
  transposed.strides = strides;
  Parts parts;
  parts.add("bytes", b);
  parts.add("transposed", transposed);
  parts.add("whole", whole);
  Buffer buffer = parts.packed();
  const Message message = unpacked(buffer);
  EXPECT_EQ(std::memcmp(tensor_in(message, "bytes").data, bytes.data(), bytes.size()), 0);
  EXPECT_EQ(std::memcmp(tensor_in(message, "whole").data, values.data(), values.size() * 4), 0);
  const auto* t = static_cast<const float*>(tensor_in(message, "transposed").data);
  for (int64_t c = 0; c < columns; c += 100) {
    for (int64_t r = 0; r < rows; r += 99) {
      ASSERT_EQ(t[c * rows + r], values[static_cast<size_t>(r * columns + c)]);
    }
  }
}

TEST(Message, EmptyBatchesAndNoTensorsAreMessages) {
  Parts parts;
  int64_t none[2] = {0, 8};
  otr_tensor t;
  ASSERT_OK(otr_tensor_init(nullptr, "bfloat16", 2, none, &t));
  parts.add("embedding", t);
  Buffer buffer = parts.packed();
  Message message = unpacked(buffer);
  const otr_tensor x = tensor_in(message, "embedding");
  EXPECT_EQ(Shape(x.shape, x.shape + 2), (Shape{0, 8}));
  EXPECT_EQ(info_of(message).tensor_count, 1);

  Buffer nothing = Parts().packed();
  message = unpacked(nothing);
  EXPECT_EQ(info_of(message).tensor_count, 0);
  EXPECT_EQ(info_of(message).micro_batch, 0);
  EXPECT_EQ(info_of(message).bytes, static_cast<int64_t>(nothing.size()));
  Buffer defaults(nothing.size());
  size_t size = defaults.size();
  ASSERT_OK(otr_message_pack(nullptr, nullptr, 0, nullptr, defaults.data(), &size));
  EXPECT_EQ(defaults.text(), nothing.text());
}

// Texts of any characters; what looks like the library's own keys is the host's all the same.
TEST(Message, AttributesAndTheTagComeOut) {
  Parts parts = two_tensors();
  const otr_message_attribute given[] = {{"split", "train \"a\" \\ \n\x01 ä"},
                                         {"", "empty"},
                                         {"outrigger.message", "9:ffffffffffffffff"},
                                         {"outrigger.message.micro_batch", "-3"}};
  otr_call_info tag;
  ASSERT_OK(otr_call_info_init(&tag, sizeof tag));
  tag.loss_scale = 65536.0 / 3;
  tag.accumulation = 4;
  tag.ranks = 3;
  parts.options.tag = &tag;
  parts.options.attributes = given;
  parts.options.attribute_count = std::ssize(given);
  Buffer buffer = parts.packed();
  const Message message = unpacked(buffer);
  EXPECT_EQ(info_of(message).micro_batch, 7);
  EXPECT_EQ(info_of(message).attribute_count, 4);
  const char* text = nullptr;
  for (const otr_message_attribute& attribute : given) {
    ASSERT_OK(otr_message_get_attribute(message.get(), attribute.name, &text));
    EXPECT_STREQ(text, attribute.text);
  }
  std::vector<std::string> names;
  for (int64_t i = 0; i < 4; ++i) {
    ASSERT_OK(otr_message_attribute_name(message.get(), i, &text));
    names.emplace_back(text);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"", "outrigger.message",
                                             "outrigger.message.micro_batch", "split"}));
  otr_call_info read;
  ASSERT_OK(otr_call_info_init(&read, sizeof read));
  ASSERT_OK(otr_message_get_tag(message.get(), &read));
  EXPECT_EQ(read.loss_scale, tag.loss_scale);
  EXPECT_EQ(read.accumulation, 4);
  EXPECT_EQ(read.ranks, 3);
  // Wider elements come first.
  ASSERT_OK(otr_message_tensor_name(message.get(), 0, &text));
  EXPECT_STREQ(text, "targets");
  ASSERT_OK(otr_message_tensor_name(message.get(), 1, &text));
  EXPECT_STREQ(text, "embedding");
}

TEST(Message, WithoutATagNothingIsSaid) {
  Buffer buffer = two_tensors().packed();
  otr_call_info read;
  ASSERT_OK(otr_call_info_init(&read, sizeof read));
  read.loss_scale = 8;
  read.flags = OTR_PASS_KEEP_DTYPE;
  ASSERT_OK(otr_message_get_tag(unpacked(buffer).get(), &read));
  EXPECT_EQ(read.loss_scale, 0);
  EXPECT_EQ(read.accumulation, 0);
  EXPECT_EQ(read.ranks, 0);
  EXPECT_EQ(read.flags, OTR_PASS_KEEP_DTYPE);
}

// ---- Places that are filled later ---------------------------------------------------------------

TEST(Message, APlaceIsFilledWhereItIsSentFrom) {
  Parts parts = two_tensors();
  parts.tensors[0].data = nullptr;
  Buffer buffer = parts.packed();
  Message message;
  EXPECT_FAILS(OTR_E_CORRUPT, unpack(buffer.data(), buffer.size(), message), "otr_message_seal");
  message = unpacked(buffer, OTR_MESSAGE_UNCHECKED);
  auto* place = static_cast<float*>(tensor_in(message, "embedding").data);
  EXPECT_EQ(reinterpret_cast<uint32_t*>(place)[5], 0x5a5a5a5aU) << "was written";
  for (int i = 0; i < 6; ++i) place[i] = static_cast<float>(i % 2 == 0 ? i + 1 : -(i + 1));
  ASSERT_OK(otr_message_seal(buffer.data(), buffer.size()));
  EXPECT_EQ(buffer.text(), two_tensors().packed().text());
  // Changed again, and sealed again.
  place[0] = 9;
  EXPECT_FAILS(OTR_E_CORRUPT, unpack(buffer.data(), buffer.size(), message), "checksum", "damaged");
  ASSERT_OK(otr_message_seal(buffer.data(), buffer.size()));
  EXPECT_EQ(values_of(tensor_in(unpacked(buffer), "embedding"))[0], 9);
}

}  // namespace
