// SPDX-License-Identifier: Apache-2.0
// Every function with each of its pointers NULL in turn, every function with a handle of another
// kind, and what the outputs hold after a failure.
#include <cstring>

#include "support.h"

namespace {

using namespace otr_test;

template <typename To, typename From>
To* as_kind(From* handle) {
  return reinterpret_cast<To*>(handle);  // NOLINT: the wrong use under test
}

class WrongPointer : public testing::Test {
 protected:
  WrongPointer() : solo_("") {
    solo_.engine.add("w", {2}, {1, 2});
    solo_.engine.commit();
    context_ = solo_.context.get();
    comm_ = solo_.comm.get();
    engine_ = solo_.engine.get();
    owned_pass_ = solo_.engine.begin();
    pass_ = owned_pass_.get();
    EXPECT_OK(otr_tensor_init(values_, "float32", 1, shape_, &tensor_));
    EXPECT_OK(otr_shard_wrap(context_, &tensor_, &tensor_, nullptr, &shard_));
    owned_shard_.reset(shard_);
    EXPECT_OK(otr_optimizer_create(context_, nullptr, &optimizer_));
    owned_optimizer_.reset(optimizer_);
    EXPECT_OK(otr_comm_options_init(&comm_options_, sizeof comm_options_));
    comm_options_.job = "c_api_wrong_pointer";
    EXPECT_OK(otr_engine_create(comm_, nullptr, &declaring_));
    owned_declaring_.reset(declaring_);
  }

  struct Row {
    const char* argument;
    const char* call;
    std::function<int32_t()> run;
  };
#define ROW(argument, call)               \
  Row {                                   \
    argument, #call, [&] { return call; } \
  }
  static void expect_all(int32_t status, const std::vector<Row>& rows) {
    for (const Row& row : rows) {
      EXPECT_TRUE(failed(status, row.run(), {row.argument})) << row.call;
    }
  }

  Solo solo_;
  otr_context* context_;
  otr_comm* comm_;
  otr_engine* engine_;
  otr_engine* declaring_ = nullptr;
  otr_pass* pass_;
  otr_shard* shard_ = nullptr;
  otr_optimizer* optimizer_ = nullptr;
  Owned<otr_pass> owned_pass_;
  Owned<otr_shard> owned_shard_;
  Owned<otr_optimizer> owned_optimizer_;
  Owned<otr_engine> owned_declaring_;

  float values_[2] = {1, 2};
  int64_t shape_[1] = {2};
  otr_tensor tensor_{}, out_tensor_{};
  otr_comm_options comm_options_{};
  otr_step_report report_ = OTR_STEP_REPORT_INIT;
  int64_t id_ = 0, count_ = 0, bytes_ = 0;
  int32_t number_ = 0;
  double real_ = 0;
  char byte_ = 0;
  const char* text_ = nullptr;
  const int64_t* dims_ = nullptr;
  size_t size_ = 0;
  otr_context* out_context_ = nullptr;
  otr_comm* out_comms_[2] = {};
  otr_engine* out_engine_ = nullptr;
  otr_pass* out_pass_ = nullptr;
  otr_shard* out_shard_ = nullptr;
  otr_optimizer* out_optimizer_ = nullptr;
};

TEST_F(WrongPointer, NullContextAndComm) {
  expect_all(OTR_E_ARGUMENT,
             {ROW("out_context", otr_context_create(nullptr, nullptr)),
              ROW("context", otr_comm_create_self(nullptr, out_comms_)),
              ROW("out_comm", otr_comm_create_self(context_, nullptr)),
              ROW("context", otr_comm_create_threads(nullptr, 2, nullptr, out_comms_)),
              ROW("out_comms", otr_comm_create_threads(context_, 2, nullptr, nullptr)),
              ROW("context", otr_comm_create_shm(nullptr, &comm_options_, out_comms_)),
              ROW("options", otr_comm_create_shm(context_, nullptr, out_comms_)),
              ROW("out_comm", otr_comm_create_shm(context_, &comm_options_, nullptr)),
              ROW("context", otr_comm_from_env(nullptr, nullptr, out_comms_)),
              ROW("out_comm", otr_comm_from_env(context_, nullptr, nullptr)),
              ROW("comm", otr_comm_rank(nullptr, &number_)),
              ROW("out_rank", otr_comm_rank(comm_, nullptr)),
              ROW("comm", otr_comm_size(nullptr, &number_)),
              ROW("out_world_size", otr_comm_size(comm_, nullptr)),
              ROW("comm", otr_comm_barrier(nullptr)),
              ROW("comm", otr_comm_broadcast(nullptr, &byte_, 1, 0)),
              ROW("data", otr_comm_broadcast(comm_, nullptr, 1, 0)),
              ROW("comm", otr_comm_all_gather(nullptr, &byte_, 1, &byte_)),
              ROW("mine", otr_comm_all_gather(comm_, nullptr, 1, &byte_)),
              ROW("all", otr_comm_all_gather(comm_, &byte_, 1, nullptr)),
              ROW("comm", otr_comm_all_reduce_sum(nullptr, &real_, 1)),
              ROW("values", otr_comm_all_reduce_sum(comm_, nullptr, 1)),
              ROW("comm", otr_comm_abort(nullptr, "reason"))});
}

TEST_F(WrongPointer, NullDevice) {
  constexpr int32_t kType = OTR_DEVICE_EXTENSION;
  void* data = nullptr;
  expect_all(OTR_E_ARGUMENT,
             {ROW("context", otr_context_load_plugin(nullptr, "simulated")),
              ROW("name", otr_context_load_plugin(context_, nullptr)),
              ROW("context", otr_device_count(nullptr, OTR_DEVICE_CPU, &number_)),
              ROW("out_count", otr_device_count(context_, OTR_DEVICE_CPU, nullptr)),
              ROW("context", otr_device_set_value(nullptr, kType, 0, "copy_latency", 0)),
              ROW("context", otr_device_get_value(nullptr, kType, 0, "kernels", &real_)),
              ROW("out_value", otr_device_get_value(context_, kType, 0, "kernels", nullptr)),
              ROW("allocator", otr_device_allocator_init(nullptr, sizeof(otr_device_allocator))),
              ROW("context", otr_device_set_allocator(nullptr, kType, 0, nullptr)),
              ROW("context", otr_device_allocate(nullptr, kType, 0, 1, &data)),
              ROW("out_data", otr_device_allocate(context_, kType, 0, 1, nullptr)),
              ROW("context", otr_device_free(nullptr, kType, 0, nullptr)),
              ROW("context", otr_tensor_copy(nullptr, &tensor_, &tensor_)),
              ROW("to", otr_tensor_copy(context_, nullptr, &tensor_)),
              ROW("from", otr_tensor_copy(context_, &tensor_, nullptr)),
              ROW("engine", otr_engine_set_device(nullptr, kType, 0))});
}

TEST_F(WrongPointer, NullEngine) {
  expect_all(
      OTR_E_ARGUMENT,
      {ROW("comm", otr_engine_create(nullptr, nullptr, &out_engine_)),
       ROW("out_engine", otr_engine_create(comm_, nullptr, nullptr)),
       ROW("engine", otr_engine_add_parameter(nullptr, "p", &tensor_, nullptr, &id_)),
       ROW("name", otr_engine_add_parameter(declaring_, nullptr, &tensor_, nullptr, &id_)),
       ROW("initial", otr_engine_add_parameter(declaring_, "p", nullptr, nullptr, &id_)),
       ROW("out_id", otr_engine_add_parameter(declaring_, "p", &tensor_, nullptr, nullptr)),
       ROW("engine", otr_engine_commit(nullptr)),
       ROW("engine", otr_engine_finalize(nullptr)),
       ROW("engine", otr_engine_abort(nullptr, nullptr)),
       ROW("engine", otr_engine_check(nullptr)),
       ROW("engine", otr_engine_live_children(nullptr, &count_)),
       ROW("out_count", otr_engine_live_children(engine_, nullptr)),
       ROW("engine", otr_engine_parameter_count(nullptr, &count_)),
       ROW("out_count", otr_engine_parameter_count(engine_, nullptr)),
       ROW("engine", otr_engine_parameter_id(nullptr, "w", &id_)),
       ROW("name", otr_engine_parameter_id(engine_, nullptr, &id_)),
       ROW("out_id", otr_engine_parameter_id(engine_, "w", nullptr)),
       ROW("engine", otr_engine_parameter_name(nullptr, 0, &text_)),
       ROW("out_name", otr_engine_parameter_name(engine_, 0, nullptr)),
       ROW("engine", otr_engine_parameter_shape(nullptr, 0, &number_, &dims_)),
       ROW("out_ndim", otr_engine_parameter_shape(engine_, 0, nullptr, &dims_)),
       ROW("out_shape", otr_engine_parameter_shape(engine_, 0, &number_, nullptr)),
       ROW("engine", otr_engine_acquire(nullptr, &id_, 1, nullptr, &out_tensor_)),
       ROW("ids", otr_engine_acquire(engine_, nullptr, 1, nullptr, &out_tensor_)),
       ROW("out_tensors", otr_engine_acquire(engine_, &id_, 1, nullptr, nullptr)),
       ROW("engine", otr_engine_release(nullptr, &id_, 1, nullptr)),
       ROW("ids", otr_engine_release(engine_, nullptr, 1, nullptr)),
       ROW("engine", otr_engine_prefetch(nullptr, &id_, 1, nullptr)),
       ROW("ids", otr_engine_prefetch(engine_, nullptr, 1, nullptr)),
       ROW("engine", otr_engine_set_initial(nullptr, &id_, 1, &tensor_)),
       ROW("ids", otr_engine_set_initial(engine_, nullptr, 1, &tensor_)),
       ROW("values", otr_engine_set_initial(engine_, &id_, 1, nullptr)),
       ROW("engine", otr_engine_parameter_read(nullptr, 0, 0, &tensor_)),
       ROW("out", otr_engine_parameter_read(engine_, 0, 0, nullptr)),
       ROW("engine", otr_engine_parameter_write(nullptr, 0, OTR_VALUE_MASTER, &tensor_)),
       ROW("source", otr_engine_parameter_write(solo_.engine.get(), 0, OTR_VALUE_MASTER, nullptr)),
       ROW("engine", otr_engine_set_group_value(nullptr, nullptr, "lr", 1)),
       ROW("name", otr_engine_set_group_value(engine_, nullptr, nullptr, 1)),
       ROW("engine", otr_engine_get_group_value(nullptr, nullptr, "lr", &real_)),
       ROW("name", otr_engine_get_group_value(engine_, nullptr, nullptr, &real_)),
       ROW("out_value", otr_engine_get_group_value(engine_, nullptr, "lr", nullptr)),
       ROW("engine", otr_engine_config(nullptr, nullptr, &size_)),
       ROW("inout_size", otr_engine_config(engine_, nullptr, nullptr)),
       ROW("engine", otr_engine_host_memory(nullptr, nullptr, &size_)),
       ROW("inout_size", otr_engine_host_memory(engine_, nullptr, nullptr)),
       ROW("engine", otr_engine_offload_states(nullptr, nullptr)),
       ROW("engine", otr_engine_reload_states(nullptr)),
       ROW("inout_size", otr_config_check(nullptr, 1, nullptr, nullptr)),
       ROW("inout_size", otr_machine_info(nullptr, nullptr)),
       ROW("engine", otr_engine_memory(nullptr, nullptr, &size_)),
       ROW("inout_count", otr_engine_memory(engine_, nullptr, nullptr)),
       ROW("engine", otr_engine_step(nullptr, nullptr))});
  size_ = 5;
  expect_all(OTR_E_ARGUMENT, {ROW("buffer", otr_engine_config(engine_, nullptr, &size_)),
                              ROW("buffer", otr_config_check(nullptr, 1, nullptr, &size_)),
                              ROW("buffer", otr_machine_info(nullptr, &size_)),
                              ROW("entries", otr_engine_memory(engine_, nullptr, &size_))});
}

TEST_F(WrongPointer, NullPassShardAndOptimizer) {
  otr_shard* none[1] = {nullptr};
  expect_all(OTR_E_ARGUMENT,
             {ROW("engine", otr_pass_begin(nullptr, nullptr, 0, nullptr, &out_pass_)),
              ROW("output_grads", otr_pass_begin(engine_, nullptr, 1, nullptr, &out_pass_)),
              ROW("out_pass", otr_pass_begin(engine_, nullptr, 0, nullptr, nullptr)),
              ROW("pass", otr_pass_get_output_grad(nullptr, 0, &out_tensor_)),
              ROW("out_tensor", otr_pass_get_output_grad(pass_, 0, nullptr)),
              ROW("pass", otr_pass_get_scale(nullptr, &real_)),
              ROW("out_scale", otr_pass_get_scale(pass_, nullptr)),
              ROW("pass", otr_pass_get_slot(nullptr, 0, &out_tensor_)),
              ROW("out_slot", otr_pass_get_slot(pass_, 0, nullptr)),
              ROW("pass", otr_pass_add_grad(nullptr, 0, &tensor_, nullptr)),
              ROW("grad", otr_pass_add_grad(pass_, 0, nullptr, nullptr)),
              ROW("pass", otr_pass_end(nullptr)),
              ROW("pass", otr_pass_abandon(nullptr)),
              ROW("context", otr_shard_wrap(nullptr, &tensor_, &tensor_, nullptr, &out_shard_)),
              ROW("weights", otr_shard_wrap(context_, nullptr, &tensor_, nullptr, &out_shard_)),
              ROW("out_shard", otr_shard_wrap(context_, &tensor_, &tensor_, nullptr, nullptr)),
              ROW("shard", otr_shard_set_grads(nullptr, &tensor_)),
              ROW("shard", otr_shard_state(nullptr, OTR_VALUE_EXP_AVG, &out_tensor_)),
              ROW("out_tensor", otr_shard_state(shard_, OTR_VALUE_EXP_AVG, nullptr)),
              ROW("shard", otr_shard_read(nullptr, OTR_VALUE_MASTER, &tensor_)),
              ROW("destination", otr_shard_read(shard_, OTR_VALUE_MASTER, nullptr)),
              ROW("shard", otr_shard_write(nullptr, OTR_VALUE_MASTER, &tensor_)),
              ROW("source", otr_shard_write(shard_, OTR_VALUE_MASTER, nullptr)),
              ROW("shard", otr_shard_get_step(nullptr, &bytes_)),
              ROW("out_step", otr_shard_get_step(shard_, nullptr)),
              ROW("shard", otr_shard_set_step(nullptr, 1)),
              ROW("shard", otr_shard_state_bytes(nullptr, &bytes_)),
              ROW("out_bytes", otr_shard_state_bytes(shard_, nullptr)),
              ROW("context", otr_optimizer_create(nullptr, nullptr, &out_optimizer_)),
              ROW("out_optimizer", otr_optimizer_create(context_, nullptr, nullptr)),
              ROW("optimizer", otr_optimizer_set_value(nullptr, "lr", 1)),
              ROW("name", otr_optimizer_set_value(optimizer_, nullptr, 1)),
              ROW("optimizer", otr_optimizer_norm(nullptr, &shard_, 1, &real_)),
              ROW("shards", otr_optimizer_norm(optimizer_, nullptr, 1, &real_)),
              ROW("out_norm", otr_optimizer_norm(optimizer_, &shard_, 1, nullptr)),
              ROW("optimizer", otr_optimizer_prepare(nullptr, &shard_, 1)),
              ROW("shards", otr_optimizer_prepare(optimizer_, nullptr, 1)),
              ROW("optimizer", otr_optimizer_save(nullptr, &shard_, 1, "/", "a", nullptr)),
              ROW("shards", otr_optimizer_save(optimizer_, nullptr, 1, "/", "a", nullptr)),
              ROW("directory", otr_optimizer_save(optimizer_, &shard_, 1, nullptr, "a", nullptr)),
              ROW("tag", otr_optimizer_save(optimizer_, &shard_, 1, "/", nullptr, nullptr)),
              ROW("optimizer", otr_optimizer_load(nullptr, &shard_, 1, "/", "a", nullptr)),
              ROW("shards", otr_optimizer_load(optimizer_, nullptr, 1, "/", "a", nullptr)),
              ROW("directory", otr_optimizer_load(optimizer_, &shard_, 1, nullptr, "a", nullptr)),
              ROW("snapshot", otr_optimizer_snapshot(optimizer_, &shard_, 1, nullptr, nullptr)),
              ROW("snapshot", otr_optimizer_restore(optimizer_, &shard_, 1, nullptr)),
              ROW("optimizer", otr_optimizer_step(nullptr, &shard_, 1, nullptr)),
              ROW("shards", otr_optimizer_step(optimizer_, nullptr, 1, nullptr)),
              ROW("shards", otr_optimizer_step(optimizer_, none, 1, nullptr))});
  // A slot was never asked for: the failures above left the pass as it was.
  EXPECT_OK(otr_pass_get_slot(pass_, 0, &out_tensor_));
}

TEST_F(WrongPointer, NullInEveryFormOfBackward) {
  otr_call_info info{};
  info.struct_size = sizeof info;
  const auto vjp = [](otr_pass*, const otr_tensor*, int64_t, void*) { return int32_t{0}; };
  expect_all(OTR_E_ARGUMENT,
             {ROW("engine", otr_engine_backward(nullptr, nullptr, 0, nullptr, vjp, nullptr)),
              ROW("output_grads", otr_engine_backward(engine_, nullptr, 1, nullptr, vjp, nullptr)),
              ROW("vjp", otr_engine_backward(engine_, nullptr, 0, nullptr, nullptr, nullptr)),
              ROW("pass", otr_pass_get_tag(nullptr, &info)),
              ROW("info", otr_pass_get_tag(pass_, nullptr)),
              ROW("pass", otr_pass_unscale(nullptr, &tensor_, &tensor_)),
              ROW("grad", otr_pass_unscale(pass_, nullptr, &tensor_)),
              ROW("out", otr_pass_unscale(pass_, &tensor_, nullptr)),
              ROW("pass", otr_pass_get_seed_overflow(nullptr, &count_)),
              ROW("out_index", otr_pass_get_seed_overflow(pass_, nullptr)),
              ROW("engine", otr_engine_reduce(nullptr, nullptr)),
              ROW("engine", otr_engine_has_grad(nullptr, 0, &number_)),
              ROW("out_has_grad", otr_engine_has_grad(engine_, 0, nullptr)),
              ROW("engine", otr_engine_discard(nullptr)),
              ROW("engine", otr_engine_get_progress(nullptr, nullptr, &size_)),
              ROW("inout_size", otr_engine_get_progress(engine_, nullptr, nullptr)),
              ROW("engine", otr_engine_set_progress(nullptr, "{}")),
              ROW("progress_json", otr_engine_set_progress(engine_, nullptr)),
              ROW("engines", otr_step_many(nullptr, 1, comm_, nullptr)),
              ROW("engine", otr_engine_step_begin(nullptr)),
              ROW("engine", otr_engine_report(nullptr, 0, &report_)),
              ROW("report", otr_engine_report(engine_, 0, nullptr)),
              ROW("engine", otr_engine_set_boundary(nullptr, OTR_BOUNDARY_NO)),
              ROW("engine", otr_engine_get_boundary(nullptr, &number_)),
              ROW("out_is_boundary", otr_engine_get_boundary(engine_, nullptr)),
              ROW("engine", otr_engine_get_loss_scale(nullptr, &real_)),
              ROW("out_scale", otr_engine_get_loss_scale(engine_, nullptr)),
              ROW("engine", otr_engine_local_range(nullptr, 0, &id_, &count_)),
              ROW("out_first", otr_engine_local_range(engine_, 0, nullptr, &count_)),
              ROW("out_count", otr_engine_local_range(engine_, 0, &id_, nullptr)),
              ROW("engine", otr_engine_local_read(nullptr, 0, OTR_VALUE_MASTER, &tensor_)),
              ROW("out", otr_engine_local_read(engine_, 0, OTR_VALUE_MASTER, nullptr)),
              ROW("engine", otr_engine_local_write(nullptr, 0, OTR_VALUE_MASTER, &tensor_)),
              ROW("source", otr_engine_local_write(engine_, 0, OTR_VALUE_MASTER, nullptr)),
              ROW("engine", otr_engine_set_trainable(nullptr, 0, 1)),
              ROW("comm", otr_comm_duplicate(nullptr, out_comms_)),
              ROW("out_comm", otr_comm_duplicate(comm_, nullptr)),
              ROW("world", otr_comm_create_hierarchical(nullptr, comm_, comm_, out_comms_)),
              ROW("host", otr_comm_create_hierarchical(comm_, nullptr, comm_, out_comms_)),
              ROW("across", otr_comm_create_hierarchical(comm_, comm_, nullptr, out_comms_)),
              ROW("out_comm", otr_comm_create_hierarchical(comm_, comm_, comm_, nullptr)),
              ROW("comm", otr_comm_split(nullptr, 0, 0, out_comms_)),
              ROW("out_comm", otr_comm_split(comm_, 0, 0, nullptr)),
              ROW("context", otr_comm_create_custom(nullptr, nullptr, out_comms_)),
              ROW("out_comm", otr_comm_create_custom(context_, nullptr, nullptr))});
}

TEST_F(WrongPointer, HandleOfAnotherKind) {
  auto* not_context = as_kind<otr_context>(comm_);
  auto* not_comm = as_kind<otr_comm>(context_);
  auto* not_engine = as_kind<otr_engine>(pass_);
  auto* not_pass = as_kind<otr_pass>(engine_);
  auto* not_shard = as_kind<otr_shard>(optimizer_);
  auto* not_optimizer = as_kind<otr_optimizer>(shard_);
  expect_all(
      OTR_E_ARGUMENT,
      {ROW("context", otr_comm_create_self(not_context, out_comms_)),
       ROW("comm", otr_comm_barrier(not_comm)),
       ROW("comm", otr_engine_create(not_comm, nullptr, &out_engine_)),
       ROW("engine", otr_engine_commit(not_engine)),
       ROW("engine", otr_engine_parameter_count(not_engine, &count_)),
       ROW("engine", otr_pass_begin(not_engine, nullptr, 0, nullptr, &out_pass_)),
       ROW("pass", otr_pass_end(not_pass)), ROW("shard", otr_shard_state_bytes(not_shard, &bytes_)),
       ROW("optimizer", otr_optimizer_set_value(not_optimizer, "lr", 1))});
  // A destroy of another kind is a no-op.
  otr_pass_destroy(not_pass);
  otr_engine_destroy(not_engine);
  EXPECT_OK(otr_pass_end(pass_));
}

TEST_F(WrongPointer, NegativeCounts) {
  expect_all(OTR_E_ARGUMENT,
             {ROW("-1", otr_engine_acquire(engine_, &id_, -1, nullptr, &out_tensor_)),
              ROW("-2", otr_engine_release(engine_, &id_, -2, nullptr)),
              ROW("-3", otr_engine_prefetch(engine_, &id_, -3, nullptr)),
              ROW("-4", otr_pass_begin(engine_, &tensor_, -4, nullptr, &out_pass_)),
              ROW("-5", otr_optimizer_step(optimizer_, &shard_, -5, nullptr))});
}

TEST_F(WrongPointer, EmptyListsNeedNoPointer) {
  EXPECT_OK(otr_engine_acquire(engine_, nullptr, 0, nullptr, nullptr));
  EXPECT_OK(otr_engine_release(engine_, nullptr, 0, nullptr));
  EXPECT_OK(otr_engine_prefetch(engine_, nullptr, 0, nullptr));
  EXPECT_OK(otr_comm_broadcast(comm_, nullptr, 0, 0));
  EXPECT_OK(otr_comm_all_gather(comm_, nullptr, 0, nullptr));
  EXPECT_OK(otr_comm_all_reduce_sum(comm_, nullptr, 0));
  EXPECT_OK(otr_optimizer_step(optimizer_, nullptr, 0, nullptr));
}

// "on failure they hold NULL or 0": whatever made the call fail, a NULL handle included.
class OutputsOfAFailure : public WrongPointer {
 protected:
  OutputsOfAFailure() {
    std::memset(static_cast<void*>(&garbage_), 0xab, sizeof garbage_);
    out_context_ = as_kind<otr_context>(&byte_);
    out_engine_ = as_kind<otr_engine>(&byte_);
    out_pass_ = as_kind<otr_pass>(&byte_);
    out_shard_ = as_kind<otr_shard>(&byte_);
    out_optimizer_ = as_kind<otr_optimizer>(&byte_);
  }
  void expect_cleared(const char* call, int32_t status, const otr_tensor& t) {
    EXPECT_NE(status, OTR_OK) << call;
    EXPECT_EQ(t.data, nullptr) << call;
    EXPECT_EQ(t.shape, nullptr) << call;
    EXPECT_EQ(t.ndim, 0) << call;
  }
  otr_tensor garbage_;
};

TEST_F(OutputsOfAFailure, AreNullForHandles) {
  otr_context_options bad{};
  EXPECT_NE(otr_context_create(&bad, &out_context_), OTR_OK);
  EXPECT_EQ(out_context_, nullptr);
  const auto fill = [&] { out_comms_[0] = out_comms_[1] = as_kind<otr_comm>(&byte_); };
  fill();
  EXPECT_NE(otr_comm_create_self(nullptr, out_comms_), OTR_OK);
  EXPECT_EQ(out_comms_[0], nullptr);
  fill();
  EXPECT_NE(otr_comm_create_threads(nullptr, 2, nullptr, out_comms_), OTR_OK);
  EXPECT_EQ(out_comms_[0], nullptr);
  EXPECT_EQ(out_comms_[1], nullptr);
  fill();
  EXPECT_NE(otr_comm_create_shm(context_, nullptr, out_comms_), OTR_OK);
  EXPECT_EQ(out_comms_[0], nullptr);
  fill();
  EXPECT_NE(otr_comm_from_env(nullptr, nullptr, out_comms_), OTR_OK);
  EXPECT_EQ(out_comms_[0], nullptr);
  EXPECT_NE(otr_engine_create(comm_, "{", &out_engine_), OTR_OK);
  EXPECT_EQ(out_engine_, nullptr);
  EXPECT_NE(otr_pass_begin(nullptr, nullptr, 0, nullptr, &out_pass_), OTR_OK);
  EXPECT_EQ(out_pass_, nullptr);
  EXPECT_NE(otr_shard_wrap(nullptr, &tensor_, &tensor_, nullptr, &out_shard_), OTR_OK);
  EXPECT_EQ(out_shard_, nullptr);
  EXPECT_NE(otr_optimizer_create(context_, "[]", &out_optimizer_), OTR_OK);
  EXPECT_EQ(out_optimizer_, nullptr);
}

TEST_F(OutputsOfAFailure, AreZeroForNumbers) {
  number_ = 5;
  EXPECT_NE(otr_comm_rank(nullptr, &number_), OTR_OK);
  EXPECT_EQ(number_, 0);
  number_ = 5;
  EXPECT_NE(otr_comm_size(nullptr, &number_), OTR_OK);
  EXPECT_EQ(number_, 0);
  id_ = 5;
  EXPECT_NE(otr_engine_add_parameter(nullptr, "p", &tensor_, nullptr, &id_), OTR_OK);
  EXPECT_EQ(id_, 0);
  count_ = 5;
  EXPECT_NE(otr_engine_live_children(nullptr, &count_), OTR_OK);
  EXPECT_EQ(count_, 0);
  count_ = 5;
  EXPECT_NE(otr_engine_parameter_count(nullptr, &count_), OTR_OK);
  EXPECT_EQ(count_, 0);
  id_ = 5;
  EXPECT_NE(otr_engine_parameter_id(engine_, "none", &id_), OTR_OK);
  EXPECT_EQ(id_, 0);
  text_ = &byte_;
  EXPECT_NE(otr_engine_parameter_name(engine_, 9, &text_), OTR_OK);
  EXPECT_EQ(text_, nullptr);
  number_ = 5;
  dims_ = shape_;
  EXPECT_NE(otr_engine_parameter_shape(engine_, 9, &number_, &dims_), OTR_OK);
  EXPECT_EQ(number_, 0);
  EXPECT_EQ(dims_, nullptr);
  real_ = 5;
  EXPECT_NE(otr_engine_get_group_value(engine_, nullptr, "none", &real_), OTR_OK);
  EXPECT_EQ(real_, 0);
  real_ = 5;
  EXPECT_NE(otr_pass_get_scale(nullptr, &real_), OTR_OK);
  EXPECT_EQ(real_, 0);
  bytes_ = 5;
  EXPECT_NE(otr_shard_state_bytes(nullptr, &bytes_), OTR_OK);
  EXPECT_EQ(bytes_, 0);
}

TEST_F(OutputsOfAFailure, OneOfTwoIsClearedWhenTheOtherIsMissing) {
  dims_ = shape_;
  EXPECT_NE(otr_engine_parameter_shape(engine_, 0, nullptr, &dims_), OTR_OK);
  EXPECT_EQ(dims_, nullptr);
  number_ = 5;
  EXPECT_NE(otr_engine_parameter_shape(engine_, 0, &number_, nullptr), OTR_OK);
  EXPECT_EQ(number_, 0);
}

TEST_F(OutputsOfAFailure, AreClearedForTensors) {
  otr_tensor t = garbage_;
  expect_cleared("otr_pass_get_output_grad", otr_pass_get_output_grad(pass_, 0, &t), t);
  t = garbage_;
  expect_cleared("otr_pass_get_slot", otr_pass_get_slot(pass_, 9, &t), t);
  t = garbage_;
  expect_cleared("otr_shard_state", otr_shard_state(shard_, OTR_VALUE_EXP_AVG, &t), t);
  t = garbage_;
  expect_cleared("otr_engine_acquire, NULL engine",
                 otr_engine_acquire(nullptr, &id_, 1, nullptr, &t), t);
  t = garbage_;
  expect_cleared("otr_engine_acquire, NULL ids",
                 otr_engine_acquire(engine_, nullptr, 1, nullptr, &t), t);
  otr_tensor two[2] = {garbage_, garbage_};
  const int64_t ids[2] = {0, 9};
  const int32_t status = otr_engine_acquire(engine_, ids, 2, nullptr, two);
  expect_cleared("otr_engine_acquire, an unknown id", status, two[0]);
  expect_cleared("otr_engine_acquire, an unknown id", status, two[1]);
}

}  // namespace
