// SPDX-License-Identifier: Apache-2.0
// A communicator of the caller's functions: what is asked of them, and what their failures become.
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>

#include "support.h"

namespace {

using namespace otr_test;

// One channel over a group of threads, and what all channels of a rank count.
struct Counts {
  std::atomic<int> alive{0}, calls{0}, stops{0}, fail_at{-1};
  bool destroy_calls_in = false, split_fails = false;
};
struct Channel {
  Owned<otr_comm> comm;
  Counts* counts;
};

int32_t counted(Channel& channel, int32_t status) {
  const int call = channel.counts->calls++;
  return call == channel.counts->fail_at ? 42 : status;
}
int32_t all_gather(void* user, const void* mine, size_t bytes, void* all) {
  auto& channel = *static_cast<Channel*>(user);
  return counted(channel, otr_comm_all_gather(channel.comm.get(), mine, bytes, all));
}
Channel* open(otr_comm* comm, Counts& counts) {
  ++counts.alive;
  return new Channel{Owned<otr_comm>(comm), &counts};
}
int32_t duplicate(void* user, void** out) {
  auto& channel = *static_cast<Channel*>(user);
  otr_comm* made = nullptr;
  const int32_t status = otr_comm_duplicate(channel.comm.get(), &made);
  if (status == OTR_OK) *out = open(made, *channel.counts);
  return counted(channel, status);
}
int32_t split(void* user, const int32_t* groups, const int32_t* places, void** out) {
  auto& channel = *static_cast<Channel*>(user);
  if (channel.counts->split_fails) return 42;
  int32_t rank = -1;
  EXPECT_OK(otr_comm_rank(channel.comm.get(), &rank));
  otr_comm* made = nullptr;
  const int32_t status = otr_comm_split(channel.comm.get(), groups[rank], places[rank], &made);
  if (made != nullptr) *out = open(made, *channel.counts);
  return counted(channel, status);
}
void stop(void* user, const char* reason) {
  ++static_cast<Channel*>(user)->counts->stops;
  otr_comm_abort(static_cast<Channel*>(user)->comm.get(), reason);
}
void give_back(void* user) {
  auto* channel = static_cast<Channel*>(user);
  int32_t rank = -1;
  if (channel->counts->destroy_calls_in) {
    EXPECT_OK(otr_comm_rank(channel->comm.get(), &rank));
  }
  --channel->counts->alive;
  delete channel;
}

int32_t broadcast(void* user_data, void* data, size_t bytes, int32_t root) {
  auto& channel = *static_cast<Channel*>(user_data);
  return counted(channel, otr_comm_broadcast(channel.comm.get(), data, bytes, root));
}

otr_comm_table table_for(otr_comm* base, Counts& counts, bool broadcasts = false) {
  otr_comm_table table;
  EXPECT_OK(otr_comm_table_init(&table, sizeof table));
  EXPECT_OK(otr_comm_rank(base, &table.rank));
  EXPECT_OK(otr_comm_size(base, &table.world_size));
  otr_comm* channel = nullptr;
  EXPECT_OK(otr_comm_duplicate(base, &channel));
  table.user_data = open(channel, counts);
  table.all_gather = all_gather;
  if (broadcasts) table.broadcast = broadcast;
  table.duplicate = duplicate;
  table.split = split;
  table.abort = stop;
  table.destroy = give_back;
  return table;
}

struct Group {
  Group(otr_comm* base, Counts& counts, bool broadcasts = false, bool splits = true)
      : context(make_context(1)) {
    otr_comm_table table = table_for(base, counts, broadcasts);
    if (!splits) table.split = nullptr;
    otr_comm* made = nullptr;
    EXPECT_OK(otr_comm_create_custom(context.get(), &table, &made));
    comm.reset(made);
  }
  Owned<otr_context> context;
  Owned<otr_comm> comm;
};

class Custom : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Custom, testing::ValuesIn(kKinds), name_of);

TEST_P(Custom, TrainsLikeThreads) {
  std::vector<std::vector<Values>> results(2);
  std::mutex mutex;
  for (const bool custom : {false, true}) {
    run_ranks(3, [&](int32_t rank, otr_comm* base) {
      Counts counts;
      {
        std::optional<Group> group;
        if (custom) group.emplace(base, counts);
        Engine engine(custom ? group->comm.get() : base, config_of(GetParam()));
        otr_param_options frozen = param_options();
        frozen.trainable = 0;
        engine.add("a", {1000}, dyadic(1000, 1));
        engine.add("f", {77}, dyadic(77, 2), &frozen);
        engine.add("b", {3, 100}, dyadic(300, 3));
        engine.commit();
        for (int step = 0; step < 3; ++step) {
          const int64_t ids[3] = {0, 1, 2};
          otr_tensor weights[3];
          ASSERT_OK(otr_engine_acquire(engine.get(), ids, 3, nullptr, weights));
          EXPECT_EQ(values_of(weights[1]), dyadic(77, 2));
          const double first = value_at(weights[0], 999);
          EXPECT_EQ(first, engine.read(0, OTR_VALUE_PUBLISHED)[999]);
          ASSERT_OK(otr_engine_release(engine.get(), ids, 3, nullptr));
          engine.pass({{2, dyadic(300, rank)}, {0, dyadic(1000, rank + step)}});
          EXPECT_EQ(engine.step().outcome, OTR_STEP_APPLIED);
        }
        const Tensor given = Tensor::filled({1000}, 0.5);
        EXPECT_OK(otr_engine_parameter_write(engine.get(), 0, OTR_VALUE_MASTER, &given));
        EXPECT_EQ(engine.read(0, OTR_VALUE_PUBLISHED), Values(1000, 0.5));
        const auto all = engine.everything();
        EXPECT_OK(otr_engine_finalize(engine.get()));
        const std::lock_guard lock(mutex);
        results[custom ? 1 : 0] = all;
      }
      EXPECT_EQ(counts.alive, 0) << "every channel was given back";
    });
  }
  EXPECT_EQ(results[0], results[1]);
}

// One to compare what ranks are about to do, one for the data, however many parameters and owners.
TEST(CustomAcquire, IsTwoCallsOfTheCaller) {
  run_ranks(3, [&](int32_t, otr_comm* base) {
    Counts counts;
    Group group(base, counts);
    Engine engine(group.comm.get(),
                  R"({"zero_optimization": {"stage": 3, "reduce_bucket_size": 512}})");
    constexpr int64_t kParameters = 20;
    std::vector<int64_t> ids;
    for (int64_t id = 0; id < kParameters; ++id) {
      engine.add(("p" + std::to_string(id)).c_str(), {500}, dyadic(500, id));
      ids.push_back(id);
    }
    engine.commit();
    std::vector<otr_tensor> out(ids.size());
    for (const size_t count : {size_t{1}, ids.size()}) {
      const int before = counts.calls;
      const auto n = static_cast<int64_t>(count);
      ASSERT_OK(otr_engine_acquire(engine.get(), ids.data(), n, nullptr, out.data()));
      EXPECT_EQ(counts.calls, before + 2);
      for (size_t i = 0; i < count; ++i) {
        EXPECT_EQ(values_of(out[i]), dyadic(500, static_cast<int64_t>(i)));
      }
      ASSERT_OK(otr_engine_release(engine.get(), ids.data(), n, nullptr));
    }
  });
}

// Two of six ranks have it: broadcasts, as to gather from all would pad most of what goes over.
TEST(CustomAcquire, OfFewOwnersIsABroadcastForEach) {
  run_ranks(6, [&](int32_t, otr_comm* base) {
    Counts counts;
    Group group(base, counts, true);
    Engine engine(group.comm.get(), R"({"zero_optimization": {"stage": 3}})");
    engine.add("first", {1024}, Values(1024, 0));
    engine.add("x", {2048}, dyadic(2048, 1));
    engine.add("rest", {4 * 2048}, Values(4 * 2048, 0));
    engine.commit();
    const int64_t id = 1;
    const int before = counts.calls;
    otr_tensor out{};
    ASSERT_OK(otr_engine_acquire(engine.get(), &id, 1, nullptr, &out));
    EXPECT_EQ(counts.calls, before + 3);
    EXPECT_EQ(values_of(out), dyadic(2048, 1));
    ASSERT_OK(otr_engine_release(engine.get(), &id, 1, nullptr));
  });
}

// Where all ranks have the values, neither they nor the model go over the ranks; nor does a write
// of one parameter send the others.
TEST(CustomInitialValues, AreNotSentWhereTheyAreEqual) {
  for (const int32_t stage : {0, 1, 2, 3}) {
    for (const bool differ : {false, true}) {
      run_ranks(3, [&](int32_t rank, otr_comm* base) {
        Counts counts;
        Group group(base, counts);
        Engine engine(group.comm.get(), R"({"zero_optimization": {"stage": )" +
                                            std::to_string(stage) +
                                            R"(, "reduce_bucket_size": 512}})");
        constexpr int64_t kParameters = 40;
        int64_t shape[1] = {500};
        otr_tensor nothing;
        ASSERT_OK(otr_tensor_init(nullptr, "float32", 1, shape, &nothing));
        std::vector<int64_t> ids(kParameters);
        for (int64_t& id : ids) {
          ASSERT_OK(otr_engine_add_parameter(engine.get(), std::to_string(&id - ids.data()).c_str(),
                                             &nothing, nullptr, &id));
        }
        engine.commit();
        Tensor value({500}, dyadic(500, differ ? rank : 0));
        // Memory that nobody may write, such as a file's.
        const size_t bytes = 500 * sizeof(float);
        void* pages =
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ASSERT_NE(pages, MAP_FAILED);
        std::memcpy(pages, value.get().data, bytes);
        ASSERT_EQ(mprotect(pages, bytes, PROT_READ), 0);
        value.get().data = pages;
        const std::vector<otr_tensor> values(kParameters, value.get());
        int before = counts.calls;
        EXPECT_OK(otr_engine_set_initial(engine.get(), ids.data(), kParameters, values.data()));
        if (!differ) {
          EXPECT_LE(counts.calls - before, 4) << "hashes, and all are done: nothing for each of 40";
        }
        before = counts.calls;
        EXPECT_OK(otr_engine_parameter_write(engine.get(), 39, OTR_VALUE_MASTER, &value));
        EXPECT_LE(counts.calls - before, 6) << "one of 40 buckets";
        for (const int64_t id : ids) {
          otr_tensor weight;
          ASSERT_OK(otr_engine_acquire(engine.get(), &id, 1, nullptr, &weight));
          EXPECT_EQ(values_of(weight), dyadic(500, 0)) << id << " on stage " << stage;
          ASSERT_OK(otr_engine_release(engine.get(), &id, 1, nullptr));
          EXPECT_EQ(engine.read(id), dyadic(500, 0));
        }
        munmap(pages, bytes);
        EXPECT_OK(otr_engine_finalize(engine.get()));
      });
    }
  }
}

// A write of one weight shows what ranks wrote into their own parts of others, as the header says.
TEST(CustomLocalWrites, AreSeenFromTheNextWriteOn) {
  run_ranks(2, [&](int32_t, otr_comm* base) {
    Counts counts;
    Group group(base, counts);
    Engine engine(group.comm.get(), R"({"zero_optimization": {"stage": 1}})");
    engine.add("a", {1000}, Values(1000, 1));
    engine.add("b", {2}, {1, 1});
    engine.commit();
    int64_t first = 0, count = 0;
    ASSERT_OK(otr_engine_local_range(engine.get(), 0, &first, &count));
    const Tensor mine = Tensor::filled({count}, 5);
    EXPECT_OK(otr_engine_local_write(engine.get(), 0, OTR_VALUE_MASTER, &mine));
    const Tensor b = Tensor::filled({2}, 3);
    EXPECT_OK(otr_engine_parameter_write(engine.get(), 1, OTR_VALUE_MASTER, &b));
    const int64_t id = 0;
    otr_tensor weight;
    ASSERT_OK(otr_engine_acquire(engine.get(), &id, 1, nullptr, &weight));
    EXPECT_EQ(values_of(weight), Values(1000, 5));
    EXPECT_OK(otr_engine_finalize(engine.get()));
  });
}

// With an optimizer of the host the step moves what ranks wrote, whether it is waited for or begun.
TEST(CustomHostOptimizer, OthersSeeWhatARankHasWritten) {
  for (const bool begun : {false, true}) {
    run_ranks(3, [&](int32_t rank, otr_comm* base) {
      Counts counts;
      Group group(base, counts);
      Engine engine(group.comm.get(), R"({"optimizer": {"type": "Host"},
          "zero_optimization": {"stage": 1, "reduce_bucket_size": 512}})");
      engine.add("a", {1536}, Values(1536, 1));
      engine.add("b", {1536}, Values(1536, 1));
      engine.commit();
      engine.pass({{0, Values(1536, 2)}, {1, Values(1536, 3)}});
      EXPECT_OK(otr_engine_reduce(engine.get(), nullptr));
      for (int64_t id = 0; id < 2; ++id) {
        int64_t first = 0, count = 0;
        ASSERT_OK(otr_engine_local_range(engine.get(), id, &first, &count));
        const Tensor mine = Tensor::filled({count}, static_cast<double>(10 * id + rank));
        EXPECT_OK(otr_engine_local_write(engine.get(), id, OTR_VALUE_MASTER, &mine));
      }
      if (begun) {
        EXPECT_OK(otr_engine_step_begin(engine.get()));
      } else {
        EXPECT_EQ(engine.step().outcome, OTR_STEP_APPLIED);
      }
      const int64_t ids[2] = {0, 1};
      otr_tensor weights[2];
      ASSERT_OK(otr_engine_acquire(engine.get(), ids, 2, nullptr, weights));
      for (int64_t id = 0; id < 2; ++id) {
        for (const int64_t owner : {0, 1, 2}) {
          const double shown = value_at(weights[id], owner * 512 + 511);
          EXPECT_EQ(shown, static_cast<double>(10 * id + owner));
        }
      }
      if (begun) {
        EXPECT_EQ(engine.report().outcome, OTR_STEP_APPLIED);
      }
    });
  }
}

TEST(CustomMemory, FollowsTheStageWithoutSharedMemory) {
  run_ranks(2, [](int32_t, otr_comm* base) {
    for (const int32_t stage : {2, 3}) {
      Counts counts;
      Group group(base, counts);
      Engine engine(group.comm.get(),
                    R"({"zero_optimization": {"stage": )" + std::to_string(stage) + "}}");
      engine.add("w", {1 << 16}, Values(1 << 16, 1));
      engine.commit();
      size_t count = 64;
      otr_memory_entry entries[64] = {};
      entries[0].struct_size = sizeof entries[0];
      ASSERT_OK(otr_engine_memory(engine.get(), entries, &count));
      EXPECT_EQ(entries[0].resident_bytes, (1 << 18) / (stage == 3 ? 2 : 1)) << entries[0].purpose;
      otr_estimate_options options;
      ASSERT_OK(otr_estimate_options_init(&options, sizeof options));
      options.world_size = 2;
      options.separate_memory = 1;
      otr_memory_entry estimated[64] = {};
      estimated[0].struct_size = sizeof estimated[0];
      ASSERT_OK(otr_engine_estimate(engine.get(), &options, estimated, &count));
      for (size_t i = 0; i < count; ++i) {
        EXPECT_EQ(estimated[i].resident_bytes, entries[i].resident_bytes) << entries[i].purpose;
      }
      otr_tensor whole;
      const int64_t id = 0;
      ASSERT_OK(otr_engine_acquire(engine.get(), &id, 1, nullptr, &whole));
      EXPECT_EQ(value_at(whole, (1 << 16) - 1), 1);
      ASSERT_OK(otr_engine_release(engine.get(), &id, 1, nullptr));
      EXPECT_OK(otr_engine_finalize(engine.get()));
    }
  });
}

TEST(CustomFailure, OfAFunctionIsNamedAndEndsTheGroup) {
  run_ranks(2, [](int32_t, otr_comm* base) {
    Counts counts;
    Group group(base, counts);
    Engine engine(group.comm.get(), R"({"zero_optimization": {"stage": 1}})");
    engine.add("w", {100}, Values(100, 1));
    engine.commit();
    engine.pass({{0, Values(100, 1)}});
    counts.fail_at = counts.calls.load();
    EXPECT_FAILS(OTR_E_HOST, otr_engine_step(engine.get(), nullptr), "all_gather", "42");
    EXPECT_FAILS(OTR_E_POISONED, otr_engine_step(engine.get(), nullptr), "42");
  });
}

// The callbacks of a destroy may call in; what failed before is still to be told.
TEST(CustomFailure, ADestroyLeavesTheErrorTextAlone) {
  run_ranks(1, [](int32_t, otr_comm* base) {
    Counts counts;
    Group group(base, counts);
    Engine engine(group.comm.get(), R"({"zero_optimization": {"stage": 1}})");
    engine.add("w", {100}, Values(100, 1));
    engine.commit();
    counts.destroy_calls_in = true;
    const int32_t failed = otr_engine_set_boundary(engine.get(), 9);
    const std::string before = otr_last_error_message();
    engine.reset();
    group.comm.reset();
    EXPECT_EQ(otr_last_error_message(), before);
    EXPECT_FAILS(OTR_E_ARGUMENT, failed, "9");
  });
}

TEST(CustomFailure, AMismatchIsFoundBeforeDataMoves) {
  run_ranks(2, [](int32_t rank, otr_comm* base) {
    Counts counts;
    Group group(base, counts);
    double value = 1;
    uint64_t word = 0;
    const int32_t status = rank == 0 ? otr_comm_all_reduce_sum(group.comm.get(), &value, 1)
                                     : otr_comm_broadcast(group.comm.get(), &word, 8, 0);
    EXPECT_FAILS(OTR_E_MISMATCH, status, "rank 0", "rank 1", "broadcast");
    EXPECT_FAILS(OTR_E_MISMATCH, otr_comm_barrier(group.comm.get()), "broadcast");
  });
}

TEST(CustomTable, IsChecked) {
  const auto context = make_context(1);
  const auto self = make_self(context.get());
  Counts counts;
  otr_comm* made = nullptr;
  const auto attempt = [&](auto&& change) {
    otr_comm_table table = table_for(self.get(), counts);
    void* const user_data = table.user_data;
    change(table);
    const int32_t status = otr_comm_create_custom(context.get(), &table, &made);
    EXPECT_EQ(made, nullptr);
    give_back(user_data);
    return status;
  };
  EXPECT_FAILS(OTR_E_ARGUMENT, attempt([](otr_comm_table& t) { t.rank = 1; }), "rank 1");
  EXPECT_FAILS(OTR_E_ARGUMENT, attempt([](otr_comm_table& t) { t.world_size = 0; }),
               "world_size 0");
  EXPECT_FAILS(OTR_E_ARGUMENT, attempt([](otr_comm_table& t) { t.all_gather = nullptr; }),
               "all_gather");
  EXPECT_FAILS(OTR_E_ARGUMENT, attempt([](otr_comm_table& t) { t.duplicate = nullptr; }),
               "duplicate");
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_comm_create_custom(context.get(), nullptr, &made), "table");
  EXPECT_EQ(counts.alive, 0);
}

// ---- Duplicates and smaller groups
// ----------------------------------------------------------------

class Split : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(CustomOrNot, Split, testing::Bool());

TEST_P(Split, TrainsInGroupsOfItsOwn) {
  run_ranks(4, [](int32_t rank, otr_comm* base) {
    Counts counts;
    std::optional<Group> group;
    if (GetParam()) group.emplace(base, counts);
    otr_comm* const comm = GetParam() ? group->comm.get() : base;
    otr_comm* made = nullptr;
    ASSERT_OK(otr_comm_split(comm, rank % 2, -rank, &made));
    Owned<otr_comm> part(made);
    int32_t place = -1, size = 0;
    EXPECT_OK(otr_comm_rank(part.get(), &place));
    EXPECT_OK(otr_comm_size(part.get(), &size));
    EXPECT_EQ(size, 2);
    EXPECT_EQ(place, rank < 2 ? 1 : 0);
    Engine engine(part.get(), R"({"zero_optimization": {"stage": 2}, "gradient_clipping": 0})");
    engine.add("w", {4}, Values(4, 1));
    engine.commit();
    engine.pass({{0, Values(4, rank)}});
    EXPECT_EQ(engine.step().grad_norm, 2 * (rank % 2 + 1)) << "the mean of its own two ranks";
    engine.reset();
    ASSERT_OK(otr_comm_split(comm, rank == 0 ? -1 : 0, 0, &made));
    part.reset(made);
    EXPECT_EQ(made == nullptr, rank == 0);
    EXPECT_FAILS(OTR_E_ARGUMENT, otr_comm_split(comm, -2, 0, &made), "-2");
    ASSERT_OK(otr_comm_duplicate(comm, &made));
    part.reset(made);
    EXPECT_OK(otr_comm_barrier(part.get()));
    part.reset();
    group.reset();
    EXPECT_EQ(counts.alive, 0) << "every channel was given back";
  });
}

// A channel's abort need not reach others: each in which a call of the host may wait is aborted.
TEST(AbortOfAnEngine, EndsEveryChannelThatItsCallsWaitIn) {
  for (const char* states : {"group", "all"}) {
    run_ranks(4, [&](int32_t rank, otr_comm* base) {
      Counts counts;
      Group group(base, counts);
      Engine engine(group.comm.get(), R"({"outrigger": {"mesh": {"shard": 2, "states": ")" +
                                          std::string(states) +
                                          R"("}}, "zero_optimization": {"stage": 3}})");
      engine.add("w", {3000}, Values(3000, 1));
      engine.commit();
      EXPECT_OK(otr_comm_barrier(base));
      if (rank == 0) {
        EXPECT_OK(otr_engine_abort(engine.get(), "enough"));
        // Its calls; with "all", gathers of parameters, and between replicas: of all ranks, of the
        // group, across groups each.
        EXPECT_EQ(counts.stops, states[0] == 'g' ? 3 : 9) << states;
      }
    });
  }
}

TEST(SplitOfACustomGroup, IsRefusedByAllWhereOneCannot) {
  run_ranks(3, [](int32_t rank, otr_comm* base) {
    Counts counts;
    Group group(base, counts, false, rank != 1);
    otr_comm* made = nullptr;
    EXPECT_FAILS(OTR_E_UNSUPPORTED, otr_comm_split(group.comm.get(), 0, 0, &made), "rank 1",
                 "split");
    EXPECT_OK(otr_comm_barrier(group.comm.get()));
  });
}

TEST(SplitOfACustomGroup, ThatFailsEndsTheGroup) {
  run_ranks(1, [](int32_t, otr_comm* base) {
    Counts counts;
    Group group(base, counts);
    counts.split_fails = true;
    otr_comm* made = nullptr;
    EXPECT_FAILS(OTR_E_HOST, otr_comm_split(group.comm.get(), 0, 0, &made), "split", "42");
    EXPECT_FAILS(OTR_E_HOST, otr_comm_barrier(group.comm.get()), "split");
  });
}

}  // namespace
