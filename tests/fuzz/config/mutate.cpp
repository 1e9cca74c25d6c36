// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/config/mutate.h"

#include <set>

#include "core/base/text.h"
#include "core/config/document.h"
#include "core/config/keys.h"

namespace otr_fuzz {
namespace {

using namespace outrigger::config;  // NOLINT(google-build-using-namespace)

constexpr std::string_view kPieces[] = {"{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        ":",
                                        "\"",
                                        "\\",
                                        "null",
                                        "true",
                                        "false",
                                        "-1",
                                        "1e999",
                                        "0.5",
                                        "1e-400",
                                        "18446744073709551615",
                                        "-0.0",
                                        "18446744073709551616",
                                        "5e8",
                                        "9007199254740993",
                                        "\"auto\"",
                                        "\"enabled\": true",
                                        "\n",
                                        "//",
                                        "\xC3",
                                        "\xFF",
                                        "\xEF\xBB\xBF",
                                        "\xE2\x82\xAC",
                                        "\\u0000",
                                        "\\ud83d",
                                        "NaN",
                                        "\t"};

// Values that are legal for the key, or nearly.
Json value_for(const Key& key, Random& random) {
  switch (below(random, 8)) {
    case 0:
      return Json::parse(key.fallback.empty() ? "null" : key.fallback);
    case 1:
      return nullptr;
    case 2:
      return "auto";
    default:
      break;
  }
  const std::vector<std::string> choices =
      split_choices(below(random, 4) == 0 ? key.later : key.choices);
  if (!choices.empty()) return choices[below(random, choices.size())];
  const double low = std::max(key.low, -1e300), high = std::min(key.high, 1e300);
  const double numbers[] = {low, high, low - 1, high + 1, 0, 1, 2, 0.5, 16, 1e-8, low + 1};
  const double number = numbers[below(random, std::size(numbers))];
  switch (key.type) {
    case Type::boolean:
      return below(random, 2) == 0;
    case Type::integer:
      if (number >= -1e15 && number <= 1e15) return static_cast<int64_t>(number);
      return number;
    case Type::number_pair:
      return Json::array({number, 0.5});
    case Type::dtype: {
      constexpr const char* kNames[] = {"fp32", "bf16", "fp16", "torch.bfloat16", "float"};
      return kNames[below(random, std::size(kNames))];
    }
    case Type::text:
      return "word";
    case Type::texts:
      return Json::array({"word"});
    case Type::section:
      return Json::object();
    default:
      return number;
  }
}

// The object in which the key at `path` stands, made where it is not; null if something is in the
// way.
Json* home_of(Json& root, std::string_view& path) {
  Json* place = &root;
  for (size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
    place = &(*place)[std::string(path.substr(0, dot))];
    if (!place->is_object() && !place->is_null()) return nullptr;
    path.remove_prefix(dot + 1);
  }
  return place;
}

bool change_tree(Json& root, Random& random) {
  if (!root.is_object()) return false;
  const Key& key = keys()[below(random, keys().size())];
  std::string_view path = key.path;
  // An optimizer's text has two of the sections at its top.
  if (root.contains("type") || root.contains("params") || root.contains("states")) {
    for (const std::string_view lead : {"optimizer.", "outrigger."}) {
      if (path.starts_with(lead)) path.remove_prefix(lead.size());
    }
  }
  Json* home = home_of(root, path);
  if (home == nullptr) return false;
  (*home)[std::string(path)] = value_for(key, random);
  return true;
}

void change_bytes(std::string& text, Random& random) {
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
      text.insert(at, text.substr(below(random, text.size() + 1), below(random, 24)));
      break;
    default:
      text.insert(at, words()[below(random, words().size())]);
  }
}

}  // namespace

size_t below(Random& random, size_t end) {
  return std::uniform_int_distribution<size_t>(0, end - 1)(random);
}

const std::vector<std::string>& words() {
  static const std::vector<std::string> kWords = [] {
    std::set<std::string> found(std::begin(kPieces), std::end(kPieces));
    for (const Key& key : keys()) {
      const size_t dot = key.path.rfind('.');
      const std::string_view leaf =
          dot == std::string_view::npos ? key.path : key.path.substr(dot + 1);
      found.insert(outrigger::format_text("\"{}\": ", leaf));
      found.insert(std::string(key.fallback));
      for (const std::string_view list : {key.choices, key.later}) {
        for (const std::string& word : split_choices(list)) found.insert('"' + word + '"');
      }
    }
    found.erase("");
    return std::vector<std::string>(found.begin(), found.end());
  }();
  return kWords;
}

std::string mutate(std::string_view text, Random& random) {
  std::string changed(text);
  if (below(random, 4) != 0) {
    Json root = Json::parse(text, nullptr, false);
    if (!root.is_discarded() && change_tree(root, random))
      return root.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  change_bytes(changed, random);
  return changed;
}

}  // namespace otr_fuzz
