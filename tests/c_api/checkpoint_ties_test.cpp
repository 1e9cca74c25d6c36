// SPDX-License-Identifier: Apache-2.0
// Loads where parameters are tied here and not there, or the other way round, or by another root.
#include <map>
#include <string>
#include <vector>

#include "checkpoints.h"

namespace {

using namespace otr_test;

constexpr int64_t kCount = 300;

struct Named {
  const char* name;
  const char* root = nullptr;  // whose alias it is
};
using Names = std::vector<Named>;
using Ids = std::map<std::string, int64_t>;

Ids declare_tied(Engine& engine, const Names& model, int64_t first) {
  Ids ids;
  for (const Named& each : model) {
    otr_param_options options = param_options();
    if (each.root != nullptr) options.alias_of = ids.at(each.root);
    ids[each.name] = static_cast<int64_t>(ids.size());
    const int64_t number = each.root == nullptr ? ids[each.name] : options.alias_of;
    engine.add(each.name, {kCount}, dyadic(kCount, first + number), &options);
  }
  engine.commit();
  return ids;
}

// The gradient follows from the name of the values that a parameter has there.
void step(const Engine& engine, const Ids& ids, const std::map<std::string, int64_t>& gradients) {
  std::vector<Engine::Gradient> all;
  for (const auto& [name, number] : gradients)
    all.push_back({ids.at(name), dyadic(kCount, number)});
  engine.pass(all);
  ASSERT_OK(otr_engine_step(engine.get(), nullptr));
}

std::vector<Values> all_states_of(const Engine& engine, int64_t id) {
  std::vector<Values> states;
  for (const int32_t value : {OTR_VALUE_MASTER, OTR_VALUE_EXP_AVG, OTR_VALUE_EXP_AVG_SQ}) {
    Tensor out = Tensor::filled({kCount}, 0);
    EXPECT_OK(otr_engine_parameter_read(engine.get(), id, value, &out.get()));
    states.push_back(out.values());
  }
  return states;
}

std::string training(int32_t stage) {
  return R"({"gradient_clipping": 0, "optimizer": {"type": "AdamW", "params": {"lr": 0.03}}, "zero_optimization": {"stage": )" +
         std::to_string(stage) + "}}";
}

struct TiedCase {
  Names there, here;
  std::map<std::string, std::string> takes;  // by name here: whose values there
};

const Names kTied{{"a"}, {"b", "a"}, {"c"}};

TEST(TiedLoad, TiesMayBeOthers) {
  const std::vector<TiedCase> cases{
      {kTied, {{"b"}, {"a", "b"}, {"c"}}, {{"b", "a"}, {"c", "c"}}},
      {kTied, {{"c"}, {"a"}}, {{"a", "a"}, {"c", "c"}}},
      {kTied, {{"b"}, {"c"}}, {{"b", "a"}, {"c", "c"}}},
      {kTied, {{"a"}, {"b"}, {"c"}}, {{"a", "a"}, {"b", "a"}, {"c", "c"}}},
      {{{"b"}, {"c"}}, kTied, {{"a", "b"}, {"c", "c"}}},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    const TiedCase& c = cases[i];
    const Place place;
    std::map<std::string, std::vector<Values>> saved, ended;
    // "c" is updated once more than the others, so counts of updates are told apart by name.
    run_ranks(2, [&](int32_t rank, otr_comm* comm) {
      Engine engine(comm, training(2));
      const Ids ids = declare_tied(engine, c.there, 3);
      std::map<std::string, int64_t> gradients;
      for (const Named& each : c.there)
        if (each.root == nullptr) gradients[each.name] = each.name[0];
      step(engine, ids, {{"c", 5}});
      step(engine, ids, gradients);
      ASSERT_OK(save(engine, place));
      std::map<std::string, std::vector<Values>> now, later;
      for (const auto& [name, id] : ids) now[name] = all_states_of(engine, id);
      step(engine, ids, gradients);
      for (const auto& [name, id] : ids) later[name] = all_states_of(engine, id);
      EXPECT_OK(otr_engine_finalize(engine.get()));
      if (rank == 0) {
        saved = now;
        ended = later;
      }
    });
    run_ranks(2, [&](int32_t, otr_comm* comm) {
      Engine engine(comm, training(1));
      const Ids ids = declare_tied(engine, c.here, 40);
      step(engine, ids, {{c.here[0].name, 9}});
      ASSERT_OK(load(engine, place));
      std::map<std::string, int64_t> gradients;
      for (const auto& [name, there] : c.takes) {
        EXPECT_EQ(all_states_of(engine, ids.at(name)), saved.at(there)) << name;
        gradients[name] = there[0];
      }
      step(engine, ids, gradients);
      for (const auto& [name, there] : c.takes) {
        EXPECT_EQ(all_states_of(engine, ids.at(name)), ended.at(there)) << name;
      }
      EXPECT_OK(otr_engine_finalize(engine.get()));
    });
  }
}

// One of two values would be lost.
TEST(TiedLoad, TwoValuesDoNotBecomeOne) {
  const Place place;
  run_ranks(1, [&](int32_t, otr_comm* comm) {
    Engine engine(comm, training(0));
    const Ids ids = declare_tied(engine, Names{{"a"}, {"b"}, {"c"}}, 3);
    step(engine, ids, {{"a", 1}, {"b", 2}, {"c", 3}});
    ASSERT_OK(save(engine, place));
    Engine tied(comm, training(0));
    const Ids own = declare_tied(tied, kTied, 40);
    const std::vector<Values> before = all_states_of(tied, own.at("a"));
    for (const int32_t weights_only : {0, 1}) {
      otr_load_options options;
      ASSERT_OK(otr_load_options_init(&options, sizeof options));
      options.weights_only = weights_only;
      EXPECT_EQ(otr_engine_load(tied.get(), place.text(), nullptr, &options), OTR_E_CONFIG);
      const std::string text = otr_last_error_message();
      for (const char* part : {"\"a\" and \"b\" are tied here", "load_options.renamed"}) {
        EXPECT_NE(text.find(part), std::string::npos) << text;
      }
    }
    EXPECT_EQ(all_states_of(tied, own.at("a")), before);
    // The way out: both take b's; a is left behind.
    otr_load_options options;
    ASSERT_OK(otr_load_options_init(&options, sizeof options));
    const otr_rename rename{"a", "b"};
    const char* const include[] = {"a", "c"};
    options.renamed = &rename;
    options.renamed_count = 1;
    options.include = include;
    options.include_count = 2;
    options.weights_only = 1;
    EXPECT_OK(otr_engine_load(tied.get(), place.text(), nullptr, &options));
    EXPECT_EQ(all_states_of(tied, own.at("a"))[0], all_states_of(engine, ids.at("b"))[0]);
    EXPECT_EQ(all_states_of(tied, own.at("c"))[0], all_states_of(engine, ids.at("c"))[0]);
  });
}

}  // namespace
