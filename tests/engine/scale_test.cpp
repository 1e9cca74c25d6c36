// SPDX-License-Identifier: Apache-2.0
// Worlds that no machine of ours has: planned without memory, and what a rank tells the others
// counted where it can be run.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <numeric>
#include <thread>

#include "core/comm/forwarding.h"
#include "core/engine/engine.h"
#include "core/engine/pass.h"
#include "kernels/kernels.h"

namespace outrigger::engine {
namespace {

using layout::Layout;
using layout::Model;

void add(Model& model, const std::string& name, std::vector<int64_t> shape) {
  layout::Parameter p;
  p.name = name;
  p.count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  p.shape = std::move(shape);
  model.add(p, "default", -1);
}

// 6.74e9 parameters: 32 layers of width 4096, in 291 tensors.
Model seven_billion() {
  Model model;
  add(model, "embed", {32000, 4096});
  for (int layer = 0; layer < 32; ++layer) {
    const std::string at = std::to_string(layer) + ".";
    for (const char* name : {"q", "k", "v", "o"}) add(model, at + name, {4096, 4096});
    for (const char* name : {"gate", "up", "down"}) add(model, at + name, {11008, 4096});
    for (const char* name : {"norm1", "norm2"}) add(model, at + name, {4096});
  }
  add(model, "norm", {4096});
  add(model, "head", {32000, 4096});
  return model;
}

config::EngineConfig config_for(int32_t world, const std::string& more = "") {
  return config::parse_engine(
      R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 3)" + more + "}}", world);
}

TEST(Scale, LayoutsOfManyRanksOwnEveryElementOnce) {
  const Model model = seven_billion();
  for (const int32_t world : {1024, 65536}) {
    const Layout layout(model, world, bucket_elements(model, config_for(world), world));
    int64_t padding = layout.trainable_elements();
    for (int64_t id = 0; id < model.size(); ++id) {
      int64_t next = 0;
      for (const auto& [rank, piece] : layout.owners(model, id)) {
        ASSERT_EQ(piece.first, next);
        ASSERT_EQ(piece.first % kernels::kLeaf, 0);
        next += piece.count;
        ASSERT_EQ(layout.piece(model, id, rank)->first, piece.first);
      }
      ASSERT_EQ(next, model.at(id).count) << model.at(id).name;
      padding -= next;
    }
    EXPECT_LT(padding, layout.trainable_elements() / (world == 1024 ? 100 : 4)) << world;
    // A rank knows its own pieces only: at most one of each tensor.
    for (const int32_t rank : {0, world / 2, world - 1}) {
      EXPECT_LE(layout.pieces_of_rank(model, rank).size(), 300U);
    }
  }
}

TEST(Scale, BucketsThatNobodySizedGrowWithTheRanks) {
  const Model model = seven_billion();
  const auto elements = [&](int32_t world, const char* more = "") {
    return bucket_elements(model, config_for(world, more), world);
  };
  constexpr int64_t kDefault = 8388608;
  EXPECT_EQ(elements(1), kDefault);
  EXPECT_EQ(elements(256), kDefault);
  EXPECT_EQ(elements(1024), 1024 * 32768);
  EXPECT_EQ(elements(65536) % kernels::kLeaf, 0);
  EXPECT_GT(elements(65536), 400'000'000) << "a sixteenth of the model";
  EXPECT_LT(elements(65536), 430'000'000);
  EXPECT_EQ(elements(1024, R"(, "reduce_bucket_size": 8388608)"), kDefault);
  Model small;
  add(small, "w", {1000});
  EXPECT_EQ(bucket_elements(small, config_for(65536), 65536), kDefault);
}

TEST(Scale, PlansOfManyRanksShareOutTheStates) {
  const Model model = seven_billion();
  const config::EngineConfig config = config_for(1024);
  const Layout layout(model, 1024, bucket_elements(model, config, 1024));
  int64_t master = 0, published = 0;
  for (int32_t rank = 0; rank < 1024; ++rank) {
    const Plan plan(model, layout, config, {{comm::Levels::hosts, 128, 1024, rank, false}, false});
    master += plan.sides.front().master;
    published += plan.published;
    // Of 94 GB in all; most of it is the ring, whose buckets are as large as the embedding.
    ASSERT_LT(plan.host_bytes() - plan.sides.front().ring, 400 << 20);
  }
  EXPECT_EQ(master, layout.trainable_elements() * 4);
  EXPECT_EQ(published, layout.trainable_elements() * 2);
}

// Parameters over the 8 ranks of a host, states over all.
TEST(Scale, PlansOfManyHostsHaveTheParametersOnEach) {
  const Model model = seven_billion();
  const config::EngineConfig config = config_for(1024);
  const Layout layout(model, 1024, bucket_elements(model, config, 1024));
  int64_t master = 0, published = 0;
  std::vector<bool> slices(1024, false);
  for (int32_t rank = 0; rank < 1024; ++rank) {
    comm::Shape shape = comm::mesh_shape(rank, 1024, 8, true);
    shape.shares_memory = false;
    ASSERT_FALSE(slices[static_cast<size_t>(shape.slice)]) << rank;
    slices[static_cast<size_t>(shape.slice)] = true;
    const Plan plan(model, layout, config, {shape, false});
    master += plan.sides.front().master;
    published += plan.published;
  }
  EXPECT_EQ(master, layout.trainable_elements() * 4);
  EXPECT_EQ(published, layout.trainable_elements() * 2 * 128);
}

// ---- What ranks tell each other ---------------------------------------------------------------

struct Told {
  std::map<std::string, std::pair<int64_t, int64_t>> by_label;  // calls, bytes of a value
};

// Counts what this rank gives to operations whose cost could grow with the world.
class Counting final : public comm::Forwarding {
 public:
  Counting(std::unique_ptr<comm::Communicator> comm, std::shared_ptr<Told> told)
      : Forwarding(std::move(comm)), told_(std::move(told)) {}
  std::unique_ptr<comm::Communicator> duplicate(std::string_view name) override {
    return std::make_unique<Counting>(inner().duplicate(name), told_);
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                  std::string_view label) override {
    note(label, all.size());
    inner().all_gather(mine, all, label);
  }
  void broadcast(std::span<std::byte> data, int32_t root, std::string_view label) override {
    note(label, data.size());
    inner().broadcast(data, root, label);
  }
  void combine(std::span<std::byte> value, const comm::Merge& merge,
               std::string_view label) override {
    note(label, value.size());
    inner().combine(value, merge, label);
  }

 private:
  void note(std::string_view label, size_t bytes) {
    static std::mutex mutex;  // a rank has a thread beside its own
    const std::lock_guard lock(mutex);
    auto& [calls, all] = told_->by_label[std::string(label)];
    ++calls;
    all += static_cast<int64_t>(bytes);
  }
  const std::shared_ptr<Told> told_;
};

// In three steps after commit, by rank 0.
std::map<std::string, std::pair<int64_t, int64_t>> told_in_steps(int32_t world, int64_t parameters,
                                                                 const char* order) {
  auto groups = comm::make_threads(world, {.timeout = 60});
  const auto told = std::make_shared<Told>();
  const std::string config =
      R"({"zero_optimization": {"stage": 2, "reduce_bucket_size": 100000},
          "outrigger": {"reduction_order": ")" +
      std::string(order) + R"("}})";
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      std::shared_ptr<comm::Communicator> own = std::move(groups[static_cast<size_t>(rank)]);
      const auto count = rank == 0 ? told : std::make_shared<Told>();
      own = std::make_shared<Counting>(own->duplicate("counted"), count);
      otr_context_options options{};
      options.log_level = OTR_LOG_WARNING;
      options.workers = 1;
      const auto engine = std::make_shared<Engine>(std::make_shared<Context>(options), own, config);
      own.reset();
      std::vector<float> values(10, 1);
      const std::vector<int64_t> shape{10};
      const otr_tensor t =
          tensor::make(values.data(), kernels::Format::float32, shape, tensor::kHost);
      for (int64_t id = 0; id < parameters; ++id) {
        engine->add_parameter("p" + std::to_string(id), t, {});
      }
      engine->commit();
      count->by_label.clear();
      for (int step = 0; step < 3; ++step) {
        const auto pass = engine->begin_pass(nullptr, 0, {}, false, 0);
        for (int64_t id = parameters; id-- > 0;) pass->add_grad(id, t, {}, 0);
        pass->end();
        otr_step_report report{};
        engine->step(report, true);
        EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
      }
      engine->finalize();
    });
  }
  for (auto& thread : threads) thread.join();
  return told->by_label;
}

TEST(Scale, WhatARankTellsInAStepDoesNotGrowWithTheWorld) {
  for (const char* order : {"boundary", "micro_step"}) {
    const auto few = told_in_steps(2, 100, order);
    EXPECT_EQ(told_in_steps(8, 100, order), few) << order;
    // With the parameters it grows by a bit for each, in what names them.
    int64_t grown = 0, calls = 0;
    for (const auto& [label, cost] : told_in_steps(2, 1060, order)) {
      grown += cost.second - few.at(label).second;
      calls += cost.first;
      EXPECT_EQ(cost.first, few.at(label).first) << label;
    }
    EXPECT_GT(calls, 0);
    const int64_t maps = order[0] == 'b' ? 1 : 2;  // of a step; and of a pass's end
    EXPECT_EQ(grown, 3 * maps * 960 / 8) << order;
  }
}

}  // namespace
}  // namespace outrigger::engine
