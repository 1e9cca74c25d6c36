// SPDX-License-Identifier: Apache-2.0
// The key table itself.
#include "core/config/keys.h"

#include <set>

#include "core/base/nearest.h"
#include "core/base/text.h"
#include "core/config/canonical.h"
#include "tests/config/support.h"

namespace outrigger::config {
namespace {

TEST(Keys, PathsAreUniqueAndTheirSectionsExist) {
  std::set<std::string_view> seen;
  for (const Key& key : keys()) {
    EXPECT_TRUE(seen.insert(key.path).second) << key.path;
    if (const size_t dot = key.path.rfind('.'); dot != std::string_view::npos) {
      const Key* section = find_key(key.path.substr(0, dot));
      ASSERT_NE(section, nullptr) << key.path;
      EXPECT_EQ(section->type, Type::section) << key.path;
    }
    EXPECT_FALSE(key.meaning.empty()) << key.path;
    if (!key.alias_of.empty()) {
      const Key* target = find_key(key.alias_of);
      ASSERT_NE(target, nullptr) << key.path;
      EXPECT_EQ(target->type, key.type) << key.path;
    }
    if (key.status == Status::not_built || key.status == Status::refused || !key.later.empty()) {
      EXPECT_FALSE(key.note.empty() && key.choices.empty()) << key.path << " names no way out";
    }
  }
}

TEST(Keys, DefaultsAreLegal) {
  for (const Key& key : keys()) {
    if (key.type == Type::section || !key.alias_of.empty()) continue;
    const Node node = parse_document(key.fallback);
    EXPECT_EQ(fault_of([&] { (void)canonical(node, key, std::string(key.path)); }).text, "")
        << key.path;
  }
}

TEST(Keys, EveryDefaultWrittenOutIsAcceptedAlone) {
  for (const Key& key : keys()) {
    if (key.type == Type::section || !key.alias_of.empty()) continue;
    std::string text, closing;
    std::string_view path = key.path;
    for (size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
      text += outrigger::format_text("{{\"{}\": ", path.substr(0, dot));
      closing += "}";
      path.remove_prefix(dot + 1);
    }
    text += outrigger::format_text("{{\"{}\": {}}}{}", path, key.fallback, closing);
    EXPECT_EQ(engine_fault(text).text, "") << text;
  }
}

// Each key of a type gets values of the other types, and numbers beyond both ends of its range.
TEST(Keys, EveryKeyRefusesOtherTypes) {
  for (const Key& key : keys()) {
    if (key.type == Type::any || !key.alias_of.empty()) continue;
    const auto refused = [&](std::string_view value) {
      const Node node = parse_document(value);
      const Fault fault = fault_of([&] { (void)canonical(node, key, std::string(key.path)); });
      EXPECT_EQ(fault.status, OTR_E_CONFIG) << key.path << " accepts " << value;
      EXPECT_NE(fault.text.find(key.path), std::string::npos) << fault.text;
      EXPECT_NE(fault.text.find("legal: "), std::string::npos) << fault.text;
    };
    if (key.type != Type::boolean) refused("true");
    if (key.type != Type::text) refused("\"no such word\"");
    if (key.type != Type::integer && key.type != Type::number) refused("1");
    if (key.fallback != "null") refused("null");
    refused("{}");
    refused("[1, 2, 3]");
    if (key.type == Type::integer) {
      refused("0.5");
      refused("\"1\"");
      refused("1e30");
      refused("-1e30");
      refused("18446744073709551616");
    }
    if (key.type == Type::integer || key.type == Type::number)
      refused(outrigger::format_text("{}", key.low - 1));
    if (key.type == Type::number) refused("1e300");
  }
}

TEST(Keys, NearestFindsTypingErrors) {
  const std::vector<std::string> words = {"stage", "reduce_scatter", "overlap_comm", "lr"};
  EXPECT_EQ(nearest("stgae", words), "stage");
  EXPECT_EQ(nearest("Stage", words), "stage");
  EXPECT_EQ(nearest("reducescatter", words), "reduce_scatter");
  EXPECT_EQ(nearest("overlap_com", words), "overlap_comm");
  EXPECT_EQ(nearest("rl", words), "lr");
  EXPECT_EQ(nearest("momentum", words), "");
  EXPECT_EQ(nearest("", words), "");
  EXPECT_EQ(nearest(std::string(1000, 's'), words), "");
}

TEST(Keys, FindsSpellings) {
  EXPECT_EQ(canonical_dtype("torch.bfloat16"), "bf16");
  EXPECT_EQ(canonical_dtype("half"), "fp16");
  EXPECT_EQ(canonical_dtype("int8"), "");
  EXPECT_EQ(match_choice("Adam|AdamW", "adamw"), "AdamW");
  EXPECT_EQ(match_choice("Adam|AdamW", "adam|"), "");
  EXPECT_EQ(match_choice("", ""), "");
  EXPECT_EQ(find_key("bfloat16.enabled"), find_key("bf16.enabled"));
  EXPECT_EQ(find_key("bf16.enable"), nullptr);
  EXPECT_EQ(find_key(""), nullptr);
}

}  // namespace
}  // namespace outrigger::config
