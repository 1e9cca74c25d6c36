// SPDX-License-Identifier: Apache-2.0
#include "shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fault.h"
#include "files.h"

namespace outrigger::tools {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void fail(const std::string& file, const std::string& what) {
  throw Fault(OTR_E_ARGUMENT, fmt::format("{}: {}", file, what));
}

Json parse(const std::string& file, const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) fail(file, "this is no JSON object");
  return json;
}

std::vector<int64_t> extents_of(const std::string& file, const std::string& name,
                                const Json& list) {
  std::vector<int64_t> shape;
  for (const Json& extent : list) {
    if (!list.is_array() || !extent.is_number_unsigned()) {
      fail(file, fmt::format("the shape of \"{}\" is {}; it is a list of numbers from 0", name,
                             list.dump()));
    }
    shape.push_back(extent.get<int64_t>());
  }
  return shape;
}

// 8 bytes of length, then that much JSON: {"name": {"dtype": …, "shape": […], …}, "__metadata__":
// …}
std::vector<NamedShape> from_safetensors(const std::string& file, std::ifstream& in) {
  constexpr uint64_t kMost = 100 << 20;  // the format's own limit
  uint64_t length = 0;
  in.read(reinterpret_cast<char*>(&length), sizeof length);
  if (!in || length > kMost) fail(file, "this is no safetensors file: its header has no length");
  std::string text(length, '\0');
  in.read(text.data(), static_cast<std::streamsize>(length));
  if (!in) fail(file, fmt::format("the file ends within its header of {} bytes", length));
  std::vector<NamedShape> shapes;
  const Json header = parse(file, text);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    if (!entry.is_object() || !entry.contains("shape")) {
      fail(file, fmt::format("the entry \"{}\" has no shape", name));
    }
    shapes.push_back({name, extents_of(file, name, entry.at("shape"))});
  }
  return shapes;
}

// The numbers of a config.json.
class Config {
 public:
  Config(const std::string& file, const Json& json) : file_(file), json_(json) {}
  [[nodiscard]] int64_t number(const char* key) const {
    if (!json_.contains(key) || !json_[key].is_number_unsigned()) {
      fail(file_, fmt::format("\"{}\" is missing or no number", key));
    }
    return json_[key].get<int64_t>();
  }
  [[nodiscard]] int64_t number_or(const char* key, int64_t otherwise) const {
    return json_.contains(key) && !json_[key].is_null() ? number(key) : otherwise;
  }
  [[nodiscard]] bool flag_or(const char* key, bool otherwise) const {
    return json_.contains(key) && json_[key].is_boolean() ? json_[key].get<bool>() : otherwise;
  }

 private:
  const std::string& file_;
  const Json& json_;
};

std::vector<NamedShape> gpt2(const Config& c) {
  const int64_t h = c.number("n_embd"), inner = c.number_or("n_inner", 4 * h);
  std::vector<NamedShape> shapes{{"wte.weight", {c.number("vocab_size"), h}},
                                 {"wpe.weight", {c.number("n_positions"), h}}};
  for (int64_t layer = 0; layer < c.number("n_layer"); ++layer) {
    const std::string at = fmt::format("h.{}.", layer);
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
  const int64_t width = c.number_or("head_dim", h / std::max<int64_t>(1, heads));
  std::vector<NamedShape> shapes{{"embed_tokens.weight", {vocab, h}}};
  for (int64_t layer = 0; layer < c.number("num_hidden_layers"); ++layer) {
    const std::string at = fmt::format("layers.{}.", layer);
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
  std::ifstream in(file, std::ios::binary);
  if (!in) fail(file, "cannot be opened");
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
    fail(file, fmt::format("model_type \"{}\" is not known here (gpt2, llama, mistral, qwen2 are); "
                           "give a safetensors file, or {{\"name\": [extents], …}}",
                           type));
  }
  std::vector<NamedShape> shapes;
  for (const auto& [name, shape] : json.items()) {
    if (!shape.is_array()) {
      fail(file, fmt::format("\"{}\" is {}; a file of shapes is {{\"name\": [extents], …}}", name,
                             shape.dump()));
    }
    shapes.push_back({name, extents_of(file, name, shape)});
  }
  return shapes;
}

}  // namespace outrigger::tools
