// SPDX-License-Identifier: Apache-2.0
#include "shapes.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "fault.h"
#include "files.h"
#include "text.h"

namespace outrigger::tools {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void fail(const std::string& file, const std::string& what) {
  throw Fault(OTR_E_ARGUMENT, format_text("{}: {}", file, what));
}

std::string shortened(const Json& value) {
  constexpr size_t kMost = 100;
  // Writing a nested value takes as much stack as it is deep.
  const auto flat = [](const Json& part) { return part.is_primitive(); };
  if (!value.is_primitive() && !std::all_of(value.begin(), value.end(), flat)) {
    return format_text("a nested {}", value.type_name());
  }
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() <= kMost ? text : text.substr(0, kMost) + "…";
}

Json parse(const std::string& file, const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) {
    fail(file, "this is no JSON object; a list of shapes is {\"w\": [1024, 1024], \"b\": [1024]}");
  }
  return json;
}

// Beyond it a model has more elements than the library takes.
constexpr int64_t kMostExtent = int64_t{1} << 56, kMostDimensions = 64;

bool is_number_to(const Json& value, int64_t most) {
  return value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(most);
}

std::vector<int64_t> extents_of(const std::string& file, const std::string& name,
                                const Json& list) {
  const auto legal = [](const Json& extent) { return is_number_to(extent, kMostExtent); };
  if (!list.is_array() || list.size() > kMostDimensions ||
      !std::all_of(list.begin(), list.end(), legal)) {
    fail(file, format_text("the shape of \"{}\" is {}; it is a list of up to {} numbers from 0 to "
                           "2^56",
                           name, shortened(list), kMostDimensions));
  }
  return list.get<std::vector<int64_t>>();
}

// Where the entry's data end, counted from the end of the header.
uint64_t end_of(const std::string& file, const std::string& name, const Json& entry) {
  static const Json kNone;
  const auto found = entry.find("data_offsets");
  const Json& offsets = found == entry.end() ? kNone : *found;
  const auto legal = [](const Json& offset) {
    return is_number_to(offset, std::numeric_limits<int64_t>::max() / 2);
  };
  if (!offsets.is_array() || offsets.size() != 2 || !legal(offsets[0]) || !legal(offsets[1]) ||
      offsets[0].get<uint64_t>() > offsets[1].get<uint64_t>()) {
    fail(file, format_text("the data_offsets of \"{}\" are {}; they are two numbers, the first not "
                           "above the second",
                           name, shortened(offsets)));
  }
  return offsets[1].get<uint64_t>();
}

// 8 bytes of length, then that much JSON: {"name": {"dtype": …, "shape": […], "data_offsets":
// [begin, end]}, "__metadata__": …}, then the data.
std::vector<NamedShape> from_safetensors(const std::string& file, std::ifstream& in) {
  constexpr uint64_t kMost = 100 << 20;  // the format's own limit
  std::error_code unknown;
  const uint64_t actual = std::filesystem::file_size(file, unknown);
  if (unknown) fail(file, format_text("its size is not known: {}", unknown.message()));
  uint64_t length = 0;
  in.read(reinterpret_cast<char*>(&length), sizeof length);
  if (!in || length > kMost) {
    fail(file, "this is no safetensors file: its header has no length up to 100 MiB");
  }
  if (actual < sizeof length + length) {
    fail(file,
         format_text("the file ends within its header: that ends after {} bytes, the file has "
                     "{}; fetch it anew",
                     sizeof length + length, actual));
  }
  std::string text(length, '\0');
  in.read(text.data(), static_cast<std::streamsize>(length));
  if (!in) fail(file, "its header cannot be read");
  std::vector<NamedShape> shapes;
  uint64_t end = 0;
  const Json header = parse(file, text);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    if (!entry.is_object() || !entry.contains("shape")) {
      fail(file, format_text("the entry \"{}\" has no shape", name));
    }
    shapes.push_back({name, extents_of(file, name, entry.at("shape"))});
    end = std::max(end, end_of(file, name, entry));
  }
  const uint64_t expected = sizeof length + length + end;
  if (actual != expected) {
    fail(file, format_text("its header promises a file of {} bytes, and it has {}: it was cut or "
                           "damaged; fetch it anew",
                           expected, actual));
  }
  return shapes;
}

// The numbers of a config.json.
class Config {
 public:
  Config(const std::string& file, const Json& json) : file_(file), json_(json) {}
  [[nodiscard]] int64_t number(const char* key, int64_t most = kMostNumber) const {
    if (!json_.contains(key)) fail(file_, format_text("\"{}\" is missing", key));
    const Json& value = json_[key];
    if (!is_number_to(value, most) || value.get<int64_t>() == 0) {
      fail(file_, format_text("\"{}\" is {}; legal is a number from 1 to {}", key, shortened(value),
                              most));
    }
    return value.get<int64_t>();
  }
  [[nodiscard]] int64_t layers(const char* key) const { return number(key, 1 << 14); }
  [[nodiscard]] int64_t number_or(const char* key, int64_t otherwise) const {
    return json_.contains(key) && !json_[key].is_null() ? number(key) : otherwise;
  }
  [[nodiscard]] bool flag_or(const char* key, bool otherwise) const {
    return json_.contains(key) && json_[key].is_boolean() ? json_[key].get<bool>() : otherwise;
  }

 private:
  static constexpr int64_t kMostNumber = int64_t{1} << 31;  // a product of two is no overflow
  const std::string& file_;
  const Json& json_;
};

std::vector<NamedShape> gpt2(const Config& c) {
  const int64_t h = c.number("n_embd"), inner = c.number_or("n_inner", 4 * h);
  const int64_t layers = c.layers("n_layer");
  std::vector<NamedShape> shapes{{"wte.weight", {c.number("vocab_size"), h}},
                                 {"wpe.weight", {c.number("n_positions"), h}}};
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::string at = format_text("h.{}.", layer);
    const std::vector<NamedShape> block{{"ln_1.weight", {h}},
                                        {"ln_1.bias", {h}},
                                        {"attn.c_attn.weight", {h, 3 * h}},
                                        {"attn.c_attn.bias", {3 * h}},
                                        {"attn.c_proj.weight", {h, h}},
                                        {"attn.c_proj.bias", {h}},
                                        {"ln_2.weight", {h}},
                                        {"ln_2.bias", {h}},
                                        {"mlp.c_fc.weight", {h, inner}},
                                        {"mlp.c_fc.bias", {inner}},
                                        {"mlp.c_proj.weight", {inner, h}},
                                        {"mlp.c_proj.bias", {h}}};
    for (const NamedShape& p : block) shapes.push_back({at + p.name, p.shape});
  }
  shapes.push_back({"ln_f.weight", {h}});
  shapes.push_back({"ln_f.bias", {h}});
  return shapes;  // the head is tied to wte
}

std::vector<NamedShape> llama(const Config& c, bool attention_bias) {
  const int64_t h = c.number("hidden_size"), inner = c.number("intermediate_size");
  const int64_t heads = c.number("num_attention_heads"), vocab = c.number("vocab_size");
  const int64_t keys = c.number_or("num_key_value_heads", heads);
  const int64_t width = c.number_or("head_dim", h / heads), layers = c.layers("num_hidden_layers");
  std::vector<NamedShape> shapes{{"embed_tokens.weight", {vocab, h}}};
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::string at = format_text("layers.{}.", layer);
    std::vector<NamedShape> block{{"self_attn.q_proj.weight", {heads * width, h}},
                                  {"self_attn.k_proj.weight", {keys * width, h}},
                                  {"self_attn.v_proj.weight", {keys * width, h}},
                                  {"self_attn.o_proj.weight", {h, heads * width}},
                                  {"mlp.gate_proj.weight", {inner, h}},
                                  {"mlp.up_proj.weight", {inner, h}},
                                  {"mlp.down_proj.weight", {h, inner}},
                                  {"input_layernorm.weight", {h}},
                                  {"post_attention_layernorm.weight", {h}}};
    if (attention_bias) {
      block.push_back({"self_attn.q_proj.bias", {heads * width}});
      block.push_back({"self_attn.k_proj.bias", {keys * width}});
      block.push_back({"self_attn.v_proj.bias", {keys * width}});
    }
    for (const NamedShape& p : block) shapes.push_back({at + p.name, p.shape});
  }
  shapes.push_back({"norm.weight", {h}});
  if (!c.flag_or("tie_word_embeddings", false)) shapes.push_back({"lm_head.weight", {vocab, h}});
  return shapes;
}

}  // namespace

std::vector<NamedShape> read_shapes(const std::string& file) {
  std::ifstream in = open_file(file);
  if (file.ends_with(".safetensors")) return from_safetensors(file, in);
  const Json json = parse(file, read_all(in));
  if (json.contains("model_type") && json["model_type"].is_string()) {
    const auto type = json["model_type"].get<std::string>();
    const Config config(file, json);
    if (type == "gpt2") return gpt2(config);
    if (type == "llama" || type == "mistral") {
      return llama(config, config.flag_or("attention_bias", false));
    }
    if (type == "qwen2") return llama(config, true);
    fail(file,
         format_text("model_type \"{}\" is not known here (gpt2, llama, mistral, qwen2 are); "
                     "give a safetensors file, or shapes: {{\"w\": [1024, 1024], \"b\": [1024]}}",
                     type));
  }
  std::vector<NamedShape> shapes;
  for (const auto& [name, shape] : json.items()) {
    if (!shape.is_array()) {
      fail(file, format_text("\"{}\" is {}; a list of shapes is "
                             "{{\"w\": [1024, 1024], \"b\": [1024]}}",
                             name, shortened(shape)));
    }
    shapes.push_back({name, extents_of(file, name, shape)});
  }
  return shapes;
}

}  // namespace outrigger::tools
