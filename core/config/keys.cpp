// SPDX-License-Identifier: Apache-2.0
#include "core/config/keys.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "core/base/text.h"
#include "core/config/keys_host.h"
#include "core/config/keys_outrigger.h"
#include "core/config/keys_training.h"
#include "core/config/keys_zero.h"

namespace outrigger::config {
namespace {

constexpr size_t kCount = std::size(rows::kTraining) + std::size(rows::kSchedule) +
                          std::size(rows::kPrecision) + std::size(rows::kZero) +
                          std::size(rows::kOutrigger) + std::size(rows::kHost);

constexpr std::array<Key, kCount> join() {
  std::array<Key, kCount> all;
  size_t next = 0;
  const auto append = [&](const auto& part) {
    for (const Key& key : part) all[next++] = key;
  };
  append(rows::kTraining);
  append(rows::kSchedule);
  append(rows::kPrecision);
  append(rows::kZero);
  append(rows::kOutrigger);
  append(rows::kHost);
  return all;
}

constexpr std::array<Key, kCount> kKeys = join();

constexpr std::string_view kModelSections[] = {
    "zero_optimization", "bf16",        "bfloat16",     "fp16",  "comms_logger",
    "flops_profiler",    "csv_monitor", "tensorboard",  "wandb", "comet",
    "compile",           "nebula",      "hybrid_engine"};

bool same_but_for_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

std::string range(const Key& key, std::string_view what) {
  const bool low = key.low > -rows::kFloat, high = key.high < rows::kAnyCount;
  if (low && high && key.high_open) {
    return format_text("{} from {} to below {}", what, key.low, key.high);
  }
  if (key.type == Type::number && key.high >= rows::kFloat) {
    return format_text("{} of at least {}, at most {}", what, key.low, rows::kFloat);
  }
  if (low && high) return format_text("{} from {} to {}", what, key.low, key.high);
  if (low) return format_text("{} of at least {}", what, key.low);
  return std::string(what);
}

}  // namespace

std::span<const Key> keys() { return kKeys; }

const Key* find_key(std::string_view path) {
  constexpr std::string_view kOldName = "bfloat16.";
  std::string renamed;
  if (path.starts_with(kOldName)) {
    renamed = format_text("bf16.{}", path.substr(kOldName.size()));
    path = renamed;
  }
  const auto found = std::ranges::find(kKeys, path, &Key::path);
  return found == kKeys.end() ? nullptr : &*found;
}

std::vector<std::string> names_in(std::string_view section) {
  if (section == "bfloat16") section = "bf16";
  std::vector<std::string> names;
  for (const Key& key : kKeys) {
    std::string_view name = key.path;
    if (!section.empty()) {
      if (!name.starts_with(section) || name.size() <= section.size() ||
          name[section.size()] != '.') {
        continue;
      }
      name.remove_prefix(section.size() + 1);
    }
    if (name.find('.') == std::string_view::npos) names.emplace_back(name);
  }
  return names;
}

bool auto_means_default(std::string_view path) {
  const std::string_view top = path.substr(0, path.find('.'));
  return top.size() < path.size() &&
         std::ranges::find(kModelSections, top) != std::end(kModelSections);
}

std::vector<std::string> split_choices(std::string_view list) {
  std::vector<std::string> words;
  while (!list.empty()) {
    const size_t end = list.find('|');
    words.emplace_back(list.substr(0, end));
    list = end == std::string_view::npos ? std::string_view() : list.substr(end + 1);
  }
  return words;
}

std::string_view match_choice(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const size_t end = list.find('|');
    const std::string_view entry = list.substr(0, end);
    if (same_but_for_case(entry, word)) return entry;
    list = end == std::string_view::npos ? std::string_view() : list.substr(end + 1);
  }
  return {};
}

std::string_view canonical_dtype(std::string_view word) {
  constexpr std::string_view kTorch = "torch.";
  if (word.starts_with(kTorch)) word.remove_prefix(kTorch.size());
  if (!match_choice("fp32|float32|float", word).empty()) return "fp32";
  if (!match_choice("bf16|bfloat16", word).empty()) return "bf16";
  if (!match_choice("fp16|float16|half", word).empty()) return "fp16";
  return {};
}

std::string legal_values(const Key& key) {
  std::string text;
  switch (key.type) {
    case Type::boolean:
      text = "true or false";
      break;
    case Type::integer:
      text = range(key, "an integer");
      break;
    case Type::number:
      text = range(key, "a number");
      break;
    case Type::number_pair:
      text = range(key, "two numbers, each");
      break;
    case Type::text:
      text = "a string";
      break;
    case Type::texts:
      text = "a list of strings";
      break;
    case Type::dtype:
      text = "one of \"fp32\", \"bf16\", \"fp16\"";
      break;
    case Type::any:
      text = "any value";
      break;
    case Type::section:
      text = "an object";
      break;
    case Type::choice: {
      const auto quoted = [](std::string_view list) {
        std::string words;
        for (const std::string& word : split_choices(list)) {
          words += format_text("{}\"{}\"", words.empty() ? "" : ", ", word);
        }
        return words;
      };
      text = "one of " + quoted(key.choices.empty() ? key.later : key.choices);
      if (!key.choices.empty() && !key.later.empty()) {
        text += format_text(" (not built yet: {})", quoted(key.later));
      }
    }
  }
  if (key.fallback == "null" && key.type != Type::section && key.type != Type::any) {
    text += ", or null";
  }
  return text;
}

}  // namespace outrigger::config
