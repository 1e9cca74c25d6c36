// SPDX-License-Identifier: Apache-2.0
// What the tests of messages share.
#pragma once

#include <limits>

#include "support.h"

namespace otr_test {

struct DestroyMessage {
  void operator()(otr_message* message) const { otr_message_destroy(message); }
};
using Message = std::unique_ptr<otr_message, DestroyMessage>;

// Memory at a multiple of 8.
class Buffer {
 public:
  explicit Buffer(size_t bytes) : words_(bytes / 8 + 2, 0x5a5a5a5a5a5a5a5a), bytes_(bytes) {}
  [[nodiscard]] unsigned char* data() { return reinterpret_cast<unsigned char*>(words_.data()); }
  [[nodiscard]] size_t size() const { return bytes_; }
  [[nodiscard]] std::string text() { return {reinterpret_cast<char*>(data()), bytes_}; }

 private:
  std::vector<uint64_t> words_;
  size_t bytes_;
};

inline otr_message_options message_options() {
  otr_message_options options;
  EXPECT_OK(otr_message_options_init(&options, sizeof options));
  return options;
}

// What is sent: names, tensors and options.
struct Parts {
  std::vector<const char*> names;
  std::vector<otr_tensor> tensors;
  otr_message_options options = message_options();

  void add(const char* name, const otr_tensor& tensor) {
    names.push_back(name);
    tensors.push_back(tensor);
  }
  int32_t pack(void* buffer, size_t* size) const {
    return otr_message_pack(names.data(), tensors.data(), static_cast<int64_t>(names.size()),
                            &options, buffer, size);
  }
  [[nodiscard]] Buffer packed() const {
    size_t size = 0;
    EXPECT_OK(pack(nullptr, &size));
    Buffer buffer(size);
    EXPECT_OK(pack(buffer.data(), &size));
    return buffer;
  }
};

inline int32_t unpack(unsigned char* data, size_t size, Message& message, uint32_t flags = 0) {
  otr_message* made = nullptr;
  const int32_t status = otr_message_unpack(data, size, flags, &made);
  message.reset(made);
  return status;
}

inline Message unpacked(Buffer& buffer, uint32_t flags = 0) {
  Message message;
  EXPECT_OK(unpack(buffer.data(), buffer.size(), message, flags));
  return message;
}

inline otr_tensor tensor_in(const Message& message, const char* name) {
  otr_tensor tensor;
  EXPECT_OK(otr_message_get_tensor(message.get(), name, &tensor));
  return tensor;
}

inline otr_message_info info_of(const Message& message) {
  otr_message_info info{};
  info.struct_size = sizeof info;
  EXPECT_OK(otr_message_get_info(message.get(), &info));
  return info;
}

inline Parts two_tensors() {
  static int64_t targets[3] = {5, -1, std::numeric_limits<int64_t>::min()};
  static int64_t three[1] = {3};
  static const Tensor embedding({2, 3}, {1, -2, 3, -4, 5, -6});
  Parts parts;
  otr_tensor t;
  EXPECT_OK(otr_tensor_init(targets, "int64", 1, three, &t));
  parts.add("embedding", embedding.get());
  parts.add("targets", t);
  parts.options.micro_batch = 7;
  return parts;
}

}  // namespace otr_test
