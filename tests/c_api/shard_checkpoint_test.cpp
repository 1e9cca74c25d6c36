// SPDX-License-Identifier: Apache-2.0
// Checkpoints and snapshots of shards: a run that goes on has the bits of one that was not stopped.
#include <fstream>

#include "checkpoints.h"
#include "shard_training.h"

namespace {

using namespace otr_test;

otr_save_options save_options() {
  otr_save_options options;
  EXPECT_OK(otr_save_options_init(&options, sizeof options));
  return options;
}
otr_load_options load_options() {
  otr_load_options options;
  EXPECT_OK(otr_load_options_init(&options, sizeof options));
  return options;
}

class ShardCheckpoint : public testing::TestWithParam<ShardKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, ShardCheckpoint, testing::ValuesIn(kShardKinds),
                         [](const auto& kind) { return "_" + std::to_string(kind.index); });

TEST_P(ShardCheckpoint, WhatGoesOnFromAFileHasTheBitsOfWhatWasNotStopped) {
  const Place place;
  ShardTraining whole(GetParam(), 1);
  whole.steps(0, 5);
  ASSERT_OK(otr_optimizer_set_value(whole.optimizer(), "weight_decay", 0.0625));
  ASSERT_OK(whole.save(place, "five"));
  const auto at_five = whole.everything();
  const auto expected = whole.steps(5, 12);
  ShardTraining other(GetParam(), 50);  // from elsewhere, and before its first step
  ASSERT_OK(other.load(place));
  EXPECT_EQ(other.everything(), at_five);
  EXPECT_EQ(other.steps(5, 12), expected);
  ASSERT_OK(whole.load(place, "five"));  // back, in the same shards
  EXPECT_EQ(whole.everything(), at_five);
  EXPECT_EQ(whole.steps(5, 12), expected);
}

TEST_P(ShardCheckpoint, TheSameFromASnapshot) {
  ShardTraining whole(GetParam(), 1);
  whole.steps(0, 5);
  const Snapshot moment;
  otr_snapshot_options options;
  ASSERT_OK(otr_snapshot_options_init(&options, sizeof options));
  const otr_part part{"host", "eleven", 6};
  options.parts = &part;
  options.part_count = 1;
  ASSERT_OK(whole.take(moment, &options));
  EXPECT_EQ(moment.part("host"), "eleven");
  EXPECT_EQ(moment.info().micro_steps, 10);
  const auto at_five = whole.everything();
  const auto expected = whole.steps(5, 12);
  ShardTraining other(GetParam(), 50);
  for (ShardTraining* each : {&whole, &other}) {
    ASSERT_OK(each->restore(moment));
    EXPECT_EQ(each->everything(), at_five);
    EXPECT_EQ(each->steps(5, 12), expected);
  }
}

// ---- Other readers and writers ------------------------------------------------------------------

const ShardKind kEngines{"as the engine's",
                         R"({"params": {"lr": 0.03}, "gradient_clipping": 0.5, "seed": 11})"};
const char* const kEngine =
    R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.03}}, "gradient_clipping": 0.5,
        "outrigger": {"seed": 11}})";

void declare_pieces(Engine& engine, double seed) {
  for (size_t i = 0; i < std::size(kShardCounts); ++i) {
    engine.add(("piece." + std::to_string(i)).c_str(), {kShardCounts[i]},
               irrational(kShardCounts[i], seed + static_cast<double>(i)));
  }
  engine.commit();
}

void step_engine(const Engine& engine, int number) {
  std::vector<Engine::Gradient> grads;
  for (size_t i = 0; i < std::size(kShardCounts); ++i) {
    grads.push_back({static_cast<int64_t>(i),
                     irrational(kShardCounts[i], number + 0.3 * static_cast<double>(i))});
  }
  engine.pass(grads);
  engine.step();
}

std::vector<Values> of_engine(const Engine& engine) {
  std::vector<Values> all;
  for (int64_t id = 0; id < static_cast<int64_t>(std::size(kShardCounts)); ++id) {
    for (const int32_t value : kStates) {
      all.push_back(engine.read(id, value));
    }
  }
  return all;
}

TEST(ShardCheckpoints, GoToAnEngineAndComeBack) {
  const Place place;
  const auto context = make_context();
  const auto comm = make_self(context.get());
  ShardTraining shards(kEngines, 1);
  shards.steps(0, 3);
  ASSERT_OK(shards.save(place, "shards"));
  Engine engine(comm.get(), kEngine);
  declare_pieces(engine, 9);
  ASSERT_OK(load(engine, place));
  const auto seen = of_engine(engine);
  size_t at = 0;
  for (size_t i = 0; i < std::size(kShardCounts); ++i) {
    for (const int32_t value : kStates) {
      const Tensor out = Tensor::filled({kShardCounts[i]}, 0);
      ASSERT_OK(otr_shard_read(shards.shards()[i], value, &out));
      EXPECT_EQ(seen[at++], out.values());
    }
  }
  step_engine(engine, 1);
  ASSERT_OK(save(engine, place, "engine"));
  ASSERT_OK(shards.load(place));
  size_t number = 0;
  for (const Values& value : of_engine(engine)) {
    const Tensor out = Tensor::filled({static_cast<int64_t>(value.size())}, 0);
    ASSERT_OK(otr_shard_read(shards.shards()[number / 3], kStates[number % 3], &out));
    EXPECT_EQ(out.values(), value) << number;
    ++number;
  }
  for (size_t i = 0; i < std::size(kShardCounts); ++i) {
    int64_t updates = 0;
    ASSERT_OK(otr_shard_get_step(shards.shards()[i], &updates));
    EXPECT_EQ(updates, (i == 1 ? 6 : 3) + 1) << "the second had two a step";
  }
}

TEST(ShardCheckpoints, AreRoundedIntoOtherFormats) {
  const Place place;
  ShardTraining whole(kShardKinds[0], 1);
  whole.steps(0, 3);
  ASSERT_OK(whole.save(place, "a"));
  const ShardKind kHalf{"bf16",
                        R"({"params": {"lr": 0.01}, "states": {"master": {"format": "bfloat16"},
                       "exp_avg": {"format": "bfloat16"}}})",
                        "bfloat16"};
  ShardTraining half(kHalf, 50);
  ASSERT_OK(half.load(place));
  const auto exact = whole.everything(), rounded = half.everything();
  ASSERT_EQ(exact.size(), rounded.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    const bool is_half = i % 4 < 2;  // master and first moment of four: second moment, updates
    for (size_t e = 0; e < exact[i].size(); ++e) {
      const double wanted =
          is_half ? static_cast<double>(round_to("bfloat16", exact[i][e])) : exact[i][e];
      ASSERT_EQ(rounded[i][e], wanted) << i << ", " << e;
    }
  }
  ShardTraining blocks(kShardKinds[3], 50);
  ASSERT_OK(blocks.load(place));
  const auto coarse = blocks.everything();
  ASSERT_EQ(coarse[0], exact[0]) << "a split master is a float32";
  double most = 0, apart = 0;
  for (size_t e = 0; e < exact[1].size(); ++e) {
    most = std::max(most, std::abs(exact[1][e]));
    apart = std::max(apart, std::abs(exact[1][e] - coarse[1][e]));
  }
  EXPECT_GT(apart, 0);
  EXPECT_LT(apart, most / 16);
}

TEST(ShardCheckpoints, AnyReaderReadsThem) {
  const Place place;
  ShardTraining whole(kShardKinds[3], 1);
  whole.steps(0, 3);
  otr_save_options options = save_options();
  const otr_part part{"data", "at 7", 4};
  options.parts = &part;
  options.part_count = 1;
  ASSERT_OK(whole.save(place, "a", &options));
  otr_checkpoint* checkpoint = nullptr;
  ASSERT_OK(otr_checkpoint_open(place.text(), nullptr, &checkpoint));
  EXPECT_OK(otr_checkpoint_verify(checkpoint));
  std::vector<float> read(1000);
  const auto expected = whole.everything();
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_OK(otr_checkpoint_read(checkpoint, "piece.0", kStates[i], 0, 1000, read.data()));
    EXPECT_EQ(Values(read.begin(), read.end()), expected[i]);
  }
  std::string bytes(4, '\0');
  size_t size = bytes.size();
  EXPECT_OK(otr_checkpoint_part(checkpoint, 0, "data", bytes.data(), &size));
  EXPECT_EQ(bytes, "at 7");
  otr_checkpoint_destroy(checkpoint);
}

TEST(ShardCheckpoints, KeepsTheLastOnesOfThem) {
  const Place place;
  ShardTraining whole(kShardKinds[0], 1);
  otr_save_options options = save_options();
  options.keep_last = 2;
  for (int i = 0; i < 4; ++i) {
    whole.steps(i, i + 1);
    ASSERT_OK(whole.save(place, ("t" + std::to_string(i)).c_str(), &options));
  }
  EXPECT_FALSE(fs::exists(place / "t0"));
  EXPECT_FALSE(fs::exists(place / "t1"));
  EXPECT_TRUE(fs::exists(place / "t2"));
  EXPECT_TRUE(fs::exists(place / "t3"));
}

// A part of a parameter is no other one's.
TEST(ShardCheckpoints, NameThePartOfAParameter) {
  const Place place;
  const auto context = make_context();
  const auto optimizer = make_optimizer(context.get(), kShardKinds[0].config);
  otr_shard_options options;
  ASSERT_OK(otr_shard_options_init(&options, sizeof options));
  options.name = "w";
  options.first_element = 512;
  Flat second(context.get(), irrational(100, 1), irrational(100, 2), "float32", "float32",
              &options);
  ASSERT_OK(otr_optimizer_save(optimizer.get(), second.list(), 1, place.text(), "a", nullptr));
  options.first_element = 0;
  Flat first(context.get(), irrational(100, 5), irrational(100, 6), "float32", "float32", &options);
  EXPECT_FAILS(OTR_E_NOT_FOUND,
               otr_optimizer_load(optimizer.get(), first.list(), 1, place.text(), "a", nullptr),
               "\"w\"");
  options.first_element = 512;
  Flat again(context.get(), irrational(100, 5), irrational(100, 6), "float32", "float32", &options);
  ASSERT_OK(otr_optimizer_load(optimizer.get(), again.list(), 1, place.text(), "a", nullptr));
  EXPECT_EQ(again.weights(), second.weights());
}

// ---- What is refused ----------------------------------------------------------------------------

TEST(ShardCheckpoints, AFailedLoadChangesNothing) {
  const Place place;
  ShardTraining whole(kShardKinds[0], 1);
  whole.steps(0, 3);
  ASSERT_OK(whole.save(place, "a"));
  whole.steps(3, 4);
  const auto before = whole.everything();
  const auto after = [&](int64_t at) {  // one byte of the file is another one
    std::fstream file(place / "a/rank-00000.safetensors", std::ios::in | std::ios::out);
    file.seekg(at);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(at);
    file.put(byte);
  };
  const fs::path name = place / "a/rank-00000.safetensors";
  const auto size = static_cast<int64_t>(fs::file_size(name));
  after(size - 1);  // what is read last
  EXPECT_FAILS(OTR_E_CORRUPT, whole.load(place), "rank-00000.safetensors", "piece.2");
  EXPECT_EQ(whole.everything(), before);
  after(size - 1);
  fs::resize_file(place / "a/rank-00000.safetensors", static_cast<uintmax_t>(size - 1));
  EXPECT_FAILS(OTR_E_CORRUPT, whole.load(place), "rank-00000.safetensors");
  EXPECT_EQ(whole.everything(), before);
  EXPECT_FAILS(OTR_E_NOT_FOUND, whole.load(place, "b"), "b");
  // Of another rule.
  ShardTraining sgd(kShardKinds[4], 2);
  sgd.steps(0, 1);
  ASSERT_OK(sgd.save(place, "sgd"));
  EXPECT_FAILS(OTR_E_NOT_FOUND, whole.load(place), "exp_avg_sq of \"piece.0\"", "weights only");
  EXPECT_EQ(whole.everything(), before);
  const auto own = sgd.everything();
  fs::remove_all(place / "a");
  ASSERT_OK(whole.save(place, "a"));
  EXPECT_FAILS(OTR_E_STATE, sgd.load(place), "otr_optimizer_load: lr cannot be set",
               "weights only");
  EXPECT_EQ(sgd.everything(), own);
}

TEST(ShardCheckpoints, WeightsOnlyAndNotAllOfThem) {
  const Place place;
  ShardTraining whole(kShardKinds[0], 1), other(kShardKinds[0], 50);
  whole.steps(0, 3);
  other.steps(0, 1);
  ASSERT_OK(whole.save(place, "a"));
  otr_load_options options = load_options();
  options.weights_only = 1;
  const auto own = other.everything();
  ASSERT_OK(other.load(place, nullptr, &options));
  const auto now = other.everything(), there = whole.everything();
  for (size_t i = 0; i < now.size(); ++i) EXPECT_EQ(now[i], i % 4 == 0 ? there[i] : own[i]) << i;
  // Two of three.
  const auto list = other.shards();
  const auto some = [&](const otr_load_options* o) {
    return otr_optimizer_load(other.optimizer(), list.data(), 2, place.text(), nullptr, o);
  };
  EXPECT_FAILS(OTR_E_NOT_FOUND, some(nullptr), "\"piece.2\"", "strict = 0");
  EXPECT_FAILS(OTR_E_NOT_FOUND, some(&options), "\"piece.2\"");
  options.strict = 0;
  EXPECT_OK(some(&options));
  options.weights_only = 0;
  EXPECT_FAILS(OTR_E_ARGUMENT, some(&options), "strict = 0", "weights_only = 1");
  const char* const pattern = "*";
  options = load_options();
  options.include = &pattern;
  options.include_count = 1;
  EXPECT_FAILS(OTR_E_UNSUPPORTED, some(&options), "include");
}

TEST(ShardCheckpoints, RefuseWhatTheyCannotSave) {
  const Place place;
  const auto context = make_context();
  const auto optimizer = make_optimizer(context.get(), kShardKinds[0].config);
  Flat a(context.get(), irrational(10, 1), irrational(10, 2)),
      b(context.get(), irrational(20, 1), irrational(20, 2));
  const std::vector<otr_shard*> both{a.shard(), b.shard()};
  EXPECT_FAILS(OTR_E_DUPLICATE,
               otr_optimizer_save(optimizer.get(), both.data(), 2, place.text(), "a", nullptr),
               "\"shard\"", "otr_shard_options.name");
  otr_save_options options = save_options();
  options.asynchronous = 1;
  EXPECT_FAILS(OTR_E_UNSUPPORTED,
               otr_optimizer_save(optimizer.get(), a.list(), 1, place.text(), "a", &options),
               "asynchronous");
  EXPECT_FAILS(
      OTR_E_NOT_FOUND,
      otr_optimizer_save(optimizer.get(), a.list(), 1, (place / "none").c_str(), "a", nullptr),
      "none");
  ASSERT_OK(otr_optimizer_save(optimizer.get(), a.list(), 1, place.text(), "a", nullptr));
  EXPECT_FAILS(OTR_E_DUPLICATE,
               otr_optimizer_save(optimizer.get(), a.list(), 1, place.text(), "a", nullptr), "a");
  // Another count under the same name.
  EXPECT_FAILS(OTR_E_SHAPE,
               otr_optimizer_load(optimizer.get(), b.list(), 1, place.text(), "a", nullptr), "20",
               "10");
  // Weights of two formats.
  otr_shard_options named;
  ASSERT_OK(otr_shard_options_init(&named, sizeof named));
  named.name = "half";
  Flat half(context.get(), irrational(10, 1), irrational(10, 2), "bfloat16", "float32", &named);
  const std::vector<otr_shard*> mixed{a.shard(), half.shard()};
  EXPECT_FAILS(OTR_E_UNSUPPORTED,
               otr_optimizer_save(optimizer.get(), mixed.data(), 2, place.text(), "b", nullptr),
               "\"shard\" has its master as float32", "\"half\" as bfloat16");
}

TEST(ShardCheckpoints, ASnapshotOfOthersIsRefused) {
  ShardTraining adam(kShardKinds[0], 1), split(kShardKinds[3], 1);
  const Snapshot empty, moment;
  EXPECT_FAILS(OTR_E_STATE, adam.restore(empty), "empty");
  ASSERT_OK(adam.take(moment));
  EXPECT_FAILS(OTR_E_MISMATCH, split.restore(moment), "otr_optimizer_load");
  otr_snapshot_options options;
  ASSERT_OK(otr_snapshot_options_init(&options, sizeof options));
  options.replicas = 1;
  EXPECT_FAILS(OTR_E_ARGUMENT, adam.take(moment, &options), "replicas");
  const auto context = make_context();
  const auto comm = make_self(context.get());
  Engine engine(comm.get(), kEngine);
  declare_pieces(engine, 9);
  const Snapshot engines;
  ASSERT_OK(otr_engine_snapshot(engine.get(), engines.get(), nullptr));
  EXPECT_FAILS(OTR_E_MISMATCH, adam.restore(engines), "otr_optimizer_restore");
  ASSERT_OK(adam.take(moment));
  otr_snapshot* const given = moment.get();
  EXPECT_FAILS(OTR_E_MISMATCH, otr_engine_restore(engine.get(), &given, 1), "otr_engine_restore");
}

}  // namespace
