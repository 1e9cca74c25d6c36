// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/config/properties.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "core/base/error.h"
#include "core/config/config.h"
#include "core/config/document.h"

namespace otr_fuzz {
namespace {

using namespace outrigger;          // NOLINT(google-build-using-namespace)
using namespace outrigger::config;  // NOLINT(google-build-using-namespace)

constexpr size_t kLongestMessage = 4000;

struct Answer {
  int32_t status = OTR_OK;
  std::string text;    // of the error
  std::string result;  // everything that was read
  bool operator==(const Answer&) const = default;
};

Answer ask(const std::function<std::string()>& read) {
  try {
    return {OTR_OK, "", read()};
  } catch (const Error& error) {
    return {error.status(), error.what(), ""};
  }
}

// One line of valid UTF-8, not empty, not long, of a class that a text can be the cause of.
std::string fault_of(const Answer& answer) {
  if (answer.status == OTR_OK) return {};
  if (answer.status != OTR_E_CONFIG && answer.status != OTR_E_UNSUPPORTED) {
    return outrigger::format_text("status {}: {}", answer.status, answer.text);
  }
  if (answer.text.empty()) return "an error without a text";
  if (answer.text.size() > kLongestMessage) return "a message that is too long: " + answer.text;
  if (printable(answer.text, 2 * kLongestMessage) != answer.text) {
    return "a message that is not one printable line: " + answer.text;
  }
  return {};
}

// Older forms of keys: they are refused beside the newer ones that they stand for.
constexpr std::string_view kOldForms[] = {"cpu_offload", "cpu_offload_param"};

// {"value": v, "origin": …} becomes v, or nothing if it is a default that is not wanted.
Json plain(const Json& effective, bool with_defaults) {
  Json values = Json::object();
  for (const auto& [name, inner] : effective.items()) {
    if (std::ranges::find(kOldForms, name) != std::end(kOldForms)) continue;
    if (!inner.contains("origin")) {
      Json section = plain(inner, with_defaults);
      if (!section.empty()) values[name] = std::move(section);
    } else if (with_defaults || inner.at("origin") != "default" || name == "gradient_clipping") {
      values[name] = inner.at("value");
    }
  }
  return values;
}

// Given as a configuration, the values that are no defaults give the same values again. (Clipping's
// default depends on whether there is a configuration at all.)
std::string fixed_point(const std::string& effective, int32_t world) {
  const Json first = Json::parse(effective);
  const std::string text = plain(first, false).dump();
  const Answer again = ask([&] { return parse_engine(text, world).effective_json; });
  if (again.status != OTR_OK) return outrigger::format_text("{} is refused: {}", text, again.text);
  const Json second = Json::parse(again.result);
  if (plain(first, true) == plain(second, true)) return {};
  return outrigger::format_text("{} became {}", effective, again.result);
}

}  // namespace

Verdict check_configuration(std::string_view text) try {
  const auto world = static_cast<int32_t>(1 + text.size() % 4);
  std::string effective;
  const auto read_engine = [&] {
    const EngineConfig config = parse_engine(text, world);
    effective = config.effective_json;
    return outrigger::format_text("{} {}", effective, fmt::join(config.warnings, "\n"));
  };
  const auto read_optimizer = [&] {
    const OptimizerConfig o = parse_optimizer(text);
    return outrigger::format_text("{} {} {} {} {} {}", o.type, o.lr, o.beta1, o.beta2, o.seed,
                                  fmt::join(o.warnings, "\n"));
  };
  Verdict verdict;
  for (const std::function<std::string()>& read :
       {std::function<std::string()>(read_engine), std::function<std::string()>(read_optimizer)}) {
    const Answer answer = ask(read);
    verdict.broken = fault_of(answer);
    if (verdict.broken.empty() && answer != ask(read)) verdict.broken = "a second reading differs";
    if (!verdict.broken.empty()) return verdict;
  }
  verdict.accepted = !effective.empty();
  if (verdict.accepted) verdict.broken = fixed_point(effective, world);
  return verdict;
} catch (const std::exception& error) {
  return {false, outrigger::format_text("an exception that is no Error: {}", error.what())};
}

}  // namespace otr_fuzz
