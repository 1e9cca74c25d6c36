// SPDX-License-Identifier: Apache-2.0
// First values after commit: what each rank keeps of them, where ranks differ, what is refused.
#include <cmath>
#include <cstring>

#include "support.h"

namespace {

using namespace otr_test;

struct Declared {
  Shape shape;
  bool trainable = true;
  int64_t alias_of = -1;
};
const std::vector<Declared> kModel = {{{37, 21}},       {{2}},    {{0, 3}},           {{}},
                                      {{7, 11}, false}, {{1000}}, {{37, 21}, true, 0}};

int64_t add_nothing(const Engine& engine, const std::string& name, const Declared& d,
                    int64_t held_bytes = 0) {
  otr_param_options options = param_options();
  options.trainable = d.trainable ? 1 : 0;
  options.alias_of = d.alias_of;
  options.held_bytes = held_bytes;
  Shape shape = d.shape;
  otr_tensor nothing;
  EXPECT_OK(otr_tensor_init(nullptr, "float32", static_cast<int32_t>(shape.size()), shape.data(),
                            &nothing));
  int64_t id = -1;
  EXPECT_OK(otr_engine_add_parameter(engine.get(), name.c_str(), &nothing, &options, &id));
  return id;
}

int32_t set(const Engine& engine, int64_t id, const Tensor& value) {
  return otr_engine_set_initial(engine.get(), &id, 1, &value);
}

// Not exact in 16 bits.
Values thirds(int64_t count, int64_t seed) {
  Values values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<double>(static_cast<float>(3 * i + 1 - 40 * 3 * seed) / 3));
  }
  return values;
}

Values rounded(const char* dtype, Values values) {
  for (double& v : values) v = static_cast<double>(round_to(dtype, v));
  return values;
}

// What this rank shows, without asking another where it has a copy.
Values acquired(const Engine& engine, int64_t id) {
  otr_tensor weight;
  EXPECT_OK(otr_engine_acquire(engine.get(), &id, 1, nullptr, &weight));
  Values values = values_of(weight);
  EXPECT_OK(otr_engine_release(engine.get(), &id, 1, nullptr));
  return values;
}

class InitialValues : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, InitialValues, testing::ValuesIn(kKinds), name_of);

std::string shared(bool share) {
  return std::string(R"("share_parameters": )") + (share ? "true" : "false");
}

// As if the values had been given at declaration: master, published on every rank, next steps.
// Ranks give the same values, or others, of which rank 0's win.
TEST_P(InitialValues, AreThoseOfADeclarationWithThem) {
  for (int32_t world = 1; world <= 3; ++world) {
    for (const bool share : {true, false}) {
      for (const bool differ : {false, true}) {
        SCOPED_TRACE(testing::Message() << world << " ranks, " << shared(share) << differ);
        run_ranks(world, [&](int32_t rank, otr_comm* comm) {
          const std::string config = config_of(GetParam(), 1, "", shared(share));
          Engine given(comm, config), later(comm, config);
          std::vector<int64_t> ids;
          std::vector<Tensor> values;
          std::vector<otr_tensor> tensors;
          for (size_t i = 0; i < kModel.size(); ++i) {
            const Declared& d = kModel[i];
            const std::string name = "p" + std::to_string(i);
            otr_param_options options = param_options();
            options.trainable = d.trainable ? 1 : 0;
            options.alias_of = d.alias_of;
            given.add(name.c_str(), d.shape, thirds(count_of(d.shape), static_cast<int64_t>(i)),
                      &options);
            add_nothing(later, name, d);
            if (d.alias_of >= 0) continue;
            Values mine = thirds(count_of(d.shape), static_cast<int64_t>(i));
            if (differ && rank > 0 && i % 2 == 0 && !mine.empty()) mine.back() += rank;
            ids.push_back(static_cast<int64_t>(i));
            values.emplace_back(d.shape, mine);
          }
          for (const Tensor& t : values) tensors.push_back(t.get());
          given.commit();
          later.commit();
          const auto half = static_cast<int64_t>(ids.size() / 2);
          const auto rest = static_cast<int64_t>(ids.size()) - half;
          EXPECT_OK(
              otr_engine_set_initial(later.get(), ids.data() + half, rest, tensors.data() + half));
          EXPECT_OK(otr_engine_set_initial(later.get(), ids.data(), half, tensors.data()));
          for (size_t i = 0; i < kModel.size(); ++i) {
            const auto id = static_cast<int64_t>(i);
            EXPECT_EQ(acquired(later, id), acquired(given, id)) << "p" << i << " of rank " << rank;
            EXPECT_EQ(acquired(later, id),
                      rounded(compute_dtype(GetParam()),
                              thirds(count_of(kModel[i].shape), kModel[i].alias_of < 0 ? id : 0)));
          }
          EXPECT_EQ(later.everything(), given.everything());
          for (const Engine* engine : {&given, &later}) {
            engine->pass({{0, dyadic(777, rank)}, {5, dyadic(1000, 1)}});
            engine->step();
          }
          EXPECT_EQ(later.everything(), given.everything());
          EXPECT_OK(otr_engine_finalize(given.get()));
          EXPECT_OK(otr_engine_finalize(later.get()));
        });
        ASSERT_FALSE(testing::Test::HasFailure());
      }
    }
  }
}

// Larger than what is on its way at a time, with strides, in another dtype on each rank.
TEST_P(InitialValues, OfAnyDtypeStridesAndSize) {
  const Shape shape{3, 100000};
  Values values(300000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 251) / 8 - 15;
  const char* const dtypes[3] = {"float64", "float16", "bfloat16"};
  for (int32_t world = 1; world <= 3; ++world) {
    for (const bool differ : {false, true}) {
      run_ranks(world, [&](int32_t rank, otr_comm* comm) {
        Engine engine(comm, config_of(GetParam(), 1, "", shared(world != 2)));
        add_nothing(engine, "w", {shape});
        add_nothing(engine, "v", {{300000}});
        engine.commit();
        Values mine = values;
        if (differ && rank == world - 1 && rank > 0) mine[299999] = 7;
        const Tensor transposed(shape, mine, dtypes[rank], {1, 3});
        const Tensor spread({300000}, mine, dtypes[rank], {2});
        EXPECT_OK(set(engine, 0, transposed));
        EXPECT_OK(set(engine, 1, spread));
        for (const int64_t id : {0, 1}) {
          EXPECT_EQ(acquired(engine, id), values) << world << " ranks, id " << id;
          EXPECT_EQ(engine.read(id), values);
        }
        EXPECT_OK(otr_engine_finalize(engine.get()));
      });
      ASSERT_FALSE(testing::Test::HasFailure());
    }
  }
}

TEST_P(InitialValues, CanBeSetAgainAndAreSeenWhereAcquired) {
  run_ranks(2, [&](int32_t, otr_comm* comm) {
    for (const bool share : {true, false}) {
      Engine engine(comm, config_of(GetParam(), 1, "", shared(share)));
      add_nothing(engine, "w", {{600}});
      engine.commit();
      EXPECT_EQ(engine.read(0), Values(600, 0)) << "0 until then";
      const int64_t id = 0;
      otr_tensor held, wide;
      otr_call_info info;
      ASSERT_OK(otr_call_info_init(&info, sizeof info));
      info.flags = OTR_ACQUIRE_FLOAT32;
      ASSERT_OK(otr_engine_acquire(engine.get(), &id, 1, nullptr, &held));
      ASSERT_OK(otr_engine_acquire(engine.get(), &id, 1, &info, &wide));
      for (const double v : {0.5, -2.0}) {
        EXPECT_OK(set(engine, 0, Tensor::filled({600}, v)));
        EXPECT_EQ(values_of(held), Values(600, v));
        EXPECT_EQ(values_of(wide), Values(600, v));
        EXPECT_OK(otr_comm_barrier(comm));
      }
    }
  });
}

TEST_P(InitialValues, AreVerifiedWhereThatIsWanted) {
  run_ranks(3, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_of(GetParam(), 1, "", R"("initial_values": "verify")"));
    add_nothing(engine, "a", {{2}});
    add_nothing(engine, "w", {{300}});
    engine.commit();
    EXPECT_OK(set(engine, 1, Tensor::filled({300}, 0.5, rank == 1 ? "bfloat16" : "float32")));
    const int64_t ids[2] = {0, 1};
    const Tensor a = Tensor::filled({2}, 1), w = Tensor::filled({300}, rank == 2 ? 3 : 2);
    const otr_tensor values[2] = {a.get(), w.get()};
    EXPECT_FAILS(OTR_E_MISMATCH, otr_engine_set_initial(engine.get(), ids, 2, values), "\"w\"",
                 "rank 0", "rank 2");
    EXPECT_FAILS(OTR_E_POISONED, set(engine, 0, a), "Destroy");
  });
}

TEST_P(InitialValues, OfOtherParametersOnAnotherRank) {
  for (const int64_t count : {1, 2}) {
    run_ranks(2, [&](int32_t rank, otr_comm* comm) {
      Engine engine(comm, config_of(GetParam()));
      add_nothing(engine, "a", {{2}});
      add_nothing(engine, "b", {{2}});
      engine.commit();
      const int64_t ids[2] = {rank, 1 - rank};
      const Tensor t = Tensor::filled({2}, 1);
      const otr_tensor values[2] = {t.get(), t.get()};
      EXPECT_FAILS(OTR_E_MISMATCH,
                   otr_engine_set_initial(engine.get(), ids, rank == 0 ? 2 : count, values),
                   "rank 0 gives 2", "rank 1 gives " + std::to_string(count));
    });
  }
}

TEST_P(InitialValues, WrongUseIsNamedAndChangesNothing) {
  Solo solo(config_of(GetParam()));
  const Tensor two = Tensor::filled({2}, 5), three = Tensor::filled({3}, 5);
  add_nothing(solo.engine, "w", {{2}});
  EXPECT_FAILS(OTR_E_STATE, set(solo.engine, 0, two), "otr_engine_commit");
  solo.engine.commit();
  EXPECT_FAILS(OTR_E_NOT_FOUND, set(solo.engine, 4, two), "4");
  EXPECT_FAILS(OTR_E_SHAPE, set(solo.engine, 0, three), "[3]", "[2]", "\"w\"");
  Tensor wrong = Tensor::filled({2}, 5);
  wrong.get().dtype.code = OTR_DTYPE_INT;
  EXPECT_FAILS(OTR_E_DTYPE, set(solo.engine, 0, wrong), "\"w\"");
  wrong = Tensor::filled({2}, 5);
  wrong.get().data = nullptr;
  EXPECT_FAILS(OTR_E_ARGUMENT, set(solo.engine, 0, wrong), "\"w\"", "NULL");
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_engine_set_initial(solo.engine.get(), nullptr, -1, nullptr),
               "-1");
  EXPECT_OK(otr_engine_set_initial(solo.engine.get(), nullptr, 0, nullptr));
  EXPECT_EQ(solo.engine.read(0), (Values{0, 0}));
  EXPECT_OK(set(solo.engine, 0, two));
  solo.engine.pass({{0, {0, 0}}});
  EXPECT_FAILS(OTR_E_STATE, set(solo.engine, 0, two), "otr_engine_parameter_write");
  solo.engine.step();
  EXPECT_FAILS(OTR_E_STATE, set(solo.engine, 0, two), "otr_engine_parameter_write");
  EXPECT_OK(otr_engine_check(solo.engine.get()));
}

// ---- Formats ----

constexpr const char* kMasters[] = {"float32", "split", "bfloat16"};

// A master that holds a float32 begins with the one given, or with its rounded value.
TEST(InitialRounding, FollowsTheConfiguration) {
  for (const char* master : kMasters) {
    for (const bool round : {false, true}) {
      for (const bool share : {true, false}) {
        const std::string config =
            R"({"zero_optimization": {"stage": 2}, "bf16": {"enabled": true},
                "outrigger": {"states": {"master": {"format": ")" +
            std::string(master) + R"("}}, "round_initial_values": )" +
            (round ? "true, " : "false, ") + shared(share) + "}}";
        SCOPED_TRACE(config);
        run_ranks(2, [&](int32_t, otr_comm* comm) {
          const Values values = thirds(2000, 3);
          Engine given(comm, config), later(comm, config);
          given.add("w", {2000}, values);
          add_nothing(later, "w", {{2000}});
          given.commit();
          later.commit();
          EXPECT_OK(set(later, 0, Tensor({2000}, values)));
          const Values low = rounded("bfloat16", values);
          const bool exact = !round && std::strcmp(master, "bfloat16") != 0;
          for (const Engine* engine : {&given, &later}) {
            EXPECT_EQ(engine->read(0), exact ? values : low);
            EXPECT_EQ(acquired(*engine, 0), low);
          }
        });
      }
    }
  }
}

// A tie: the half of a split master that is published rounds it away from zero, on every rank.
TEST(InitialRounding, OfASplitMasterIsTheSameOnEveryCopy) {
  const std::string config = R"({"zero_optimization": {"stage": 1}, "bf16": {"enabled": true},
      "outrigger": {"share_parameters": false, "states": {"master": {"format": "split"}}}})";
  run_ranks(2, [&](int32_t, otr_comm* comm) {
    Engine engine(comm, config);
    add_nothing(engine, "w", {{1024}});
    engine.commit();
    const Values ties(1024, 1.00390625);  // half of bfloat16's unit at 1 above it
    EXPECT_OK(set(engine, 0, Tensor({1024}, ties)));
    EXPECT_EQ(acquired(engine, 0), Values(1024, 1.0078125));
    EXPECT_EQ(engine.read(0), ties);
    const Tensor again({1024}, Values(1024, -1.00390625));
    EXPECT_OK(otr_engine_parameter_write(engine.get(), 0, OTR_VALUE_MASTER, &again));
    EXPECT_EQ(acquired(engine, 0), Values(1024, -1.0078125));
  });
}

// ---- Memory ----

otr_memory_entry entry(const Engine& engine, const char* purpose) {
  otr_memory_entry entries[64] = {};
  size_t count = 64;
  entries[0].struct_size = sizeof entries[0];
  EXPECT_OK(otr_engine_memory(engine.get(), entries, &count));
  for (size_t i = 0; i < count; ++i) {
    if (std::strcmp(entries[i].purpose, purpose) == 0) return entries[i];
  }
  ADD_FAILURE() << purpose;
  return {};
}

TEST(HeldValues, AreInTheLedgerUntilTheyAreTaken) {
  for (const bool write : {false, true}) {
    Solo solo(R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 1}})");
    add_nothing(solo.engine, "a", {{1000}}, 4000);
    add_nothing(solo.engine, "b", {{500}}, 1000);
    EXPECT_EQ(entry(solo.engine, "initial values").resident_bytes, 5000);
    EXPECT_EQ(entry(solo.engine, "total").peak_bytes, 5000);
    solo.engine.commit();
    EXPECT_EQ(entry(solo.engine, "initial values").resident_bytes, 5000);
    const Tensor a = Tensor::filled({1000}, 1), b = Tensor::filled({500}, 1);
    EXPECT_OK(set(solo.engine, 0, a));
    EXPECT_EQ(entry(solo.engine, "initial values").resident_bytes, 1000);
    EXPECT_OK(write ? otr_engine_parameter_write(solo.engine.get(), 1, OTR_VALUE_MASTER, &b)
                    : set(solo.engine, 1, b));
    EXPECT_EQ(entry(solo.engine, "initial values").resident_bytes, 0);
    EXPECT_GE(entry(solo.engine, "total").peak_bytes, 5000);
  }
}

// A master is in the total's peak with its first value, moments with the first pass.
TEST(HeldValues, AreBesideWhatIsTouched) {
  Solo solo(R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 1}})");
  constexpr int64_t kCount = 1024;
  add_nothing(solo.engine, "w", {{kCount}}, 2 * kCount);
  solo.engine.commit();
  const int64_t resident = entry(solo.engine, "total").resident_bytes;
  const int64_t windows = entry(solo.engine, "published parameters").resident_bytes +
                          entry(solo.engine, "gradient accumulators").resident_bytes +
                          entry(solo.engine, "gradient buckets").resident_bytes;
  EXPECT_EQ(entry(solo.engine, "total").peak_bytes, windows + 2 * kCount);
  EXPECT_OK(set(solo.engine, 0, Tensor::filled({kCount}, 1, "bfloat16")));
  const int64_t start = windows + 2 * kCount + 4 * kCount + 4 * kCount;  // held, on its way, master
  EXPECT_EQ(entry(solo.engine, "total").peak_bytes, start);
  EXPECT_EQ(entry(solo.engine, "total").resident_bytes, resident - 2 * kCount);
  solo.engine.pass({{0, Values(kCount, 1)}});
  solo.engine.step();
  EXPECT_EQ(entry(solo.engine, "total").peak_bytes, std::max(start, resident - 2 * kCount));
}

// A rank that holds a part of a value gives the whole of it: they are there together.
TEST(HeldValues, AreBesideTheRestOfWhatIsGiven) {
  Solo solo(R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 1}})");
  constexpr int64_t kCount = 1024;
  add_nothing(solo.engine, "part", {{kCount}}, kCount);
  add_nothing(solo.engine, "none", {{kCount}});
  solo.engine.commit();
  EXPECT_OK(set(solo.engine, 0, Tensor::filled({kCount}, 1)));
  const int64_t peak = 4 * kCount + 4 * kCount;  // the whole, and what is on its way
  EXPECT_EQ(entry(solo.engine, "initial values").peak_bytes, peak);
  EXPECT_OK(set(solo.engine, 1, Tensor::filled({kCount}, 1, "float64")));  // says nothing of itself
  EXPECT_EQ(entry(solo.engine, "initial values").peak_bytes, peak);
  EXPECT_EQ(entry(solo.engine, "initial values").resident_bytes, 0);
}

TEST(HeldValues, GoWithAValueThatIsStillToCome) {
  Solo solo("");
  Shape shape{4};
  otr_tensor nothing;
  ASSERT_OK(otr_tensor_init(nullptr, "float32", 1, shape.data(), &nothing));
  const Tensor value = Tensor::filled({4}, 1);
  otr_param_options options = param_options();
  int64_t id = -1;
  options.held_bytes = -3;
  EXPECT_FAILS(OTR_E_ARGUMENT,
               otr_engine_add_parameter(solo.engine.get(), "w", &nothing, &options, &id), "-3");
  options.held_bytes = 16;
  EXPECT_FAILS(OTR_E_ARGUMENT,
               otr_engine_add_parameter(solo.engine.get(), "w", &value, &options, &id), "\"w\"",
               "held_bytes = 16");
  ASSERT_OK(otr_engine_add_parameter(solo.engine.get(), "w", &nothing, &options, &id));
  options.alias_of = 0;
  EXPECT_FAILS(OTR_E_ARGUMENT,
               otr_engine_add_parameter(solo.engine.get(), "v", nullptr, &options, &id), "alias");
  EXPECT_EQ(entry(solo.engine, "initial values").resident_bytes, 16);
}

}  // namespace
