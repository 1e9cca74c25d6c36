// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "core/checkpoint/table.h"
#include "tests/fuzz/huggingface/properties.h"

namespace otr_fuzz_huggingface {
namespace {

using namespace outrigger::checkpoint;  // NOLINT(google-build-using-namespace)

const std::string_view kPieces[] = {"{",
                                    "}",
                                    "[",
                                    "]",
                                    ",",
                                    ":",
                                    "\"",
                                    " ",
                                    "\n",
                                    "null",
                                    "1",
                                    "1e999",
                                    "\xEF\xBB\xBF",
                                    "\xFF",
                                    "\"a.safetensors\"",
                                    "\"b.safetensors\"",
                                    "\"../b.safetensors\"",
                                    "\"/etc/passwd\"",
                                    "\"c.safetensors\"",
                                    "\"model.safetensors.index.json\"",
                                    "\".\"",
                                    "\"..\"",
                                    "\"\"",
                                    "\"w\":\"a.safetensors\",",
                                    "\"w\":\"b.safetensors\",",
                                    "\"v\":\"a.safetensors\",",
                                    "\"weight_map\":{},",
                                    "\"metadata\":{\"total_size\":1},",
                                    "\\u0000",
                                    "\\ud800",
                                    "\\u0061"};

std::string file_of(const std::vector<std::pair<std::string, Dtype>>& tensors,
                    const Metadata& metadata) {
  std::vector<Entry> entries;
  int64_t end = 0;
  for (const auto& [name, dtype] : tensors) {
    const std::vector<int64_t> shape{3, 5};
    const int64_t bytes = bytes_of(shape, dtype);
    entries.push_back({name, dtype, shape, end, bytes});
    end += bytes;
  }
  std::vector<const Entry*> order;
  for (const Entry& entry : entries) order.push_back(&entry);
  const std::string header = header_text(order, metadata);
  const uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  file += header;
  for (int64_t i = 0; i < end; ++i) file += static_cast<char>(i * 7 % 61);
  return file;
}

void change(std::string& text, Random& random) {
  const size_t at = below(random, text.size() + 1);
  switch (below(random, 5)) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(random, 8)));
      break;
    case 1:
      text.insert(at, kPieces[below(random, std::size(kPieces))]);
      break;
    case 2:
      text.erase(at, below(random, 8) + 1);
      break;
    case 3:
      text.insert(at, text.substr(below(random, text.size() + 1), below(random, 40)));
      break;
    default:
      text.resize(at);
  }
}

// One tensor's name or file becomes another one's.
void swap_words(std::string& text, Random& random) {
  const std::string_view words[] = {"w", "v", "u", "a.safetensors", "b.safetensors"};
  const std::string from = '"' + std::string(words[below(random, std::size(words))]) + '"';
  const std::string to = '"' + std::string(words[below(random, std::size(words))]) + '"';
  const size_t at = text.find(from);
  if (at != std::string::npos) text.replace(at, from.size(), to);
}

}  // namespace

const std::vector<Model>& seeds() {
  static const std::vector<Model> kSeeds{
      {R"({"metadata":{"total_size":1},"weight_map":{"w":"a.safetensors","v":"b.safetensors"}})",
       file_of({{"w", Dtype::bf16}}, {{"format", "pt"}, {"tied", "w"}}),
       file_of({{"v", Dtype::f32}}, {})},
      {R"({"weight_map":{"w":"a.safetensors","v":"a.safetensors","u":"b.safetensors"}})",
       file_of({{"w", Dtype::bf16}, {"v", Dtype::bf16}}, {}), file_of({{"u", Dtype::bf16}}, {})},
      {R"({"weight_map":{"w":"a.safetensors","u":"b.safetensors"}})",
       file_of({{"w", Dtype::f64}}, {}), file_of({{"u", Dtype::f16}}, {})}};
  return kSeeds;
}

Model mutate(Model model, Random& random) {
  switch (below(random, 6)) {
    case 0:
    case 1:
      change(model[0], random);
      break;
    case 2:
      swap_words(model[0], random);
      break;
    case 3: {
      std::string& file = model.at(1 + below(random, 2));
      file = otr_fuzz_safetensors::mutate(file, random);
      break;
    }
    case 4:
      swap_words(model.at(1 + below(random, 2)), random);
      break;
    default:
      model.at(below(random, kFiles)) =
          seeds()[below(random, seeds().size())].at(below(random, kFiles));
  }
  return model;
}

}  // namespace otr_fuzz_huggingface
