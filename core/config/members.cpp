// SPDX-License-Identifier: Apache-2.0
#include "core/config/members.h"

#include <algorithm>

namespace outrigger::config {

void ValueAt::refuse(std::string_view legal) const {
  fail(subject_->status, "{}, {}: {} = {}; legal is {}", subject_->what, line_of(node_->at),
       path_.empty() ? "it" : path_, node_->shown, legal);
}

const ValueAt& ValueAt::expect(Kind kind, std::string_view legal) const {
  if (node_->kind != kind) refuse(legal);
  return *this;
}

double ValueAt::number() const {
  if (node_->kind != Kind::number && node_->kind != Kind::integer) refuse("a number");
  return node_->scalar.get<double>();
}

bool ValueAt::flag() const {
  return expect(Kind::boolean, "true or false").node_->scalar.get<bool>();
}

std::string ValueAt::text() const {
  return expect(Kind::text, "a string").node_->scalar.get<std::string>();
}

std::vector<ValueAt> ValueAt::list() const {
  std::vector<ValueAt> values;
  for (const Node& item : expect(Kind::list, "a list").node_->items) {
    values.emplace_back(*subject_, item, format_text("{}[{}]", path_, values.size()));
  }
  return values;
}

std::vector<std::pair<std::string, ValueAt>> ValueAt::entries() const {
  std::vector<std::pair<std::string, ValueAt>> values;
  for (const Member& member : expect(Kind::object, "an object").node_->members) {
    values.emplace_back(member.name,
                        ValueAt(*subject_, member.value, path_of(printable(member.name))));
  }
  return values;
}

ValueAt Members::take(std::string_view name) {
  const auto found = std::ranges::find(object_.node().members, name, &Member::name);
  if (found == object_.node().members.end()) {
    fail(object_.subject().status, "{}, {}: {} is missing", object_.subject().what,
         line_of(object_.node().at), object_.path_of(name));
  }
  known_.emplace_back(name);
  return {object_.subject(), found->value, object_.path_of(name)};
}

void Members::require_all_taken() const {
  if (known_.size() == object_.node().members.size()) return;
  for (const Member& member : object_.node().members) {
    if (std::ranges::find(known_, member.name) != known_.end()) continue;
    fail(object_.subject().status, "{}, {}: {} is not known", object_.subject().what,
         line_of(member.at), object_.path_of(printable(member.name)));
  }
}

}  // namespace outrigger::config
