// SPDX-License-Identifier: Apache-2.0
#include "core/config/effective.h"

namespace outrigger::config {
namespace {

std::string_view name_of(Origin origin) {
  switch (origin) {
    case Origin::user:
      return "user";
    case Origin::derived:
      return "derived";
    case Origin::fallback:
      break;
  }
  return "default";
}

std::string note_of(const Value& value) {
  if (value.origin != Origin::user) return {};
  if (value.key->status == Status::host) return "left to the host framework";
  if (value.key->status == Status::hint) return "accepted, without effect here";
  return {};
}

}  // namespace

std::string effective_json(const Values& values) {
  Json root = Json::object();
  for (const Key& key : keys()) {
    if (key.type == Type::section || !key.alias_of.empty()) continue;
    const Value& value = values.at(key.path);
    Json* place = &root;
    std::string_view path = key.path;
    for (size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
      place = &(*place)[std::string(path.substr(0, dot))];
      path.remove_prefix(dot + 1);
    }
    Json entry = {{"value", value.json}, {"origin", name_of(value.origin)}};
    if (const std::string note = note_of(value); !note.empty()) entry["note"] = note;
    (*place)[std::string(path)] = std::move(entry);
  }
  return root.dump(2);
}

}  // namespace outrigger::config
