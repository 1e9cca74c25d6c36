// SPDX-License-Identifier: Apache-2.0
// Loads of a part of a checkpoint: chosen by name, under other names, with another number of rows.
// What is expected comes from the values of the engine that saved and of the one that loads.
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../sanitizers.h"
#include "checkpoints.h"

namespace {

using namespace otr_test;

struct Declared {
  std::string name;
  Shape shape;
  bool trainable = true;
};
using Model = std::vector<Declared>;

const Model& there() {
  static const Model kModel{{"model.enc.w", {40, 30}},
                            {"model.enc.b", {7}},
                            {"model.head.w", {20, 30}},
                            {"model.pos", {30, 10}, false}};
  return kModel;
}
// The same under names of here, with so many rows of head.w and pos.
Model here(int64_t head = 20, int64_t pos = 30) {
  return {{"enc.w", {40, 30}}, {"enc.b", {7}}, {"head.w", {head, 30}}, {"pos", {pos, 10}, false}};
}

void declare(Engine& engine, const Model& model, double factor) {
  for (size_t i = 0; i < model.size(); ++i) {
    otr_param_options options = param_options();
    options.trainable = model[i].trainable ? 1 : 0;
    Values values = dyadic(count_of(model[i].shape), static_cast<int64_t>(i) + 3);
    for (double& v : values) v *= factor;
    engine.add(model[i].name.c_str(), model[i].shape, values, &options);
  }
  engine.commit();
}

void train(const Engine& engine, const Model& model, int64_t number) {
  std::vector<Engine::Gradient> gradients;
  for (size_t i = 0; i < model.size(); ++i) {
    const auto id = static_cast<int64_t>(i);
    if (model[i].trainable)
      gradients.push_back({id, dyadic(count_of(model[i].shape), number + id)});
  }
  engine.pass(gradients);
  ASSERT_OK(otr_engine_step(engine.get(), nullptr));
}

// Of each parameter all that it has: master or published value, moments.
using All = std::vector<std::map<int32_t, Values>>;
All all_of(const Engine& engine, const Model& model) {
  All all;
  for (size_t i = 0; i < model.size(); ++i) {
    all.emplace_back();
    for (const int32_t value :
         {OTR_VALUE_MASTER, OTR_VALUE_EXP_AVG, OTR_VALUE_EXP_AVG_SQ, OTR_VALUE_PUBLISHED}) {
      Tensor out = Tensor::filled(model[i].shape, 0);
      const int32_t status =
          otr_engine_parameter_read(engine.get(), static_cast<int64_t>(i), value, &out.get());
      if (status == OTR_OK) all.back()[value] = out.values();
    }
  }
  return all;
}

std::string progress_of(const Engine& engine) {
  std::string text(1U << 16U, ' ');
  size_t size = text.size();
  EXPECT_OK(otr_engine_get_progress(engine.get(), text.data(), &size));
  return text.substr(0, size - 1);
}

struct Wish {
  std::vector<const char*> include = {}, exclude = {}, resized = {};
  std::vector<otr_rename> renamed = {};
  int32_t weights_only = 1, strict = 1;
};
int32_t load(const Engine& engine, const Place& place, const Wish& wish) {
  otr_load_options o;
  EXPECT_OK(otr_load_options_init(&o, sizeof o));
  o.weights_only = wish.weights_only;
  o.strict = wish.strict;
  const auto give = [](const std::vector<const char*>& list, const char* const*& data,
                       int64_t& count) {
    if (!list.empty()) data = list.data();
    count = static_cast<int64_t>(list.size());
  };
  give(wish.include, o.include, o.include_count);
  give(wish.exclude, o.exclude, o.exclude_count);
  give(wish.resized, o.resized, o.resized_count);
  if (!wish.renamed.empty()) o.renamed = wish.renamed.data();
  o.renamed_count = static_cast<int64_t>(wish.renamed.size());
  return otr_engine_load(engine.get(), place.text(), nullptr, &o);
}

const std::vector<otr_rename> kModelBefore{{"*", "model.*"}};

// Three steps of the model there; what it was at the save.
All saved_in(const Place& place, const Training& kind, const Job& job) {
  All saved;
  run_ranks(job.world, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config(kind, job));
    declare(engine, there(), 1);
    for (int64_t i = 0; i < 3; ++i) train(engine, there(), i);
    ASSERT_OK(save(engine, place));
    All all = all_of(engine, there());
    EXPECT_OK(otr_engine_finalize(engine.get()));
    if (rank == 0) saved = std::move(all);
  });
  return saved;
}

// The first of each weight's elements become those that were saved: `taken` of parameter i.
All with_weights(All now, const All& saved, const std::vector<size_t>& taken) {
  for (size_t i = 0; i < now.size(); ++i) {
    for (const int32_t value : {OTR_VALUE_MASTER, OTR_VALUE_PUBLISHED}) {
      if (!now[i].contains(value)) continue;
      std::copy_n(saved[i].at(value).begin(), taken[i], now[i].at(value).begin());
    }
  }
  return now;
}

// Loads into an engine that has trained by itself. It then has `taken` elements of what was saved,
// and goes on as one into which the same weights were written by hand.
void expect_taken(const Training& kind, const Job& job, const Place& place, const All& saved,
                  const Model& model, const Wish& wish, const std::vector<size_t>& taken) {
  run_ranks(job.world, [&](int32_t, otr_comm* comm) {
    Engine engine(comm, config(kind, job)), reference(comm, config(kind, job));
    for (Engine* each : {&engine, &reference}) {
      declare(*each, model, -0.75);
      for (int64_t i = 7; i < 9; ++i) train(*each, model, i);
    }
    const All expected = with_weights(all_of(engine, model), saved, taken);
    const std::string progress = progress_of(engine);
    ASSERT_OK(load(engine, place, wish));
    EXPECT_EQ(all_of(engine, model), expected);
    EXPECT_EQ(progress_of(engine), progress);
    for (size_t i = 0; i < model.size(); ++i) {
      const int32_t weight = model[i].trainable ? OTR_VALUE_MASTER : OTR_VALUE_PUBLISHED;
      const Tensor value(model[i].shape, expected[i].at(weight));
      ASSERT_OK(otr_engine_parameter_write(reference.get(), static_cast<int64_t>(i),
                                           OTR_VALUE_MASTER, &value));
    }
    for (const Engine* each : {&engine, &reference}) train(*each, model, 4);
    EXPECT_EQ(all_of(engine, model), all_of(reference, model));
    EXPECT_OK(otr_engine_finalize(engine.get()));
  });
}

const std::vector<Job> kJobs{{1, 0},
                             {2, 1},
                             {3, 2},
                             {3, 3},
                             {2, 3, "", R"(, "share_parameters": false)"},
                             {4, 3, "", R"(, "mesh": {"shard": 2})"}};

TEST(PartialLoad, TakesWhatIsChosenAndLeavesTheRest) {
  for (const size_t k : {0U, 2U, 3U}) {
    const Place place;
    const All saved = saved_in(place, kTrainings[k], {2, 1});
    for (const Job& job : kJobs) {
      if (job.stage == 0 && !kTrainings[k].at_stage_0) continue;
      if (!outrigger::test::runs(k, &job - kJobs.data())) continue;
      SCOPED_TRACE(std::string(kTrainings[k].name) + " at stage " + std::to_string(job.stage));
      const auto expect = [&](const Wish& wish, const std::vector<size_t>& taken) {
        expect_taken(kTrainings[k], job, place, saved, here(), wish, taken);
      };
      expect({{"enc.*"}, {}, {}, kModelBefore}, {1200, 7, 0, 0});
      expect({{"*.w", "po?"}, {"head.*"}, {}, kModelBefore}, {1200, 0, 0, 300});
      expect({{}, {"*.w"}, {}, kModelBefore}, {0, 7, 0, 300});
      expect({{"head.w", "pos"}, {}, {}, {{"head.w", "model.head.w"}, {"pos", "model.pos"}}},
             {0, 0, 600, 300});
    }
  }
}

TEST(PartialLoad, TakesRowsThatAreInBoth) {
  for (const size_t k : {0U, 1U, 2U, 3U, 4U}) {
    const Place place;
    const All saved = saved_in(place, kTrainings[k], {3, 2});
    for (const auto& [head, pos] : {std::pair<int64_t, int64_t>{26, 35}, {11, 4}, {1, 30}}) {
      const size_t head_taken = static_cast<size_t>(std::min<int64_t>(head, 20)) * 30;
      const size_t pos_taken = static_cast<size_t>(std::min<int64_t>(pos, 30)) * 10;
      for (const Job& job : kJobs) {
        if (job.stage == 0 && !kTrainings[k].at_stage_0) continue;
        SCOPED_TRACE(std::string(kTrainings[k].name) + " at stage " + std::to_string(job.stage) +
                     " to rows " + std::to_string(head));
        expect_taken(kTrainings[k], job, place, saved, here(head, pos),
                     {{}, {}, {"head.*", "pos"}, kModelBefore}, {1200, 7, head_taken, pos_taken});
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

// A training goes on under other names: moments, counts of updates and what is frozen come along.
TEST(PartialLoad, ARenamedTrainingGoesOn) {
  const auto some = [](const Engine& engine, int64_t number) {
    engine.pass({{0, dyadic(1200, number)}, {2, dyadic(600, number + 1)}});
    ASSERT_OK(otr_engine_step(engine.get(), nullptr));
  };
  for (const size_t k : {0U, 1U, 3U}) {
    const Training& kind = kTrainings[k];
    const Place place;
    run_ranks(2, [&](int32_t, otr_comm* comm) {
      Engine first(comm, config(kind, {2, 1})), again(comm, config(kind, {2, 3}));
      declare(first, there(), 1);
      declare(again, here(), -0.75);
      train(again, here(), 50);
      train(first, there(), 0);
      ASSERT_OK(otr_engine_set_trainable(first.get(), 1, 0));  // one update, the others have three
      for (const int64_t number : {1, 2}) some(first, number);
      ASSERT_OK(save(first, place));
      const Wish renamed{
          {},
          {},
          {},
          {{"enc.*", "model.enc.*"}, {"head.w", "model.head.w"}, {"pos", "model.pos"}},
          0};
      ASSERT_OK(load(again, place, renamed));
      EXPECT_EQ(all_of(again, here()), all_of(first, there()));
      for (const Engine* each : {&first, &again}) {
        some(*each, 3);
        ASSERT_OK(otr_engine_set_trainable(each->get(), 1, 1));
        train(*each, there(), 4);  // its bias correction counts updates
      }
      if (k != 3) {  // random numbers of stochastic rounding follow from the name
        EXPECT_EQ(all_of(again, here()), all_of(first, there()));
      }
      EXPECT_OK(otr_engine_finalize(first.get()));
      EXPECT_OK(otr_engine_finalize(again.get()));
    });
  }
}

// The frozen one stays frozen, as its progress says under the other name.
TEST(PartialLoad, WhatIsFrozenIsFrozenUnderItsOtherName) {
  const Place place;
  Solo first(config(kTrainings[0], {1, 0})), again(config(kTrainings[0], {1, 0}));
  declare(first.engine, there(), 1);
  declare(again.engine, here(), 1);
  ASSERT_OK(otr_engine_set_trainable(first.engine.get(), 2, 0));
  ASSERT_OK(save(first.engine, place));
  ASSERT_OK(load(again.engine, place, {{}, {}, {}, kModelBefore, 0}));
  EXPECT_NE(progress_of(again.engine).find(R"("frozen":["head.w"])"), std::string::npos)
      << progress_of(again.engine);
}

// What a writer without an engine counted comes under other names, too.
TEST(PartialLoad, CountsOfAWriterComeUnderOtherNames) {
  const Place place;
  otr_writer_options options;
  ASSERT_OK(otr_writer_options_init(&options, sizeof options));
  options.exp_avg = options.exp_avg_sq = "float32";
  options.applied_steps = 5;
  otr_checkpoint_writer* writer = nullptr;
  ASSERT_OK(otr_checkpoint_writer_create(place.text(), "a", &options, &writer));
  for (const char* name : {"a", "b"}) {
    otr_writer_param_options of;
    ASSERT_OK(otr_writer_param_options_init(&of, sizeof of));
    of.updates = name[0] == 'a' ? 2 : -1;
    const Shape shape{4};
    ASSERT_OK(otr_checkpoint_writer_add_parameter(writer, name, shape.data(), 1, &of));
  }
  for (const char* name : {"a", "b"}) {
    for (const int32_t value : {OTR_VALUE_MASTER, OTR_VALUE_EXP_AVG, OTR_VALUE_EXP_AVG_SQ}) {
      const Tensor source({4}, Values(4, value + (name[0] == 'a' ? 0.5 : 2)));
      ASSERT_OK(otr_checkpoint_writer_write(writer, name, value, 0, &source));
    }
  }
  ASSERT_OK(otr_checkpoint_writer_finish(writer));
  otr_checkpoint_writer_destroy(writer);
  Solo solo(config(kTrainings[0], {1, 1}));
  solo.engine.add("b", {4}, Values(4, 0));  // what is a there
  solo.engine.add("c", {4}, Values(4, 0));
  solo.engine.commit();
  ASSERT_OK(load(solo.engine, place, {{}, {}, {}, {{"b", "a"}, {"c", "b"}}, 0}));
  EXPECT_EQ(solo.engine.read(0), Values(4, 0.5));
  EXPECT_EQ(solo.engine.read(1, OTR_VALUE_EXP_AVG), Values(4, OTR_VALUE_EXP_AVG + 2));
  EXPECT_NE(progress_of(solo.engine).find(R"("updates":2,"other_updates":[["c",5]])"),
            std::string::npos)
      << progress_of(solo.engine);
}

TEST(PartialLoad, TiedParametersAreLoadedTogether) {
  const Place place;
  const auto make = [](Engine& engine, double factor) {
    Values values = dyadic(60, 1);
    for (double& v : values) v *= factor;
    const int64_t root = engine.add("embed", {6, 10}, values);
    otr_param_options alias = param_options();
    alias.alias_of = root;
    engine.add("head", {6, 10}, values, &alias);
    engine.add("other", {3}, Values(3, factor));
    engine.commit();
  };
  Solo first(config(kTrainings[0], {1, 1}));
  make(first.engine, 2);
  ASSERT_OK(save(first.engine, place));
  const Values theirs = first.engine.read(0);
  const auto loaded = [&](const Wish& wish) {
    Solo solo(config(kTrainings[0], {1, 1}));
    make(solo.engine, 5);
    EXPECT_OK(load(solo.engine, place, wish));
    return std::pair(solo.engine.read(0) == theirs, solo.engine.read(2)[0] == 2);
  };
  EXPECT_EQ(loaded({{"head"}}), std::pair(true, false));
  EXPECT_EQ(loaded({{}, {"head"}}), std::pair(false, true));
  EXPECT_EQ(loaded({{"embed", "other"}, {"head"}}), std::pair(false, true));
  EXPECT_EQ(loaded({{"head"}, {}, {}, {{"head", "embed"}}}), std::pair(true, false));
  // What they share there under a third name alone.
  Solo other(config(kTrainings[0], {1, 1}));
  other.engine.add("wte", {5, 10}, Values(50, 7));
  other.engine.commit();
  ASSERT_OK(save(other.engine, place, "b"));
  Solo solo(config(kTrainings[0], {1, 1}));
  make(solo.engine, 5);
  const Values mine = solo.engine.read(0);
  ASSERT_OK(load(solo.engine, place, {{"embed"}, {}, {"head"}, {{"head", "wte"}}}));
  Values expected(50, 7);
  expected.insert(expected.end(), mine.begin() + 50, mine.end());
  EXPECT_EQ(solo.engine.read(0), expected);
}

// What is left behind may have a name there that another one takes.
TEST(PartialLoad, AnotherOneMayTakeWhatIsLeftBehind) {
  const Place place;
  const All saved = saved_in(place, kTrainings[0], {1, 1});
  Solo solo(config(kTrainings[0], {1, 1}));
  declare(solo.engine, here(), 2);
  const Values mine = solo.engine.read(0);
  const std::vector<otr_rename> renamed{{"*", "model.*"}, {"head.w", "model.enc.w"}};
  ASSERT_OK(load(solo.engine, place, {{}, {"enc.w"}, {"head.w"}, renamed}));
  const Values& theirs = saved[0].at(OTR_VALUE_MASTER);
  EXPECT_EQ(solo.engine.read(2), Values(theirs.begin(), theirs.begin() + 600));
  EXPECT_EQ(solo.engine.read(0), mine);
}

// ---- Wrong use ----------------------------------------------------------------------------------

struct Refusal {
  int32_t status;
  std::vector<std::string> words;
  Wish wish;
};
const std::vector<Refusal>& refusals() {
  static const std::vector<Refusal> kAll{
      {OTR_E_NOT_FOUND, {"include[1]", "encodr", "means no parameter"}, {{"*", "encodr.*"}}},
      {OTR_E_NOT_FOUND, {"include[0]", "did you mean \"enc.*\"?"}, {{"end.*"}}},
      {OTR_E_NOT_FOUND, {"exclude[0]", "did you mean \"head.w\"?"}, {{}, {"haed.w"}}},
      {OTR_E_NOT_FOUND, {"resized[0]", "did you mean \"*.b\"?"}, {{}, {}, {"*.x"}}},
      {OTR_E_ARGUMENT, {"exclude goes before include"}, {{"enc.*"}, {"*"}}},
      {OTR_E_ARGUMENT, {"resized[0]", "takes"}, {{"enc.*"}, {}, {"head.w"}, kModelBefore}},
      {OTR_E_ARGUMENT, {"include needs weights_only = 1"}, {{"*"}, {}, {}, kModelBefore, 0}},
      {OTR_E_ARGUMENT, {"exclude needs weights_only = 1"}, {{}, {"pos"}, {}, kModelBefore, 0}},
      {OTR_E_ARGUMENT, {"resized needs weights_only = 1"}, {{}, {}, {"pos"}, kModelBefore, 0}},
      {OTR_E_NOT_FOUND,
       {"renamed[0]", "did you mean \"head.w\"?"},
       {{}, {}, {}, {{"haed.w", "x"}}}},
      {OTR_E_NOT_FOUND,
       {"renamed[1]", "modle.*", "did you mean \"model.*\"?"},
       {{}, {}, {}, {{"enc.*", "model.enc.*"}, {"head.*", "modle.*"}}, 1, 0}},
      {OTR_E_NOT_FOUND,
       {"renamed[0]", "did you mean \"model.head.w\"?"},
       {{"head.w"}, {}, {}, {{"head.w", "model.haed.w"}}}},
      {OTR_E_ARGUMENT,
       {"renamed[1]", "renames no parameter that this load takes"},
       {{"head.w"}, {}, {}, {{"head.w", "model.head.w"}, {"enc.*", "model.enc.*"}}}},
      {OTR_E_ARGUMENT,
       {"renamed[0] and [1] both rename \"enc.w\""},
       {{}, {}, {}, {{"*", "model.*"}, {"enc.*", "model.enc.*"}}}},
      {OTR_E_ARGUMENT,
       {"renamed[0] and [1] both rename \"pos\""},
       {{}, {}, {}, {{"pos", "model.pos"}, {"pos", "model.head.w"}}}},
      {OTR_E_ARGUMENT,
       {"\"enc.w\" and \"head.w\"", "would both take \"model.enc.w\""},
       {{}, {}, {}, {{"*", "model.*"}, {"head.w", "model.enc.w"}}}},
      {OTR_E_ARGUMENT,
       {"renamed[0]", "both end in one *"},
       {{}, {}, {}, {{"enc.*", "model.enc."}}}},
      {OTR_E_ARGUMENT, {"renamed[0]", "both end in one *"}, {{}, {}, {}, {{"*.w", "*.x"}}}},
      {OTR_E_ARGUMENT, {"renamed[0]", "both end in one *"}, {{}, {}, {}, {{"po?", "model.pos"}}}},
      {OTR_E_ARGUMENT, {"renamed[0]", "legal are two names"}, {{}, {}, {}, {{"pos", ""}}}},
      {OTR_E_NOT_FOUND,
       {"the checkpoint lacks \"enc.w\"", "renamed \"*\" here, \"model.*\" there"},
       {}},
      {OTR_E_NOT_FOUND, {"the checkpoint lacks \"enc.w\", \"enc.b\". Load"}, {{"enc.*"}}},
      {OTR_E_NOT_FOUND,
       {"none of what was chosen: \"enc.w\", \"enc.b\"", "\"model.*\" there takes them"},
       {{"enc.*"}, {}, {}, {}, 1, 0}},
      {OTR_E_NOT_FOUND,
       {"here are no \"model.enc.w\", \"model.enc.b\", \"model.pos\""},
       {{}, {}, {}, {{"head.w", "model.head.w"}}}},
  };
  return kAll;
}

TEST(PartialLoad, WhatIsWrongIsRefusedBeforeAnythingChanges) {
  const Place place;
  saved_in(place, kTrainings[0], {1, 1});
  run_ranks(2, [&](int32_t, otr_comm* comm) {
    Engine engine(comm, config(kTrainings[0], {2, 3}));
    declare(engine, here(), -0.75);
    train(engine, here(), 8);
    const All before = all_of(engine, here());
    const std::string progress = progress_of(engine);
    for (const Refusal& each : refusals()) {
      SCOPED_TRACE(each.words.front());
      for (const std::string& word : each.words) {
        EXPECT_TRUE(failed(each.status, load(engine, place, each.wish), {word}));
      }
      EXPECT_EQ(all_of(engine, here()), before);
      EXPECT_EQ(progress_of(engine), progress);
    }
    EXPECT_OK(load(engine, place, {{"enc.b"}, {}, {}, kModelBefore}));
  });
}

TEST(PartialLoad, OnlyRowsOfWhatWasNamedMayDiffer) {
  const Place place;
  saved_in(place, kTrainings[0], {2, 1});
  const auto refused = [&](const Model& model, const Wish& wish, std::string_view word) {
    Solo solo(config(kTrainings[0], {1, 0}));
    declare(solo.engine, model, 3);
    const All before = all_of(solo.engine, model);
    EXPECT_TRUE(failed(OTR_E_SHAPE, load(solo.engine, place, wish), {"\"head.w\"", word}));
    EXPECT_EQ(all_of(solo.engine, model), before);
  };
  const char* const way_out = "Take the rows that are in both with load_options.resized";
  const char* const rule = "only the first dimension of a resized one may differ";
  refused(here(21), {{}, {}, {}, kModelBefore}, way_out);
  refused(here(21), {{}, {}, {"pos"}, kModelBefore}, way_out);
  Model other = here();
  for (const Shape& shape : {Shape{20, 31}, Shape{600}, Shape{20, 30, 1}, Shape{10, 60}}) {
    other[2].shape = shape;
    refused(other, {{}, {}, {"*"}, kModelBefore}, rule);
  }
  other[2].shape = {};
  refused(other, {{}, {}, {"*"}, kModelBefore}, rule);
}

TEST(PartialLoad, RanksThatChooseOthersAreNamed) {
  const Place place;
  saved_in(place, kTrainings[0], {1, 1});
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config(kTrainings[0], {2, 1}));
    declare(engine, here(), -0.75);
    const All before = all_of(engine, here());
    const Wish one{{"enc.w"}, {}, {}, kModelBefore};
    const std::vector<otr_rename> elsewhere{{"*", "modle.*"}};
    for (const Wish& other : std::vector<Wish>{{{"enc.b"}, {}, {}, kModelBefore},
                                               {{"enc.w", "enc.b"}, {}, {}, kModelBefore},
                                               {{"enc.w"}, {"pos"}, {}, kModelBefore},
                                               {{"enc.w"}, {}, {"enc.w"}, kModelBefore},
                                               {{"enc.w"}, {}, {}, {{"enc.w", "model.enc.w"}}},
                                               {{"enc.w"}, {}, {}, elsewhere}}) {
      EXPECT_FAILS(OTR_E_MISMATCH, load(engine, place, rank == 0 ? one : other), "rank 1",
                   "options");
    }
    EXPECT_EQ(all_of(engine, here()), before);
  });
}

TEST(PartialLoad, ListsAreThereOrAreNot) {
  const Place place;
  saved_in(place, kTrainings[0], {1, 1});
  Solo solo(config(kTrainings[0], {1, 1}));
  declare(solo.engine, here(), 1);
  const char* const names[] = {"enc.w", nullptr};
  const otr_rename renames[] = {{"enc.w", nullptr}};
  const auto refused = [&](const std::function<void(otr_load_options&)>& set,
                           std::string_view word) {
    otr_load_options o;
    ASSERT_OK(otr_load_options_init(&o, sizeof o));
    o.weights_only = 1;
    set(o);
    EXPECT_FAILS(OTR_E_ARGUMENT, otr_engine_load(solo.engine.get(), place.text(), nullptr, &o),
                 word);
  };
  refused([&](auto& o) { o.include = names; }, "include_count = 0 with include given");
  refused([&](auto& o) { o.exclude_count = 2; }, "exclude_count = 2 with exclude NULL");
  refused([&](auto& o) { o.resized = names, o.resized_count = -1; }, "resized_count = -1");
  refused([&](auto& o) { o.include = names, o.include_count = 2; }, "include[1] is NULL");
  refused([&](auto& o) { o.renamed = renames, o.renamed_count = 1; }, "renamed[0].there is NULL");
}

}  // namespace
