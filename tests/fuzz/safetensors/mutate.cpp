// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/safetensors/mutate.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/checkpoint/dtype.h"
#include "core/checkpoint/table.h"

namespace otr_fuzz_safetensors {
namespace {

using outrigger::checkpoint::kLengthBytes;

constexpr size_t kLength = kLengthBytes;

const std::string_view kPieces[] = {
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    " ",
    "\n",
    "null",
    "-1",
    "1.0",
    "0",
    "1",
    "2",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551616",
    "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},",
    "\"dtype\":\"F16\",",
    "\"shape\":[0],",
    "\"data_offsets\":[0,1],",
    "\"__metadata__\":{\"k\":\"v\"},",
    "\"x\":\"y\",",
    "\"F4\"",
    "\\u0061",
    "\\ud83d\\ude00",
    "\\ud800",
    "\xC3\xA9",
    "\xFF",
    "\xEF\xBB\xBF"};

std::string with_length(std::string_view header, std::string_view data) {
  const uint64_t length = header.size();
  std::string file(kLength, '\0');
  std::memcpy(file.data(), &length, kLength);
  file += header;
  file += data;
  return file;
}

void change(std::string& text, Random& random) {
  const size_t at = below(random, text.size() + 1);
  switch (below(random, 5)) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(below(random, 256));
      break;
    case 1:
      text.insert(at, kPieces[below(random, std::size(kPieces))]);
      break;
    case 2:
      text.erase(at, below(random, 8) + 1);
      break;
    case 3:
      text.insert(at, text.substr(below(random, text.size() + 1), below(random, 64)));
      break;
    default:
      // Another digit: sizes and offsets that nearly fit.
      if (at < text.size() && text[at] >= '0' && text[at] <= '9') {
        text[at] = static_cast<char>('0' + below(random, 10));
      }
  }
}

}  // namespace

size_t below(Random& random, size_t end) {
  return std::uniform_int_distribution<size_t>(0, end - 1)(random);
}

const std::vector<std::string>& seeds() {
  using namespace outrigger::checkpoint;  // NOLINT(google-build-using-namespace)
  static const std::vector<std::string> kSeeds = [] {
    std::vector<std::string> files{with_length("{}", ""), with_length("{}      ", "")};
    std::vector<Entry> entries;
    int64_t end = 0;
    for (int i = 0; i < kDtypes; ++i) {
      const auto dtype = static_cast<Dtype>(i);
      for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {2, 3}, {0}}) {
        const std::string name =
            "n\"\\\n" + std::string(name_of(dtype)) + std::to_string(shape.size());
        const int64_t bytes = bytes_of(shape, dtype);
        if (i % 5 == 0) {
          files.push_back(with_length(header_text({}, {{"key", name}}), ""));
          const Entry only{name, dtype, shape, 0, bytes};
          files.push_back(with_length(header_text({&only}, {{"key", name}}),
                                      std::string(static_cast<size_t>(bytes), 'x')));
        }
        entries.push_back({name + std::to_string(entries.size()), dtype, shape, end, bytes});
        end += bytes;
      }
    }
    std::vector<const Entry*> order;
    for (const Entry& entry : entries) order.push_back(&entry);
    files.push_back(
        with_length(header_text(order, {}), std::string(static_cast<size_t>(end), 'x')));
    return files;
  }();
  return kSeeds;
}

std::string mutate(std::string_view file, Random& random) {
  if (file.size() < kLength || below(random, 10) == 0) {
    std::string changed(file);
    change(changed, random);
    return changed;
  }
  uint64_t length = 0;
  std::memcpy(&length, file.data(), kLength);
  file.remove_prefix(kLength);
  length = std::min<uint64_t>(length, file.size());
  std::string header(file.substr(0, length)), data(file.substr(length));
  if (below(random, 8) == 0) {
    data.resize(below(random, data.size() + 4));
  } else {
    change(header, random);
  }
  return with_length(header, data);
}

}  // namespace otr_fuzz_safetensors
