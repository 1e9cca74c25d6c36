// SPDX-License-Identifier: Apache-2.0
// Walks the text beside the key table: names, types, ranges.
#include <algorithm>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/config/canonical.h"
#include "core/config/values.h"

namespace outrigger::config {
namespace {

constexpr std::string_view kOptimizerNames[] = {"type",
                                                "params",
                                                "gradient_clipping",
                                                "gradient_clipping_value",
                                                "check_grad_overflow",
                                                "states",
                                                "seed",
                                                "skip_outlier_norms",
                                                "scheduler"};

// The table's path of a path in the text.
std::string table_path(std::string_view path, Form form) {
  if (form == Form::engine) return std::string(path);
  const std::string_view top = path.substr(0, path.find('.'));
  if (top == "type" || top == "params") return format_text("optimizer.{}", path);
  if (top == "states" || top == "seed" || top == "gradient_clipping_value" ||
      top == "skip_outlier_norms") {
    return format_text("outrigger.{}", path);
  }
  if (top == "check_grad_overflow") return format_text("bf16.{}", path);
  const bool same = top == "gradient_clipping" || top == "scheduler";
  return same ? std::string(path) : std::string();
}

const Node* find_member(const Node* node, std::string_view name) {
  if (node == nullptr) return nullptr;
  const auto found = std::ranges::find(node->members, name, &Member::name);
  return found == node->members.end() ? nullptr : &found->value;
}

// An optimizer that is recognised only may have parameters that the table does not know.
bool optimizer_not_built(const Node& root, Form form) {
  const Node* type =
      find_member(form == Form::engine ? find_member(&root, "optimizer") : &root, "type");
  return type != nullptr && type->kind == Kind::text &&
         !match_choice(find_key("optimizer.type")->later, type->scalar.get<std::string>()).empty();
}

// Whether an object of free form asks for something.
bool asks(const Json& value) {
  if (value.is_null() || value == false) return false;
  if (!value.is_structured()) return true;
  if (value.empty()) return false;
  const auto enabled = value.is_object() ? value.find("enabled") : value.end();
  return enabled == value.end() || *enabled != false;
}

}  // namespace

class Checker {
 public:
  Checker(Values& values, Form form, const Node& root)
      : values_(values), form_(form), free_params_(optimizer_not_built(root, form)) {}

  void object(const Node& node, const std::string& path) {
    for (const Member& member : node.members) {
      const std::string inner = path.empty() ? member.name : path + "." + member.name;
      const Key* key =
          member.name.find('.') == std::string::npos ? find_key(table_path(inner, form_)) : nullptr;
      if (key == nullptr && free_params_ && table_path(path, form_) == "optimizer.params") continue;
      if (key == nullptr) unknown(member, path);
      value(member, *key, inner);
    }
  }

 private:
  [[noreturn]] void unknown(const Member& member, const std::string& section) {
    const std::string where =
        section.empty() ? "at the top level" : "in " + printable(section, 200);
    std::string text =
        format_text("{}: unknown key \"{}\" {}", line_of(member.at), printable(member.name), where);
    const std::vector<std::string> names = known(section);
    const std::string guess = nearest(member.name, names);
    if (member.name.find('.') != std::string::npos &&
        find_key(table_path(member.name, form_)) != nullptr) {
      text += "; write sections as objects in objects, not with dots";
    } else if (const std::string home = other_home(member.name, section); !home.empty()) {
      text += format_text("; this key belongs at {}", home);
    } else if (!guess.empty()) {
      text += format_text("; the nearest known key is \"{}\"", guess);
    } else if (names.size() <= 24) {
      std::string list;
      for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
      text += format_text("; known here: {}", list);
    } else {
      text += "; remove it (docs/configuration.md lists all keys)";
    }
    throw Error(OTR_E_CONFIG, text);
  }

  [[nodiscard]] std::vector<std::string> known(const std::string& section) const {
    if (form_ == Form::optimizer && section.empty()) {
      return {std::begin(kOptimizerNames), std::end(kOptimizerNames)};
    }
    return names_in(table_path(section, form_));
  }

  // Where a key of exactly this name is at home, if it is in one other place only.
  [[nodiscard]] std::string other_home(const std::string& name, const std::string& section) const {
    std::string home, alias;
    if (form_ == Form::optimizer || known_here(name, section)) return home;
    for (const Key& key : keys()) {
      const size_t dot = key.path.rfind('.');
      const std::string_view leaf =
          dot == std::string_view::npos ? key.path : key.path.substr(dot + 1);
      if (leaf != name) continue;
      if (!key.alias_of.empty()) {
        alias = key.path;
        continue;
      }
      if (!home.empty()) return {};
      home = dot == std::string_view::npos ? "the top level" : std::string(key.path);
    }
    return home.empty() ? alias : home;
  }

  [[nodiscard]] bool known_here(const std::string& name, const std::string& section) const {
    const std::vector<std::string> names = known(section);
    return std::ranges::find(names, name) != names.end();
  }

  void value(const Member& member, const Key& key, const std::string& path) {
    const Node& node = member.value;
    const Key& target = key.alias_of.empty() ? key : *find_key(key.alias_of);
    if (node.kind == Kind::text && node.scalar == "auto" && key.type != Type::any) {
      if (auto_means_default(key.path)) {
        values_.dropped_auto.push_back(path);
        return;
      }
      fail(OTR_E_CONFIG,
           "{}: {} = \"auto\" has to be filled in before it comes here; legal: {}; or leave the "
           "key out for the default {}",
           line_of(node.at), path, legal_values(target), target.fallback);
    }
    if (key.type == Type::section) {
      if (node.kind == Kind::null) return;
      if (key.path == "zero_optimization" && node.kind == Kind::boolean)
        return old_zero(node, path);
      if (node.kind != Kind::object) not_legal(node, key, path);
      return object(node, path);
    }
    store(node, target, path, canonical(node, target, path));
  }

  // "zero_optimization": true is the oldest form.
  void old_zero(const Node& node, const std::string& path) {
    const Key& stage = *find_key("zero_optimization.stage");
    store(node, stage, path, node.scalar.get<bool>() ? 1 : 0);
    values_.warnings.push_back(format_text("{}: {} = {} is an old form; write {{\"stage\": {}}}",
                                           line_of(node.at), path, node.shown,
                                           node.scalar.get<bool>() ? 1 : 0));
  }

  void store(const Node& node, const Key& key, const std::string& path, Json json) {
    Value& value = values_.at(key.path);
    if (value.origin == Origin::user && value.json != json) {
      fail(OTR_E_CONFIG,
           "{}: {} = {} contradicts {}: two spellings of one key; keep one, or give both the same "
           "value",
           line_of(node.at), path, node.shown, values_.name(key.path));
    }
    value.at = node.at;
    value.path = path;
    value.shown = node.shown;
    value.origin = Origin::user;
    value.json = std::move(json);
    values_.any_from_user_ = true;
    judge(value);
  }

  // Status of a value that differs from the default.
  void judge(const Value& value) {
    const Key& key = *value.key;
    const Json fallback = Json::parse(key.fallback);
    const bool differs = key.type == Type::any ? asks(value.json) : value.json != fallback;
    if (!differs) return;
    if (key.status == Status::refused) {
      fail(OTR_E_CONFIG, "{} is not possible: {}", values_.lead(key.path), key.note);
    }
    if (key.status == Status::host) values_.left_to_host.push_back(value.path);
    const std::string_view choice = key.type == Type::choice && value.json.is_string()
                                        ? match_choice(key.later, value.json.get<std::string>())
                                        : std::string_view();
    const bool later = !choice.empty();
    if (key.status == Status::not_built || later) {
      std::string way =
          later && !key.choices.empty()
              ? "use " + format_text("{}", fmt::join(split_choices(key.choices), " or "))
              : std::string(key.note);
      // These are there to send less, which a key does for any rule.
      if (choice.starts_with("OneBit") || choice.starts_with("ZeroOne")) {
        way += "; with zero_optimization.zero_quantized_gradients their gradients go in 8 bits";
      }
      values_.not_built.push_back(
          format_text("{} is recognised but not built yet: {}", values_.lead(key.path), way));
    }
  }

  Values& values_;
  Form form_;
  bool free_params_;  // optimizer.params may hold any key
};

Values check(const Node& root, Form form) {
  if (root.kind != Kind::object) {
    fail(OTR_E_CONFIG, "{}: the configuration is {}; it must be an object {{…}}", line_of(root.at),
         root.shown);
  }
  Values values;
  Checker(values, form, root).object(root, "");
  return values;
}

}  // namespace outrigger::config
