// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/message/properties.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>

#include "outrigger.h"

namespace otr_fuzz_message {
namespace {

struct Destroy {
  void operator()(otr_message* message) const { otr_message_destroy(message); }
};
using Message = std::unique_ptr<otr_message, Destroy>;

// At a multiple of 8, and no byte longer than the message, for a sanitizer.
class Memory {
 public:
  explicit Memory(size_t bytes) : bytes_(bytes), memory_(new(std::align_val_t{8}) char[bytes]) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { ::operator delete[](memory_, std::align_val_t{8}); }
  [[nodiscard]] char* data() const { return memory_; }
  [[nodiscard]] size_t size() const { return bytes_; }

 private:
  size_t bytes_;
  char* memory_;
};

struct Contents {
  std::vector<std::string> names;
  std::vector<otr_tensor> tensors;
  std::vector<otr_message_attribute> attributes;
  otr_call_info tag{sizeof(otr_call_info), 0, 0, 0, 0, 0, {}};
  int64_t micro_batch = 0;
};

int32_t unpack(const Memory& memory, uint32_t flags, Message& message) {
  otr_message* made = nullptr;
  const int32_t status = otr_message_unpack(memory.data(), memory.size(), flags, &made);
  message.reset(made);
  return status;
}

size_t bytes_of(const otr_tensor& tensor) {
  size_t bytes = tensor.dtype.bits / 8U;
  for (int32_t d = 0; d < tensor.ndim; ++d) bytes *= static_cast<size_t>(tensor.shape[d]);
  return bytes;
}

// Empty if all that the message says can be had.
std::string read(otr_message* message, const Memory& memory, Contents& contents) {
  otr_message_info info{};
  info.struct_size = sizeof info;
  if (otr_message_get_info(message, &info) != OTR_OK) return "no info";
  contents.micro_batch = info.micro_batch;
  if (otr_message_get_tag(message, &contents.tag) != OTR_OK) return "no tag";
  for (int64_t i = 0; i < info.tensor_count; ++i) {
    const char* name = nullptr;
    otr_tensor tensor{};
    if (otr_message_tensor_name(message, i, &name) != OTR_OK) return "a tensor has no name";
    if (otr_message_get_tensor(message, name, &tensor) != OTR_OK) return "a tensor is not there";
    const auto* begin = static_cast<const char*>(tensor.data);
    const size_t bytes = bytes_of(tensor);
    if (begin < memory.data() || begin + bytes > memory.data() + memory.size()) {
      return "a tensor is outside";
    }
    if (bytes > 0 && reinterpret_cast<uintptr_t>(begin) % (tensor.dtype.bits / 8U) != 0) {
      return "a tensor is not aligned";
    }
    contents.names.emplace_back(name);
    contents.tensors.push_back(tensor);
  }
  for (int64_t i = 0; i < info.attribute_count; ++i) {
    otr_message_attribute attribute{};
    if (otr_message_attribute_name(message, i, &attribute.name) != OTR_OK) return "no name";
    if (otr_message_get_attribute(message, attribute.name, &attribute.text) != OTR_OK) {
      return "an attribute is not there";
    }
    contents.attributes.push_back(attribute);
  }
  return "";
}

std::string packed(const Contents& contents) {
  std::vector<const char*> names;
  names.reserve(contents.names.size());
  for (const std::string& name : contents.names) names.push_back(name.c_str());
  otr_message_options options;
  if (otr_message_options_init(&options, sizeof options) != OTR_OK) return "";
  options.micro_batch = contents.micro_batch;
  options.tag = &contents.tag;
  options.attributes = contents.attributes.empty() ? nullptr : contents.attributes.data();
  options.attribute_count = std::ssize(contents.attributes);
  size_t size = 0;
  const auto pack = [&](void* buffer) {
    return otr_message_pack(names.data(), contents.tensors.data(), std::ssize(names), &options,
                            buffer, &size);
  };
  if (pack(nullptr) != OTR_OK) return "";
  const Memory memory(size);
  if (pack(memory.data()) != OTR_OK) return "";
  return {memory.data(), memory.size()};
}

bool is_same(const Contents& a, const Contents& b) {
  if (a.micro_batch != b.micro_batch || a.tag.loss_scale != b.tag.loss_scale ||
      a.tag.accumulation != b.tag.accumulation || a.tag.ranks != b.tag.ranks ||
      a.tensors.size() != b.tensors.size() || a.attributes.size() != b.attributes.size()) {
    return false;
  }
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const otr_tensor &x = a.tensors[i], &y = b.tensors[i];
    if (a.names[i] != b.names[i] || x.ndim != y.ndim || bytes_of(x) != bytes_of(y) ||
        std::memcmp(x.data, y.data, bytes_of(x)) != 0) {
      return false;
    }
  }
  for (size_t i = 0; i < a.attributes.size(); ++i) {
    if (std::strcmp(a.attributes[i].name, b.attributes[i].name) != 0 ||
        std::strcmp(a.attributes[i].text, b.attributes[i].text) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

Verdict check_message(std::string_view bytes) {
  Verdict verdict;
  const Memory memory(bytes.size());
  std::memcpy(memory.data(), bytes.data(), bytes.size());
  Message message, checked;
  const int32_t status = unpack(memory, OTR_MESSAGE_UNCHECKED, message);
  const int32_t with_checksum = unpack(memory, 0, checked);
  if (status != OTR_OK) {
    const bool told = status == OTR_E_CORRUPT || status == OTR_E_UNSUPPORTED ||
                      status == OTR_E_DTYPE || (bytes.empty() && status == OTR_E_ARGUMENT);
    if (!told) verdict.broken = "a status of " + std::to_string(status);
    if (with_checksum == OTR_OK) verdict.broken = "a checksum lets in what has no header";
    return verdict;
  }
  verdict.accepted = true;
  Contents contents, again;
  verdict.broken = read(message.get(), memory, contents);
  if (!verdict.broken.empty()) return verdict;
  if (otr_message_seal(memory.data(), memory.size()) != OTR_OK ||
      unpack(memory, 0, checked) != OTR_OK) {
    verdict.broken = "a sealed message is not right";
    return verdict;
  }
  const std::string made = packed(contents);
  const Memory copy(made.size());
  std::memcpy(copy.data(), made.data(), made.size());
  if (made.empty() || unpack(copy, 0, checked) != OTR_OK) {
    verdict.broken = "what it has cannot be packed";
    return verdict;
  }
  verdict.broken = read(checked.get(), copy, again);
  if (verdict.broken.empty() && !is_same(contents, again)) {
    verdict.broken = "packed again it is another message";
  }
  return verdict;
}

const std::vector<std::string>& seeds() {
  static const std::vector<std::string> all = [] {
    static const char* const dtypes[] = {"bool",     "int8",    "int16",  "int32",  "int64",
                                         "uint8",    "uint16",  "uint32", "uint64", "float16",
                                         "bfloat16", "float32", "float64"};
    static uint64_t values[6];
    std::iota(std::begin(values), std::end(values), uint64_t{0x0102030405060708});
    static int64_t shape[2] = {2, 3}, none[2] = {0, 5};
    std::vector<std::string> made;
    Contents contents;
    made.push_back(packed(contents));
    for (const char* dtype : dtypes) {
      otr_tensor tensor;
      if (otr_tensor_init(values, dtype, 2, shape, &tensor) != OTR_OK) continue;
      contents.names.emplace_back(dtype);
      contents.tensors.push_back(tensor);
    }
    made.push_back(packed(contents));
    otr_tensor empty, scalar;
    if (otr_tensor_init(nullptr, "float32", 2, none, &empty) == OTR_OK &&
        otr_tensor_init(values, "float64", 0, nullptr, &scalar) == OTR_OK) {
      contents.names = {"empty", "scalar"};
      contents.tensors = {empty, scalar};
    }
    contents.micro_batch = 12;
    contents.tag.loss_scale = 4096;
    contents.tag.ranks = 3;
    contents.attributes = {{"split", "train"}, {"", "\\ \""}};
    made.push_back(packed(contents));
    return made;
  }();
  return all;
}

}  // namespace otr_fuzz_message
