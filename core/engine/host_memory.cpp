// SPDX-License-Identifier: Apache-2.0
#include "core/engine/host_memory.h"

#include <nlohmann/json.hpp>

#include "core/memory/page_facts.h"
#include "core/topology/binding.h"

namespace outrigger::engine {
namespace {

using Json = nlohmann::ordered_json;

Json reason_of(const std::string& reason) { return reason.empty() ? Json() : Json(reason); }

const char* name_of(config::Pin pin) {
  return pin == config::Pin::off ? "off" : pin == config::Pin::prefer ? "prefer" : "require";
}

}  // namespace

std::string host_memory(const Declared& declared) {
  const memory::PageFacts facts = memory::page_facts(declared.ledger.pages());
  const memory::Ledger::Locked locked = declared.ledger.locked();
  const topology::Binding& binding = topology::process_binding();
  const bool known = facts.reason.empty();
  const auto figure = [&](int64_t bytes) { return known ? Json(bytes) : Json(); };
  const Json report = {
      {"bytes", facts.bytes},
      {"resident_bytes", figure(facts.resident)},
      {"huge_bytes", figure(facts.huge)},
      {"locked_bytes", figure(facts.locked)},
      {"reason", reason_of(facts.reason)},
      {"nodes", facts.nodes},
      {"binding",
       {{"binds", binding.binds}, {"nodes", binding.nodes}, {"reason", reason_of(binding.reason)}}},
      {"pin",
       {{"policy", name_of(declared.config.pin)},
        {"wanted_bytes", locked.wanted},
        {"pinned_bytes", locked.bytes},
        {"reason", reason_of(locked.reason)}}}};
  return report.dump();
}

}  // namespace outrigger::engine
