// SPDX-License-Identifier: Apache-2.0
#include "core/config/values.h"

#include "core/base/error.h"

namespace outrigger::config {

Values::Values() {
  for (const Key& key : keys()) {
    if (key.type == Type::section || !key.alias_of.empty()) continue;
    Value& value = values_[key.path];
    value.key = &key;
    value.json = Json::parse(key.fallback);
    if (key.type == Type::number && value.json.is_number()) value.json = value.json.get<double>();
  }
}

Value& Values::at(std::string_view path) {
  const auto found = values_.find(path);
  if (found == values_.end()) fail(OTR_E_INTERNAL, "the key table has no \"{}\"", path);
  return found->second;
}

const Value& Values::at(std::string_view path) const {
  const auto found = values_.find(path);
  if (found == values_.end()) fail(OTR_E_INTERNAL, "the key table has no \"{}\"", path);
  return found->second;
}

bool Values::given(std::string_view path) const {
  const Value& value = at(path);
  return value.origin == Origin::user && value.json != Json::parse(value.key->fallback);
}

std::string Values::lead(std::string_view path) const {
  const Value& value = at(path);
  if (value.origin != Origin::user) return name(path);
  return format_text("{}: {} = {}", line_of(value.at), value.path, value.shown);
}

std::string Values::name(std::string_view path) const {
  const Value& value = at(path);
  if (value.origin == Origin::user) {
    return format_text("{} = {} ({})", value.path, value.shown, line_of(value.at));
  }
  return format_text("{} = {} ({})", path, value.json.dump(),
                     value.origin == Origin::derived ? "derived" : "default");
}

void Values::set(std::string_view path, Json json, Origin origin) {
  Value& value = at(path);
  value.json = std::move(json);
  value.origin = origin;
}

void refuse_not_built(const Values& values) {
  if (values.not_built.empty()) return;
  std::string text = values.not_built.front();
  for (size_t i = 1; i < values.not_built.size(); ++i) text += "; also " + values.not_built[i];
  throw Error(OTR_E_UNSUPPORTED, text);
}

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
