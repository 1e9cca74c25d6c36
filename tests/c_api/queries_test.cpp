// SPDX-License-Identifier: Apache-2.0
// Group values, the configuration in effect, the ledger, and the protocol of caller's buffers.
#include <cmath>
#include <cstring>

#include "memory.h"

namespace {

using namespace otr_test;

double value_of(const Engine& engine, const char* group, const char* name) {
  double value = -1;
  EXPECT_OK(otr_engine_get_group_value(engine.get(), group, name, &value));
  return value;
}

class Groups : public testing::Test {
 protected:
  Groups()
      : solo_(R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.5, "betas": [0.5, 0.75],
                    "eps": 1e-6, "weight_decay": 0.25}}, "gradient_clipping": 0})") {
    auto options = param_options();
    solo_.engine.add("a", {1}, {1});
    options.group = "slow";
    solo_.engine.add("b", {1}, {1}, &options);
    solo_.engine.commit();
  }
  Solo solo_;
};

TEST_F(Groups, HaveTheConfigurationsValues) {
  for (const char* group : {static_cast<const char*>(nullptr), "default", "slow"}) {
    EXPECT_EQ(value_of(solo_.engine, group, "lr"), 0.5);
    EXPECT_EQ(value_of(solo_.engine, group, "beta1"), 0.5);
    EXPECT_EQ(value_of(solo_.engine, group, "beta2"), 0.75);
    EXPECT_EQ(value_of(solo_.engine, group, "eps"), 1e-6);
    EXPECT_EQ(value_of(solo_.engine, group, "weight_decay"), 0.25);
  }
}

TEST_F(Groups, HaveValuesOfTheirOwn) {
  EXPECT_OK(otr_engine_set_group_value(solo_.engine.get(), "slow", "lr", 0.125));
  EXPECT_EQ(value_of(solo_.engine, nullptr, "lr"), 0.5);
  EXPECT_EQ(value_of(solo_.engine, "slow", "lr"), 0.125);
  EXPECT_OK(otr_engine_set_group_value(solo_.engine.get(), nullptr, "lr", 0.25));  // all
  EXPECT_EQ(value_of(solo_.engine, nullptr, "lr"), 0.25);
  EXPECT_EQ(value_of(solo_.engine, "slow", "lr"), 0.25);
}

TEST_F(Groups, ValuesHoldFromTheNextStep) {
  EXPECT_OK(otr_engine_set_group_value(solo_.engine.get(), "slow", "lr", 0));
  EXPECT_OK(otr_engine_set_group_value(solo_.engine.get(), nullptr, "weight_decay", 0));
  solo_.engine.pass({{0, {1}}, {1, {1}}});
  const auto report = solo_.engine.step();
  EXPECT_EQ(report.lr, 0.5) << "of the default group, as used";
  // The first step of Adam is lr in the direction of the gradient, but for eps.
  EXPECT_NEAR(solo_.engine.read(0)[0], 0.5, 1e-5);
  EXPECT_EQ(solo_.engine.read(1)[0], 1);
}

TEST_F(Groups, RefuseUnknownNames) {
  double value = 5;
  EXPECT_FAILS(OTR_E_NOT_FOUND,
               otr_engine_get_group_value(solo_.engine.get(), "slwo", "lr", &value), "slwo",
               "slow");
  EXPECT_EQ(value, 0);
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_engine_set_group_value(solo_.engine.get(), "slwo", "lr", 1),
               "slwo", "known groups", "slow");
  EXPECT_FAILS(OTR_E_NOT_FOUND,
               otr_engine_get_group_value(solo_.engine.get(), nullptr, "weight_decy", &value),
               "weight_decy", "\"weight_decay\"");
  EXPECT_FAILS(OTR_E_NOT_FOUND,
               otr_engine_set_group_value(solo_.engine.get(), nullptr, "momentum", 1), "momentum");
}

TEST_F(Groups, RefuseValuesOutOfRangeAndKeepTheOld) {
  struct Row {
    const char* name;
    double bad;
  };
  for (const Row& row : {Row{"lr", -1}, Row{"lr", std::nan("")}, Row{"lr", HUGE_VAL},
                         Row{"weight_decay", -0.5}, Row{"eps", -1e-8}, Row{"beta1", 1},
                         Row{"beta1", -0.1}, Row{"beta2", 1.5}, Row{"beta2", std::nan("")}}) {
    const double before = value_of(solo_.engine, nullptr, row.name);
    EXPECT_FAILS(OTR_E_ARGUMENT,
                 otr_engine_set_group_value(solo_.engine.get(), nullptr, row.name, row.bad),
                 row.name);
    EXPECT_EQ(value_of(solo_.engine, nullptr, row.name), before);
    EXPECT_EQ(value_of(solo_.engine, "slow", row.name), before);
  }
}

// "buffer: NULL with 0, to ask; too small: OTR_E_BUFFER_SIZE, and the needed size was written"
void check_text(const std::function<int32_t(char*, size_t*)>& call) {
  size_t size = 0;
  EXPECT_OK(call(nullptr, &size));
  const size_t needed = size;
  ASSERT_GT(needed, 2U);
  std::vector<char> buffer(needed + 8, 'x');
  for (const size_t small : {size_t{0}, size_t{1}, needed - 1}) {
    size = small;
    EXPECT_FAILS(OTR_E_BUFFER_SIZE, call(buffer.data(), &size), std::to_string(small),
                 std::to_string(needed));
    EXPECT_EQ(size, needed);
    EXPECT_EQ(buffer[0], 'x') << "a call that failed wrote";
  }
  size = buffer.size();
  EXPECT_OK(call(buffer.data(), &size));
  EXPECT_EQ(size, needed);
  EXPECT_EQ(buffer[needed], 'x');
  EXPECT_EQ(std::strlen(buffer.data()), needed - 1);
  size = needed;
  EXPECT_OK(call(buffer.data(), &size));
  const std::string text = buffer.data();
  EXPECT_EQ(text.front(), '{');
  for (const char* word : {"\"user\"", "\"default\"", "gradient_clipping", "unused_parameters"}) {
    EXPECT_NE(text.find(word), std::string::npos) << word;
  }
}

TEST(Configuration, IsAskedForAndCopied) {
  Solo solo(R"({"gradient_clipping": 0.5})");
  check_text([&](char* buffer, size_t* size) {
    return otr_engine_config(solo.engine.get(), buffer, size);
  });
  check_text([&](char* buffer, size_t* size) {
    return otr_config_check(R"({"gradient_clipping": 0.5})", 1, buffer, size);
  });
}

TEST(Configuration, CheckGivesWhatTheEngineWouldGive) {
  const char* config = R"({"zero_optimization": {"stage": 2}})";
  Solo solo(config);
  std::vector<char> a(1 << 16), b(1 << 16);
  size_t size_a = a.size(), size_b = b.size();
  EXPECT_OK(otr_engine_config(solo.engine.get(), a.data(), &size_a));
  EXPECT_OK(otr_config_check(config, 1, b.data(), &size_b));
  EXPECT_STREQ(a.data(), b.data());
  EXPECT_EQ(size_a, size_b);
}

TEST(Configuration, CheckFindsFaults) {
  size_t size = 0;
  EXPECT_FAILS(OTR_E_CONFIG, otr_config_check("{\"zero\": 1}", 1, nullptr, &size), "zero");
  EXPECT_FAILS(OTR_E_UNSUPPORTED,
               otr_config_check(R"({"zero_optimization": {"stage": 3,
                                    "offload_param": {"device": "nvme", "nvme_path": "/n"}}})",
                                1, nullptr, &size),
               "offload_param");
  EXPECT_FAILS(OTR_E_CONFIG,
               otr_config_check("{\"train_batch_size\": 7, \"train_micro_batch_size_per_gpu\": 2}",
                                2, nullptr, &size),
               "train_batch_size", "7");
  for (const int32_t world : {0, -1}) {
    EXPECT_FAILS(OTR_E_ARGUMENT, otr_config_check("", world, nullptr, &size), "world_size",
                 std::to_string(world));
  }
  EXPECT_OK(otr_config_check(nullptr, 1024, nullptr, &size));
}

// ---- The ledger
// -----------------------------------------------------------------------------------

otr_memory_entry entry(const Engine& engine, std::string_view purpose) {
  for (const otr_memory_entry& e : ledger(engine.get())) {
    if (e.purpose == purpose) return e;
  }
  ADD_FAILURE() << "no entry " << purpose;
  return {};
}

TEST(Memory, EndsWithTheTotal) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    Solo solo(config_of(kind));
    solo.engine.add("w", {100, 100}, Values(10000, 1));
    solo.engine.commit();
    const auto entries = ledger(solo.engine.get());
    int64_t sum = 0;
    for (size_t i = 0; i + 1 < entries.size(); ++i) {
      EXPECT_EQ(entries[i].struct_size, sizeof(otr_memory_entry));
      EXPECT_STRNE(entries[i].purpose, "total");
      EXPECT_GE(entries[i].resident_bytes, 0);
      EXPECT_GE(entries[i].peak_bytes, entries[i].resident_bytes);
      sum += entries[i].resident_bytes;
    }
    EXPECT_STREQ(entries.back().purpose, "total");
    EXPECT_EQ(entries.back().resident_bytes, sum);
    EXPECT_GT(entries.back().peak_bytes, 0);
    Engine::end(solo.engine.begin());
    EXPECT_GE(ledger(solo.engine.get()).back().peak_bytes, sum) << "from the first pass on";
  }
}

TEST(Memory, ChargesWhatTheFormatsNeed) {
  // 10000 elements; a leaf of 256 more at most for padding.
  const auto near = [](int64_t bytes, int64_t each) {
    EXPECT_GE(bytes, 10000 * each);
    EXPECT_LE(bytes, (10000 + 512) * each);
  };
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    Solo solo(config_of(kind));
    solo.engine.add("w", {100, 100}, Values(10000, 1));
    solo.engine.commit();
    const bool wide = std::string_view(kind.precision) == "float32";
    const bool low_states = std::string_view(kind.precision) == "bf16_states";
    near(entry(solo.engine, "published parameters").resident_bytes, wide ? 4 : 2);
    const int64_t master = entry(solo.engine, "master weights").resident_bytes;
    if (std::string_view(kind.precision) == "bf16" || std::string_view(kind.precision) == "fp16") {
      near(master, 4);
    } else {
      EXPECT_EQ(master, 0) << "the published weights are the master";
    }
    int64_t states = 0;
    for (const otr_memory_entry& e : ledger(solo.engine.get())) {
      if (std::string_view(e.purpose).find("exp_avg") != std::string_view::npos)
        states += e.resident_bytes;
    }
    near(states, low_states ? 4 : 8);
  }
}

TEST(Memory, PeaksStay) {
  Solo solo("");
  solo.engine.add("w", {1000}, Values(1000, 1));
  solo.engine.commit();
  const int64_t before = entry(solo.engine, "total").resident_bytes;
  {
    const Tensor big = Tensor::filled({5000}, 1);
    otr_pass* pass = nullptr;
    ASSERT_OK(otr_pass_begin(solo.engine.get(), &big, 1, nullptr, &pass));
    EXPECT_EQ(entry(solo.engine, "total").resident_bytes, before + 20000)
        << "output gradients are float32";
    otr_pass_destroy(pass);
  }
  EXPECT_EQ(entry(solo.engine, "total").resident_bytes, before);
  EXPECT_EQ(entry(solo.engine, "total").peak_bytes, before + 20000);
}

TEST(Memory, TellsTheNumberOfEntries) {
  Solo solo("");
  size_t needed = 0;
  EXPECT_OK(otr_engine_memory(solo.engine.get(), nullptr, &needed));
  std::vector<otr_memory_entry> entries(needed);
  entries[0].struct_size = sizeof entries[0];
  for (const size_t few : {size_t{1}, needed - 1}) {
    size_t count = few;
    EXPECT_FAILS(OTR_E_BUFFER_SIZE, otr_engine_memory(solo.engine.get(), entries.data(), &count),
                 std::to_string(few), std::to_string(needed));
    EXPECT_EQ(count, needed);
    EXPECT_EQ(entries[0].purpose, nullptr);
  }
  size_t count =
      0;  // room for none, though there is a pointer: its first struct_size may not be read
  EXPECT_FAILS(OTR_E_BUFFER_SIZE, otr_engine_memory(solo.engine.get(), entries.data(), &count),
               "0");
  for (const uint32_t size : {uint32_t{0}, uint32_t{8}}) {
    entries[0].struct_size = size;
    count = needed;
    EXPECT_FAILS(OTR_E_ABI, otr_engine_memory(solo.engine.get(), entries.data(), &count),
                 std::to_string(size));
  }
}

}  // namespace
