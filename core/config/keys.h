// SPDX-License-Identifier: Apache-2.0
// The table of all configuration keys. Parser, error texts, JSON Schema and documentation come from
// it.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace outrigger::config {

enum class Type : uint8_t {
  boolean,
  integer,
  number,
  number_pair,  // [number, number]
  text,
  texts,   // list of strings
  choice,  // one of `choices` or `later`, in any case
  dtype,   // fp32, bf16 or fp16, in any of PyTorch's spellings
  any,     // a value whose form does not matter here
  section  // an object whose keys are in the table
};

enum class Status : uint8_t {
  supported,  // does what it says
  judged,     // the legality table decides (legality.h)
  hint,       // accepted; results and legality do not depend on it here
  host,       // accepted; the host framework's job, the engine does not act on it
  not_built,  // recognised; any value but the default is OTR_E_UNSUPPORTED
  refused     // recognised; any value but the default is OTR_E_CONFIG
};

struct Key {
  std::string_view path = {};  // with dots
  Type type = Type::any;
  std::string_view fallback =
      {};  // the default, as JSON text; "null" also means that null is legal
  Status status = Status::supported;
  std::string_view meaning = {};  // one line
  std::string_view note = {};     // how it maps, or the way out of a refusal
  std::string_view choices = {};  // a|b|c
  std::string_view later = {};    // choices that are recognised but not built
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool high_open = false;          // `high` itself is not legal
  std::string_view alias_of = {};  // another spelling of that key
};

// In the order of the documentation.
[[nodiscard]] std::span<const Key> keys();

// The key of this path, or null. A key in the section "bfloat16" is found in "bf16".
[[nodiscard]] const Key* find_key(std::string_view path);

// Names of the keys directly in a section ("" is the top level).
[[nodiscard]] std::vector<std::string> names_in(std::string_view section);

// In sections that DeepSpeed reads through its models the value "auto" means the default.
[[nodiscard]] bool auto_means_default(std::string_view path);

// "an integer from 0 to 3", "one of none, cpu, nvme", …
[[nodiscard]] std::string legal_values(const Key& key);

// The entry of `choices` or `later` that equals `word` but for case; empty if none does.
[[nodiscard]] std::string_view match_choice(std::string_view list, std::string_view word);
[[nodiscard]] std::vector<std::string> split_choices(std::string_view list);

// "fp32", "bf16" or "fp16" for any of their spellings; empty for another word.
[[nodiscard]] std::string_view canonical_dtype(std::string_view word);

}  // namespace outrigger::config
