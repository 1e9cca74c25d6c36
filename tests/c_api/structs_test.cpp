// SPDX-License-Identifier: Apache-2.0
// Size-first structs: init functions, and every reader's view of struct_size.
#include <algorithm>
#include <cstring>

#include "support.h"

namespace {

using namespace otr_test;

// A struct as a newer program would have it: more bytes behind what this library knows.
template <typename T>
struct Newer {
  T known;
  unsigned char more[24];
};

template <typename T>
void check_init(int32_t (*init)(T*, size_t) noexcept,
                const std::function<void(const T&)>& defaults) {
  Newer<T> s;
  std::memset(static_cast<void*>(&s), 0xab, sizeof s);
  EXPECT_OK(init(&s.known, sizeof(T)));
  EXPECT_EQ(s.known.struct_size, sizeof(T));
  defaults(s.known);
  EXPECT_EQ(s.more[0], 0xab) << "wrote beyond the given size";

  std::memset(static_cast<void*>(&s), 0xab, sizeof s);
  EXPECT_OK(init(&s.known, sizeof s));
  EXPECT_EQ(s.known.struct_size, sizeof s);
  defaults(s.known);
  for (const unsigned char byte : s.more) {
    EXPECT_EQ(byte, 0);
  }

  for (const size_t size : {size_t{0}, size_t{1}, sizeof(T) - 1}) {
    EXPECT_FAILS(OTR_E_ABI, init(&s.known, size), std::to_string(size), std::to_string(sizeof(T)));
  }
  EXPECT_FAILS(OTR_E_ARGUMENT, init(nullptr, sizeof(T)), "NULL");
}

template <typename T>
void expect_reserved_zero(const T& s) {
  for (const uint64_t word : s.reserved) {
    EXPECT_EQ(word, 0U);
  }
}

TEST(StructInit, CallInfo) {
  check_init<otr_call_info>(otr_call_info_init, [](const otr_call_info& i) {
    EXPECT_EQ(i.flags, 0U);
    EXPECT_EQ(i.stream, 0U);
    EXPECT_EQ(i.loss_scale, 0);
    EXPECT_EQ(i.accumulation, 0);
    EXPECT_EQ(i.ranks, 0);
    expect_reserved_zero(i);
  });
}

TEST(StructInit, EstimateOptions) {
  check_init<otr_estimate_options>(otr_estimate_options_init, [](const otr_estimate_options& o) {
    EXPECT_EQ(o.world_size, 1);
    EXPECT_EQ(o.rank, 0);
    EXPECT_EQ(o.layout, OTR_LAYOUT_OUTRIGGER);
    EXPECT_EQ(o.separate_memory, 0);
    EXPECT_EQ(o.grads_at_once, 0);
    EXPECT_EQ(o.acquired_elements + o.widened_elements + o.output_elements, 0);
    expect_reserved_zero(o);
  });
}

TEST(StructInit, DeviceAllocator) {
  check_init<otr_device_allocator>(otr_device_allocator_init, [](const otr_device_allocator& a) {
    EXPECT_TRUE(a.user_data == nullptr && a.allocate == nullptr && a.release == nullptr);
    expect_reserved_zero(a);
  });
}

TEST(StructInit, OffloadOptions) {
  check_init<otr_offload_options>(otr_offload_options_init, [](const otr_offload_options& o) {
    EXPECT_EQ(o.states, 0);
    EXPECT_EQ(o.page_lock, 1);
    expect_reserved_zero(o);
  });
}

TEST(StructInit, CommTable) {
  check_init<otr_comm_table>(otr_comm_table_init, [](const otr_comm_table& t) {
    EXPECT_EQ(t.rank, 0);
    EXPECT_EQ(t.world_size, 1);
    EXPECT_EQ(t.user_data, nullptr);
    EXPECT_TRUE(t.all_gather == nullptr && t.broadcast == nullptr && t.all_to_all == nullptr &&
                t.duplicate == nullptr && t.abort == nullptr && t.destroy == nullptr);
    expect_reserved_zero(t);
  });
}

TEST(StructInit, ContextOptions) {
  check_init<otr_context_options>(otr_context_options_init, [](const otr_context_options& o) {
    EXPECT_EQ(o.log_level, OTR_LOG_WARNING);
    EXPECT_EQ(o.log_callback, nullptr);
    EXPECT_EQ(o.log_user_data, nullptr);
    EXPECT_EQ(o.workers, 0);
    EXPECT_EQ(o.interrupt_callback, nullptr);
    EXPECT_EQ(o.interrupt_user_data, nullptr);
    expect_reserved_zero(o);
  });
}

TEST(StructInit, CommOptions) {
  check_init<otr_comm_options>(otr_comm_options_init, [](const otr_comm_options& o) {
    EXPECT_EQ(o.timeout, 300);
    EXPECT_EQ(o.job, nullptr);
    EXPECT_EQ(o.rank, 0);
    expect_reserved_zero(o);
  });
}

TEST(StructInit, ParamOptions) {
  check_init<otr_param_options>(otr_param_options_init, [](const otr_param_options& o) {
    EXPECT_EQ(o.trainable, 1);
    EXPECT_EQ(o.alias_of, -1);
    EXPECT_TRUE(o.group == nullptr || std::string(o.group) == "default");
    EXPECT_EQ(o.contributions, 1);
    EXPECT_EQ(o.replicated, 0);
    expect_reserved_zero(o);
  });
}

TEST(StructInit, ShardOptions) {
  check_init<otr_shard_options>(otr_shard_options_init, [](const otr_shard_options& o) {
    EXPECT_TRUE(o.name == nullptr || std::string(o.name) == "shard");
    EXPECT_EQ(o.first_element, 0);
    EXPECT_EQ(o.published, nullptr);
    expect_reserved_zero(o);
  });
}

TEST(StructInit, StepReportMacroSetsTheSizeAndZeroes) {
  const otr_step_report report = OTR_STEP_REPORT_INIT;
  otr_step_report zero;
  std::memset(static_cast<void*>(&zero), 0, sizeof zero);
  zero.struct_size = sizeof zero;
  EXPECT_EQ(std::memcmp(&report, &zero, sizeof zero), 0);
}

// Gives a reader a struct of every wrong size, and of a newer program's.
template <typename T>
void check_reader(const T& good, const std::function<int32_t(const T*)>& call) {
  Newer<T> s;
  std::memset(static_cast<void*>(&s), 0, sizeof s);
  s.known = good;
  EXPECT_OK(call(&s.known));
  for (const uint32_t size :
       {uint32_t{0}, uint32_t{4}, static_cast<uint32_t>(sizeof(T) - 1), UINT32_MAX}) {
    s.known.struct_size = size;
    EXPECT_FAILS(OTR_E_ABI, call(&s.known), std::to_string(size));
  }
  s.known.struct_size = sizeof s;
  EXPECT_OK(call(&s.known));
  s.more[23] = 1;  // a field that this library does not know is used
  EXPECT_FAILS(OTR_E_ABI, call(&s.known), std::to_string(sizeof s - 1), OTR_VERSION_STRING);
}

TEST(StructSize, OfContextOptions) {
  otr_context_options options;
  ASSERT_OK(otr_context_options_init(&options, sizeof options));
  check_reader<otr_context_options>(options, [](const otr_context_options* o) {
    otr_context* context = nullptr;
    const int32_t status = otr_context_create(o, &context);
    EXPECT_EQ(context != nullptr, status == OTR_OK);
    otr_context_destroy(context);
    return status;
  });
}

TEST(StructSize, OfCommOptions) {
  const auto context = make_context();
  otr_comm_options options;
  ASSERT_OK(otr_comm_options_init(&options, sizeof options));
  check_reader<otr_comm_options>(options, [&](const otr_comm_options* o) {
    otr_comm* comms[2] = {};
    const int32_t status = otr_comm_create_threads(context.get(), 2, o, comms);
    for (otr_comm* comm : comms) {
      EXPECT_EQ(comm != nullptr, status == OTR_OK);
      otr_comm_destroy(comm);
    }
    return status;
  });
  check_reader<otr_comm_options>(options, [&](const otr_comm_options* o) {
    otr_comm* comm = nullptr;
    const int32_t status = otr_comm_from_env(context.get(), o, &comm);
    otr_comm_destroy(comm);
    return status;
  });
  options.job = "c_api_struct_size";
  check_reader<otr_comm_options>(options, [&](const otr_comm_options* o) {
    otr_comm* comm = nullptr;
    const int32_t status = otr_comm_create_shm(context.get(), o, &comm);
    otr_comm_destroy(comm);
    return status;
  });
}

TEST(StructSize, OfParamOptions) {
  Solo solo("");
  const Tensor value = Tensor::filled({1}, 1);
  int n = 0;
  check_reader<otr_param_options>(param_options(), [&](const otr_param_options* o) {
    int64_t id = 7;
    const std::string name = "p" + std::to_string(n);
    const int32_t status =
        otr_engine_add_parameter(solo.engine.get(), name.c_str(), &value, o, &id);
    EXPECT_EQ(id, status == OTR_OK ? n++ : 0);
    return status;
  });
}

TEST(StructSize, OfShardOptions) {
  const auto context = make_context();
  int64_t count = 1;
  float memory = 0;
  otr_tensor t;
  ASSERT_OK(otr_tensor_init(&memory, "float32", 1, &count, &t));
  otr_shard_options options;
  ASSERT_OK(otr_shard_options_init(&options, sizeof options));
  check_reader<otr_shard_options>(options, [&](const otr_shard_options* o) {
    otr_shard* shard = nullptr;
    const int32_t status = otr_shard_wrap(context.get(), &t, &t, o, &shard);
    EXPECT_EQ(shard != nullptr, status == OTR_OK);
    otr_shard_destroy(shard);
    return status;
  });
}

TEST(StructSize, OfCallInfo) {
  Solo solo("");
  solo.engine.add("w", {1}, {1});
  solo.engine.commit();
  otr_call_info info;
  ASSERT_OK(otr_call_info_init(&info, sizeof info));
  const int64_t id = 0;
  otr_engine* engine = solo.engine.get();
  using Call = std::function<int32_t(const otr_call_info*)>;
  check_reader<otr_call_info>(
      info, Call([&](const otr_call_info* i) { return otr_engine_prefetch(engine, &id, 1, i); }));
  check_reader<otr_call_info>(info, Call([&](const otr_call_info* i) {
                                otr_tensor out;
                                return otr_engine_acquire(engine, &id, 1, i, &out);
                              }));
  check_reader<otr_call_info>(
      info, Call([&](const otr_call_info* i) { return otr_engine_release(engine, &id, 1, i); }));
  check_reader<otr_call_info>(info, Call([&](const otr_call_info* i) {
                                otr_pass* pass = nullptr;
                                const int32_t status = otr_pass_begin(engine, nullptr, 0, i, &pass);
                                otr_pass_destroy(pass);
                                return status;
                              }));
  const auto pass = solo.engine.begin();
  const Tensor grad = Tensor::filled({1}, 1);
  check_reader<otr_call_info>(info, Call([&](const otr_call_info* i) {
                                return otr_pass_add_grad(pass.get(), 0, &grad, i);
                              }));
}

TEST(CallInfo, RefusesWhatTheCallDoesNotKnow) {
  Solo solo("");
  solo.engine.add("w", {1}, {1});
  solo.engine.commit();
  const int64_t id = 0;
  otr_tensor out;
  otr_pass* pass = nullptr;
  otr_call_info info;
  ASSERT_OK(otr_call_info_init(&info, sizeof info));
  info.flags = 6;
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_engine_acquire(solo.engine.get(), &id, 1, &info, &out), "flags",
               "0x6");
  info.flags = OTR_ACQUIRE_FLOAT32;
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_pass_begin(solo.engine.get(), nullptr, 0, &info, &pass), "flags",
               "0x1");
  info.flags = 0;
  info.stream = 9;
  EXPECT_FAILS(OTR_E_UNSUPPORTED, otr_pass_begin(solo.engine.get(), nullptr, 0, &info, &pass),
               "stream", "9");
  info.stream = 0;
  info.loss_scale = -0.5;
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_pass_begin(solo.engine.get(), nullptr, 0, &info, &pass),
               "loss_scale", "-0.5");
  EXPECT_EQ(pass, nullptr);
  info.loss_scale = 1;
  EXPECT_OK(otr_pass_begin(solo.engine.get(), nullptr, 0, &info, &pass));
  otr_pass_destroy(pass);
}

// "report: NULL, or struct_size set": nothing else of it is read.
template <typename Step>
void check_report(const Step& step) {
  EXPECT_OK(step(nullptr));
  Newer<otr_step_report> r;
  std::memset(static_cast<void*>(&r), 0xab, sizeof r);
  r.known.struct_size = sizeof(otr_step_report);
  EXPECT_OK(step(&r.known));
  EXPECT_EQ(r.known.struct_size, sizeof(otr_step_report));
  EXPECT_EQ(r.known.outcome, OTR_STEP_APPLIED);
  EXPECT_EQ(r.known.applied_steps, 2);
  EXPECT_EQ(r.more[0], 0xab) << "wrote beyond struct_size";

  std::memset(static_cast<void*>(&r), 0xab, sizeof r);
  r.known.struct_size = sizeof r;
  EXPECT_OK(step(&r.known)) << "a newer program's report";
  EXPECT_EQ(r.known.struct_size, sizeof r);
  EXPECT_EQ(r.known.applied_steps, 3);
  for (const unsigned char byte : r.more) {
    EXPECT_EQ(byte, 0) << "fields that this library does not know hold 0";
  }

  for (const uint32_t size : {uint32_t{0}, static_cast<uint32_t>(sizeof(otr_step_report) - 1)}) {
    r.known.struct_size = size;
    EXPECT_FAILS(OTR_E_ABI, step(&r.known), "report", std::to_string(size));
  }
}

TEST(StructSize, OfEngineStepReport) {
  Solo solo("");
  const int64_t id = solo.engine.add("w", {1}, {1});
  solo.engine.commit();
  check_report([&](otr_step_report* report) {
    const Tensor grad = Tensor::filled({1}, 1);
    otr_pass* pass = nullptr;
    EXPECT_OK(otr_pass_begin(solo.engine.get(), nullptr, 0, nullptr, &pass));
    EXPECT_OK(otr_pass_add_grad(pass, id, &grad, nullptr));
    EXPECT_OK(otr_pass_end(pass));
    otr_pass_destroy(pass);
    return otr_engine_step(solo.engine.get(), report);
  });
}

TEST(StructSize, OfOptimizerStepReport) {
  const auto context = make_context();
  int64_t count = 1;
  float w = 0, g = 1;
  otr_tensor weights, grads;
  ASSERT_OK(otr_tensor_init(&w, "float32", 1, &count, &weights));
  ASSERT_OK(otr_tensor_init(&g, "float32", 1, &count, &grads));
  otr_shard* shard = nullptr;
  ASSERT_OK(otr_shard_wrap(context.get(), &weights, &grads, nullptr, &shard));
  const Owned<otr_shard> owner(shard);
  otr_optimizer* optimizer = nullptr;
  ASSERT_OK(otr_optimizer_create(context.get(), "", &optimizer));
  const Owned<otr_optimizer> owns(optimizer);
  check_report(
      [&](otr_step_report* report) { return otr_optimizer_step(optimizer, &shard, 1, report); });
}

}  // namespace
