// SPDX-License-Identifier: Apache-2.0
#include "tests/config/docs.h"

#include <fmt/format.h>

#include <stdexcept>

#include "core/base/text.h"
#include "core/config/keys.h"
#include "core/config/legality.h"

namespace outrigger::config {
namespace {

constexpr std::string_view kBegin = "<!-- generated key tables: begin -->\n";
constexpr std::string_view kEnd = "<!-- generated key tables: end -->\n";

struct Part {
  std::string_view first;  // the path that the part begins with
  std::string_view title;
};
constexpr Part kParts[] = {
    {"train_batch_size", "Batch, gradients, optimizer, schedule"},
    {"bf16", "Precision"},
    {"zero_optimization", "ZeRO and offload"},
    {"outrigger", "Own keys"},
    {"steps_per_print", "Left to the host framework, and other parts of DeepSpeed"}};

std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

std::string status_text(const Key& key) {
  if (!key.alias_of.empty()) return "accepted";
  switch (key.status) {
    case Status::supported:
      return key.choices.empty() && !key.later.empty() ? "not built yet" : "supported";
    case Status::judged:
      return "see [legality](legality.md)";
    case Status::hint:
      return "accepted, no effect";
    case Status::host:
      return "host's job";
    case Status::not_built:
      return "not built yet";
    case Status::refused:
      return "refused";
  }
  return {};
}

std::string values_text(const Key& key) {
  if (key.type == Type::section || !key.alias_of.empty()) return "";
  if (key.type == Type::choice && !key.later.empty() && !key.choices.empty()) {
    return outrigger::format_text("{}; not built yet: {}",
                                  fmt::join(split_choices(key.choices), ", "),
                                  fmt::join(split_choices(key.later), ", "));
  }
  return legal_values(key);
}

std::string row(const Key& key) {
  const bool section = key.type == Type::section;
  std::string meaning(key.meaning);
  if (!key.note.empty()) meaning.append("; ").append(key.note);
  return outrigger::format_text(
      "| {}`{}`{} | {} | {} | {} | {} |\n", section ? "**" : "", key.path, section ? "**" : "",
      cell(values_text(key)),
      section || !key.alias_of.empty() ? "" : outrigger::format_text("`{}`", key.fallback),
      section && key.alias_of.empty() ? "" : status_text(key), cell(meaning));
}

std::string verdict_text(const Combination& combination, EngineKind engine) {
  const Rule& rule = judge(combination, engine);
  switch (rule.verdict) {
    case Verdict::legal:
      return "yes";
    case Verdict::illegal:
      return outrigger::format_text("error: {}", rule.name);
    case Verdict::not_built:
      return outrigger::format_text("not built yet: {}", rule.name);
  }
  return {};
}

std::string matrix(EngineKind engine) {
  std::string text =
      "| compute | stage | low-precision master | low-precision states | offload none | offload "
      "cpu | "
      "offload nvme |\n|---|---|---|---|---|---|---|\n";
  for (const std::string_view mode : {"float32", "bf16", "fp16"}) {
    for (int32_t stage = 0; stage <= 3; ++stage) {
      for (int bits = 0; bits < (mode == "float32" ? 1 : 4); ++bits) {
        const bool master = (bits & 2) != 0, states = (bits & 1) != 0;
        Combination c;
        c.stage = stage;
        c.bf16 = mode == "bf16";
        c.fp16 = mode == "fp16";
        (c.fp16 ? c.fp16_master : c.bf16_master) = master;
        (c.fp16 ? c.fp16_states : c.bf16_states) = states;
        text += outrigger::format_text("| {} | {} | {} | {} |", mode, stage, master ? "yes" : "no",
                                       states ? "yes" : "no");
        for (const Device device : {Device::none, Device::cpu, Device::nvme}) {
          c.offload_optimizer = device;
          text += outrigger::format_text(" {} |", verdict_text(c, engine));
        }
        text += "\n";
      }
    }
  }
  return text;
}

constexpr std::string_view kLegalityIntro =
    "# What goes together\n\n"
    "Generated from the table in `core/config/legality.cpp`, which the parser asks too.\n\n"
    "The parser asks the rules in this order; the first one that holds decides. An illegal "
    "combination is "
    "`OTR_E_CONFIG`, a legal one that is not built yet is `OTR_E_UNSUPPORTED`; both name the "
    "rule's reason "
    "and the ways out. DeepSpeed's keys are `bf16_master_weights_and_grads` and "
    "`fp16_master_weights_and_grads` (the master), `bf16_optimizer_states` (both moments).\n\n"
    "On a CPU engine `offload_optimizer.device` may be `none` or `cpu`: master and states are in "
    "host memory "
    "either way. What a device engine needs offload for is therefore legal without it.\n\n"
    "`outrigger.states` chooses the format of each state by itself. A bfloat16 master chosen there "
    "obeys the "
    "same rules (it needs `bf16.enabled` and stage 1, 2 or 3). Moments chosen there are free: "
    "bfloat16 "
    "moments go with a float32 master at stages 0 to 3, float32 moments with a bfloat16 master at "
    "stages 1 "
    "to 3, and the two moments may differ.\n\n"
    "`torch_autocast` goes with every row; it is the host framework's job. With dtype float16 the "
    "loss is scaled, by the "
    "keys of the fp16 section.\n\n";

}  // namespace

std::string key_tables() {
  std::string text;
  const Part* next = std::begin(kParts);
  for (const Key& key : keys()) {
    if (next != std::end(kParts) && key.path == next->first) {
      text += outrigger::format_text(
          "\n### {}\n\n| key | legal values | default | status | meaning "
          "|\n|---|---|---|---|---|\n",
          next->title);
      ++next;
    }
    text += row(key);
  }
  return text + "\n";
}

std::string with_key_tables(std::string_view page) {
  const size_t begin = page.find(kBegin), end = page.find(kEnd);
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) {
    throw std::runtime_error("configuration.md lacks the marker lines of the key tables");
  }
  return outrigger::format_text("{}{}{}", page.substr(0, begin + kBegin.size()), key_tables(),
                                page.substr(end));
}

std::string legality_page() {
  std::string text(kLegalityIntro);
  text += "## Rules\n\n| rule | verdict | reason | ways out |\n|---|---|---|---|\n";
  for (const Rule& rule : rules()) {
    const std::string_view verdict = rule.verdict == Verdict::legal     ? "legal"
                                     : rule.verdict == Verdict::illegal ? "error"
                                                                        : "not built yet";
    text += outrigger::format_text("| {} | {} | {} | {} |\n", rule.name, verdict, cell(rule.reason),
                                   cell(rule.ways_out));
  }
  text += "\n## On a CPU engine\n\n" + matrix(EngineKind::cpu);
  text +=
      "\n## On a device engine\n\nParameters and gradients are on a device "
      "([devices](devices.md)).\n\n" +
      matrix(EngineKind::device);
  return text;
}

}  // namespace outrigger::config
