// SPDX-License-Identifier: Apache-2.0
// Generated from outrigger.h by bindings/gen; not to be edited.

%ignore otr_machine_info;
%rename(machine_info) otr_plain_machine_info;
%newobject otr_plain_machine_info;
%inline %{
static char *otr_plain_machine_info(int32_t *status) {
  char *made = NULL;
  *status = otr_swig_machine_info(&made);
  return otr_swig_if_ok(made, status);
}
%}

%ignore otr_tensor_init;  // Tensor's constructor

%ignore otr_context_create;
%rename(context_create) otr_plain_context_create;
%newobject otr_plain_context_create;
%inline %{
static otr_context *otr_plain_context_create(const otr_context_options *options, int32_t *status) {
  otr_context *made = NULL;
  *status = otr_context_create(options, &made);
  return made;
}
%}

%ignore otr_context_load_plugin;
%rename(context_load_plugin) otr_plain_context_load_plugin;
%inline %{
static void otr_plain_context_load_plugin(otr_context *context, const char *name, int32_t *status) {
  *status = otr_context_load_plugin(context, name);
}
%}

%ignore otr_device_count;
%rename(device_count) otr_plain_device_count;
%inline %{
static int32_t otr_plain_device_count(otr_context *context, int32_t device_type, int32_t *status) {
  int32_t made = 0;
  *status = otr_device_count(context, device_type, &made);
  return made;
}
%}

%ignore otr_device_set_value;
%rename(device_set_value) otr_plain_device_set_value;
%inline %{
static void otr_plain_device_set_value(otr_context *context, int32_t device_type, int32_t device_id, const char *name, double value, int32_t *status) {
  *status = otr_device_set_value(context, device_type, device_id, name, value);
}
%}

%ignore otr_device_get_value;
%rename(device_get_value) otr_plain_device_get_value;
%inline %{
static double otr_plain_device_get_value(otr_context *context, int32_t device_type, int32_t device_id, const char *name, int32_t *status) {
  double made = 0;
  *status = otr_device_get_value(context, device_type, device_id, name, &made);
  return made;
}
%}

%ignore otr_device_set_allocator;  // functions of the language

%ignore otr_device_allocate;  // device memory

%ignore otr_device_free;  // device memory

%ignore otr_tensor_copy;
%rename(tensor_copy) otr_plain_tensor_copy;
%inline %{
static void otr_plain_tensor_copy(otr_context *context, const otr_tensor *to, const otr_tensor *from, int32_t *status) {
  if (otr_swig_writable(to, "to", status) && otr_swig_readable(from, "from", status)) *status = otr_tensor_copy(context, to, from);
}
%}

%ignore otr_comm_create_self;
%rename(comm_create_self) otr_plain_comm_create_self;
%newobject otr_plain_comm_create_self;
%inline %{
static otr_comm *otr_plain_comm_create_self(otr_context *context, int32_t *status) {
  otr_comm *made = NULL;
  *status = otr_comm_create_self(context, &made);
  return made;
}
%}

%ignore otr_comm_create_threads;
%rename(comm_create_threads) otr_plain_comm_create_threads;
%newobject otr_plain_comm_create_threads;
%inline %{
static otr_swig_comms *otr_plain_comm_create_threads(otr_context *context, int32_t world_size, const otr_comm_options *options, int32_t *status) {
  otr_swig_comms *made = otr_swig_new_comms(world_size, status);
  if (*status == OTR_OK) *status = otr_comm_create_threads(context, world_size, options, made->items);
  return otr_swig_comms_if_ok(made, status);
}
%}

%ignore otr_comm_create_shm;
%rename(comm_create_shm) otr_plain_comm_create_shm;
%newobject otr_plain_comm_create_shm;
%inline %{
static otr_comm *otr_plain_comm_create_shm(otr_context *context, const otr_comm_options *options, int32_t *status) {
  otr_comm *made = NULL;
  *status = otr_comm_create_shm(context, options, &made);
  return made;
}
%}

%ignore otr_comm_from_env;
%rename(comm_from_env) otr_plain_comm_from_env;
%newobject otr_plain_comm_from_env;
%inline %{
static otr_comm *otr_plain_comm_from_env(otr_context *context, const otr_comm_options *options, int32_t *status) {
  otr_comm *made = NULL;
  *status = otr_comm_from_env(context, options, &made);
  return made;
}
%}

%ignore otr_comm_create_custom;  // functions of the language

%ignore otr_comm_create_mpi;
%rename(comm_create_mpi) otr_plain_comm_create_mpi;
%newobject otr_plain_comm_create_mpi;
%inline %{
static otr_comm *otr_plain_comm_create_mpi(otr_context *context, int64_t mpi_comm, const otr_comm_options *options, int32_t *status) {
  otr_comm *made = NULL;
  *status = otr_comm_create_mpi(context, (const void *)(intptr_t)mpi_comm, options, &made);
  return made;
}
%}

%ignore otr_comm_create_hierarchical;
%rename(comm_create_hierarchical) otr_plain_comm_create_hierarchical;
%newobject otr_plain_comm_create_hierarchical;
%inline %{
static otr_comm *otr_plain_comm_create_hierarchical(otr_comm *world, otr_comm *host, otr_comm *across, int32_t *status) {
  otr_comm *made = NULL;
  *status = otr_comm_create_hierarchical(world, host, across, &made);
  return made;
}
%}

%ignore otr_comm_duplicate;
%rename(comm_duplicate) otr_plain_comm_duplicate;
%newobject otr_plain_comm_duplicate;
%inline %{
static otr_comm *otr_plain_comm_duplicate(otr_comm *comm, int32_t *status) {
  otr_comm *made = NULL;
  *status = otr_comm_duplicate(comm, &made);
  return made;
}
%}

%ignore otr_comm_split;
%rename(comm_split) otr_plain_comm_split;
%newobject otr_plain_comm_split;
%inline %{
static otr_comm *otr_plain_comm_split(otr_comm *comm, int32_t color, int32_t key, int32_t *status) {
  otr_comm *made = NULL;
  *status = otr_comm_split(comm, color, key, &made);
  return made;
}
%}

%ignore otr_comm_rank;
%rename(comm_rank) otr_plain_comm_rank;
%inline %{
static int32_t otr_plain_comm_rank(const otr_comm *comm, int32_t *status) {
  int32_t made = 0;
  *status = otr_comm_rank(comm, &made);
  return made;
}
%}

%ignore otr_comm_size;
%rename(comm_size) otr_plain_comm_size;
%inline %{
static int32_t otr_plain_comm_size(const otr_comm *comm, int32_t *status) {
  int32_t made = 0;
  *status = otr_comm_size(comm, &made);
  return made;
}
%}

%ignore otr_comm_shares_memory;
%rename(comm_shares_memory) otr_plain_comm_shares_memory;
%inline %{
static int32_t otr_plain_comm_shares_memory(const otr_comm *comm, int32_t *status) {
  int32_t made = 0;
  *status = otr_comm_shares_memory(comm, &made);
  return made;
}
%}

%ignore otr_comm_barrier;
%rename(comm_barrier) otr_plain_comm_barrier;
%inline %{
static void otr_plain_comm_barrier(otr_comm *comm, int32_t *status) {
  *status = otr_comm_barrier(comm);
}
%}

%ignore otr_comm_broadcast;
%rename(comm_broadcast) otr_plain_comm_broadcast;
%inline %{
static void otr_plain_comm_broadcast(otr_comm *comm, const otr_tensor *data, int32_t root, int32_t *status) {
  if (otr_swig_writable(data, "data", status)) *status = otr_comm_broadcast(comm, otr_swig_data(data), otr_swig_bytes(data), root);
}
%}

%ignore otr_comm_all_gather;
%rename(comm_all_gather) otr_plain_comm_all_gather;
%inline %{
static void otr_plain_comm_all_gather(otr_comm *comm, const otr_tensor *mine, const otr_tensor *all, int32_t *status) {
  if (otr_swig_readable(mine, "mine", status) && otr_swig_writable(all, "all", status) && otr_swig_holds_all(comm, mine, all, status)) *status = otr_comm_all_gather(comm, otr_swig_data(mine), otr_swig_bytes(mine), otr_swig_data(all));
}
%}

%ignore otr_comm_all_to_all;  // parts of several sizes

%ignore otr_comm_all_reduce_sum;
%rename(comm_all_reduce_sum) otr_plain_comm_all_reduce_sum;
%inline %{
static void otr_plain_comm_all_reduce_sum(otr_comm *comm, const otr_tensor *values, int32_t *status) {
  if (otr_swig_writable(values, "values", status) && otr_swig_is(values, "values", "float64", status)) *status = otr_comm_all_reduce_sum(comm, (double *)otr_swig_data(values), (size_t)otr_swig_elements(values));
}
%}

%ignore otr_comm_abort;
%rename(comm_abort) otr_plain_comm_abort;
%inline %{
static void otr_plain_comm_abort(otr_comm *comm, const char *reason, int32_t *status) {
  *status = otr_comm_abort(comm, reason);
}
%}

%ignore otr_engine_create;
%rename(engine_create) otr_plain_engine_create;
%newobject otr_plain_engine_create;
%inline %{
static otr_engine *otr_plain_engine_create(otr_comm *comm, const char *config_json, int32_t *status) {
  otr_engine *made = NULL;
  *status = otr_engine_create(comm, config_json, &made);
  return made;
}
%}

%ignore otr_engine_set_device;
%rename(engine_set_device) otr_plain_engine_set_device;
%inline %{
static void otr_plain_engine_set_device(otr_engine *engine, int32_t device_type, int32_t device_id, int32_t *status) {
  *status = otr_engine_set_device(engine, device_type, device_id);
}
%}

%ignore otr_engine_add_parameter;
%rename(engine_add_parameter) otr_plain_engine_add_parameter;
%inline %{
static int64_t otr_plain_engine_add_parameter(otr_engine *engine, const char *name, const otr_tensor *initial, const otr_param_options *options, int32_t *status) {
  int64_t made = 0;
  if (otr_swig_readable(initial, "initial", status)) *status = otr_engine_add_parameter(engine, name, initial, options, &made);
  return made;
}
%}

%rename(engine_declare_parameter) otr_plain_engine_declare_parameter;
%inline %{
static int64_t otr_plain_engine_declare_parameter(otr_engine *engine, const char *name, const int64_t *shape, int64_t ndim, const otr_param_options *options, int32_t *status) {
  int64_t made = 0;
  *status = otr_swig_engine_declare_parameter(engine, name, shape, ndim, options, &made);
  return made;
}
%}

%ignore otr_engine_commit;
%rename(engine_commit) otr_plain_engine_commit;
%inline %{
static void otr_plain_engine_commit(otr_engine *engine, int32_t *status) {
  *status = otr_engine_commit(engine);
}
%}

%ignore otr_engine_set_initial;
%rename(engine_set_initial) otr_plain_engine_set_initial;
%inline %{
static void otr_plain_engine_set_initial(otr_engine *engine, const int64_t *ids, int64_t count, const otr_swig_tensors *values, int32_t *status) {
  if (otr_swig_one_each(values, count, status)) *status = otr_engine_set_initial(engine, ids, count, otr_swig_items(values));
}
%}

%ignore otr_engine_finalize;
%rename(engine_finalize) otr_plain_engine_finalize;
%inline %{
static void otr_plain_engine_finalize(otr_engine *engine, int32_t *status) {
  *status = otr_engine_finalize(engine);
}
%}

%ignore otr_engine_abort;
%rename(engine_abort) otr_plain_engine_abort;
%inline %{
static void otr_plain_engine_abort(otr_engine *engine, const char *reason, int32_t *status) {
  *status = otr_engine_abort(engine, reason);
}
%}

%ignore otr_engine_check;
%rename(engine_check) otr_plain_engine_check;
%inline %{
static void otr_plain_engine_check(otr_engine *engine, int32_t *status) {
  *status = otr_engine_check(engine);
}
%}

%ignore otr_engine_live_children;
%rename(engine_live_children) otr_plain_engine_live_children;
%inline %{
static int64_t otr_plain_engine_live_children(const otr_engine *engine, int32_t *status) {
  int64_t made = 0;
  *status = otr_engine_live_children(engine, &made);
  return made;
}
%}

%ignore otr_engine_parameter_count;
%rename(engine_parameter_count) otr_plain_engine_parameter_count;
%inline %{
static int64_t otr_plain_engine_parameter_count(const otr_engine *engine, int32_t *status) {
  int64_t made = 0;
  *status = otr_engine_parameter_count(engine, &made);
  return made;
}
%}

%ignore otr_engine_parameter_id;
%rename(engine_parameter_id) otr_plain_engine_parameter_id;
%inline %{
static int64_t otr_plain_engine_parameter_id(const otr_engine *engine, const char *name, int32_t *status) {
  int64_t made = 0;
  *status = otr_engine_parameter_id(engine, name, &made);
  return made;
}
%}

%ignore otr_engine_parameter_name;
%rename(engine_parameter_name) otr_plain_engine_parameter_name;
%inline %{
static const char *otr_plain_engine_parameter_name(const otr_engine *engine, int64_t id, int32_t *status) {
  const char *made = NULL;
  *status = otr_engine_parameter_name(engine, id, &made);
  return made;
}
%}

%ignore otr_engine_parameter_shape;
%rename(engine_parameter_shape) otr_plain_engine_parameter_shape;
%newobject otr_plain_engine_parameter_shape;
%inline %{
static otr_tensor *otr_plain_engine_parameter_shape(const otr_engine *engine, int64_t id, int32_t *status) {
  int32_t made = 0;
  const int64_t *shape = NULL;
  *status = otr_engine_parameter_shape(engine, id, &made, &shape);
  return otr_swig_shape(made, shape, status);
}
%}

%ignore otr_engine_acquire;
%rename(engine_acquire) otr_plain_engine_acquire;
%newobject otr_plain_engine_acquire;
%inline %{
static otr_swig_tensors *otr_plain_engine_acquire(otr_engine *engine, const int64_t *ids, int64_t count, const otr_call_info *info, int32_t *status) {
  otr_swig_tensors *made = otr_swig_new_tensors(count, status);
  if (*status == OTR_OK) *status = otr_engine_acquire(engine, ids, count, info, made->items);
  return otr_swig_tensors_if_ok(made, status);
}
%}

%ignore otr_engine_release;
%rename(engine_release) otr_plain_engine_release;
%inline %{
static void otr_plain_engine_release(otr_engine *engine, const int64_t *ids, int64_t count, const otr_call_info *info, int32_t *status) {
  *status = otr_engine_release(engine, ids, count, info);
}
%}

%ignore otr_engine_prefetch;
%rename(engine_prefetch) otr_plain_engine_prefetch;
%inline %{
static void otr_plain_engine_prefetch(otr_engine *engine, const int64_t *ids, int64_t count, const otr_call_info *info, int32_t *status) {
  *status = otr_engine_prefetch(engine, ids, count, info);
}
%}

%ignore otr_engine_parameter_read;
%rename(engine_parameter_read) otr_plain_engine_parameter_read;
%inline %{
static void otr_plain_engine_parameter_read(otr_engine *engine, int64_t id, int32_t value, const otr_tensor *out, int32_t *status) {
  if (otr_swig_writable(out, "out", status)) *status = otr_engine_parameter_read(engine, id, value, out);
}
%}

%ignore otr_engine_parameter_write;
%rename(engine_parameter_write) otr_plain_engine_parameter_write;
%inline %{
static void otr_plain_engine_parameter_write(otr_engine *engine, int64_t id, int32_t value, const otr_tensor *source, int32_t *status) {
  if (otr_swig_readable(source, "source", status)) *status = otr_engine_parameter_write(engine, id, value, source);
}
%}

%ignore otr_engine_local_range;
%rename(engine_local_range) otr_plain_engine_local_range;
%newobject otr_plain_engine_local_range;
%inline %{
static otr_swig_range *otr_plain_engine_local_range(const otr_engine *engine, int64_t id, int32_t *status) {
  int64_t made = 0, count = 0;
  *status = otr_engine_local_range(engine, id, &made, &count);
  return otr_swig_new_range(made, count, status);
}
%}

%ignore otr_engine_local_read;
%rename(engine_local_read) otr_plain_engine_local_read;
%inline %{
static void otr_plain_engine_local_read(otr_engine *engine, int64_t id, int32_t value, const otr_tensor *out, int32_t *status) {
  if (otr_swig_writable(out, "out", status)) *status = otr_engine_local_read(engine, id, value, out);
}
%}

%ignore otr_engine_local_write;
%rename(engine_local_write) otr_plain_engine_local_write;
%inline %{
static void otr_plain_engine_local_write(otr_engine *engine, int64_t id, int32_t value, const otr_tensor *source, int32_t *status) {
  if (otr_swig_readable(source, "source", status)) *status = otr_engine_local_write(engine, id, value, source);
}
%}

%ignore otr_engine_set_trainable;
%rename(engine_set_trainable) otr_plain_engine_set_trainable;
%inline %{
static void otr_plain_engine_set_trainable(otr_engine *engine, int64_t id, int32_t trainable, int32_t *status) {
  *status = otr_engine_set_trainable(engine, id, trainable);
}
%}

%ignore otr_engine_set_group_value;
%rename(engine_set_group_value) otr_plain_engine_set_group_value;
%inline %{
static void otr_plain_engine_set_group_value(otr_engine *engine, const char *group, const char *name, double value, int32_t *status) {
  *status = otr_engine_set_group_value(engine, group, name, value);
}
%}

%ignore otr_engine_get_group_value;
%rename(engine_get_group_value) otr_plain_engine_get_group_value;
%inline %{
static double otr_plain_engine_get_group_value(const otr_engine *engine, const char *group, const char *name, int32_t *status) {
  double made = 0;
  *status = otr_engine_get_group_value(engine, group, name, &made);
  return made;
}
%}

%ignore otr_engine_config;
%rename(engine_config) otr_plain_engine_config;
%newobject otr_plain_engine_config;
%inline %{
static char *otr_plain_engine_config(const otr_engine *engine, int32_t *status) {
  char *made = NULL;
  *status = otr_swig_engine_config(engine, &made);
  return otr_swig_if_ok(made, status);
}
%}

%ignore otr_config_check;
%rename(config_check) otr_plain_config_check;
%newobject otr_plain_config_check;
%inline %{
static char *otr_plain_config_check(const char *config_json, int32_t world_size, int32_t *status) {
  char *made = NULL;
  *status = otr_swig_config_check(config_json, world_size, &made);
  return otr_swig_if_ok(made, status);
}
%}

%ignore otr_engine_memory;
%rename(engine_memory) otr_plain_engine_memory;
%newobject otr_plain_engine_memory;
%inline %{
static otr_swig_entries *otr_plain_engine_memory(const otr_engine *engine, int32_t *status) {
  otr_memory_entry *made = NULL;
  size_t count = 0;
  *status = otr_swig_engine_memory(engine, &made, &count);
  return otr_swig_own_entries(made, count, status);
}
%}

%ignore otr_engine_host_memory;
%rename(engine_host_memory) otr_plain_engine_host_memory;
%newobject otr_plain_engine_host_memory;
%inline %{
static char *otr_plain_engine_host_memory(const otr_engine *engine, int32_t *status) {
  char *made = NULL;
  *status = otr_swig_engine_host_memory(engine, &made);
  return otr_swig_if_ok(made, status);
}
%}

%ignore otr_engine_offload_states;
%rename(engine_offload_states) otr_plain_engine_offload_states;
%inline %{
static void otr_plain_engine_offload_states(otr_engine *engine, const otr_offload_options *options, int32_t *status) {
  *status = otr_engine_offload_states(engine, options);
}
%}

%ignore otr_engine_reload_states;
%rename(engine_reload_states) otr_plain_engine_reload_states;
%inline %{
static void otr_plain_engine_reload_states(otr_engine *engine, int32_t *status) {
  *status = otr_engine_reload_states(engine);
}
%}

%ignore otr_engine_estimate;
%rename(engine_estimate) otr_plain_engine_estimate;
%newobject otr_plain_engine_estimate;
%inline %{
static otr_swig_entries *otr_plain_engine_estimate(const otr_engine *engine, const otr_estimate_options *options, int32_t *status) {
  otr_memory_entry *made = NULL;
  size_t count = 0;
  *status = otr_swig_engine_estimate(engine, options, &made, &count);
  return otr_swig_own_entries(made, count, status);
}
%}

%ignore otr_pass_begin;
%rename(pass_begin) otr_plain_pass_begin;
%newobject otr_plain_pass_begin;
%inline %{
static otr_pass *otr_plain_pass_begin(otr_engine *engine, const otr_swig_tensors *output_grads, const otr_call_info *info, int32_t *status) {
  otr_pass *made = NULL;
  *status = otr_pass_begin(engine, otr_swig_items(output_grads), otr_swig_count(output_grads), info, &made);
  return made;
}
%}

%ignore otr_pass_get_output_grad;
%rename(pass_get_output_grad) otr_plain_pass_get_output_grad;
%newobject otr_plain_pass_get_output_grad;
%inline %{
static otr_tensor *otr_plain_pass_get_output_grad(otr_pass *pass, int64_t index, int32_t *status) {
  otr_tensor made = {0};
  *status = otr_pass_get_output_grad(pass, index, &made);
  return otr_swig_show(&made, 0, status);
}
%}

%ignore otr_pass_get_scale;
%rename(pass_get_scale) otr_plain_pass_get_scale;
%inline %{
static double otr_plain_pass_get_scale(const otr_pass *pass, int32_t *status) {
  double made = 0;
  *status = otr_pass_get_scale(pass, &made);
  return made;
}
%}

%ignore otr_pass_get_tag;
%rename(pass_get_tag) otr_plain_pass_get_tag;
%inline %{
static void otr_plain_pass_get_tag(const otr_pass *pass, otr_call_info *info, int32_t *status) {
  *status = otr_pass_get_tag(pass, info);
}
%}

%ignore otr_pass_unscale;
%rename(pass_unscale) otr_plain_pass_unscale;
%inline %{
static void otr_plain_pass_unscale(const otr_pass *pass, const otr_tensor *grad, const otr_tensor *out, int32_t *status) {
  if (otr_swig_readable(grad, "grad", status) && otr_swig_writable(out, "out", status)) *status = otr_pass_unscale(pass, grad, out);
}
%}

%ignore otr_pass_get_seed_overflow;
%rename(pass_get_seed_overflow) otr_plain_pass_get_seed_overflow;
%inline %{
static int64_t otr_plain_pass_get_seed_overflow(const otr_pass *pass, int32_t *status) {
  int64_t made = 0;
  *status = otr_pass_get_seed_overflow(pass, &made);
  return made;
}
%}

%ignore otr_pass_get_slot;
%rename(pass_get_slot) otr_plain_pass_get_slot;
%newobject otr_plain_pass_get_slot;
%inline %{
static otr_tensor *otr_plain_pass_get_slot(otr_pass *pass, int64_t id, int32_t *status) {
  otr_tensor made = {0};
  *status = otr_pass_get_slot(pass, id, &made);
  return otr_swig_show(&made, 0, status);
}
%}

%ignore otr_pass_add_grad;
%rename(pass_add_grad) otr_plain_pass_add_grad;
%inline %{
static void otr_plain_pass_add_grad(otr_pass *pass, int64_t id, const otr_tensor *grad, const otr_call_info *info, int32_t *status) {
  if (otr_swig_readable(grad, "grad", status)) *status = otr_pass_add_grad(pass, id, grad, info);
}
%}

%ignore otr_pass_end;
%rename(pass_end) otr_plain_pass_end;
%inline %{
static void otr_plain_pass_end(otr_pass *pass, int32_t *status) {
  *status = otr_pass_end(pass);
}
%}

%ignore otr_pass_abandon;
%rename(pass_abandon) otr_plain_pass_abandon;
%inline %{
static void otr_plain_pass_abandon(otr_pass *pass, int32_t *status) {
  *status = otr_pass_abandon(pass);
}
%}

%ignore otr_engine_backward;  // two lines over the pass

%ignore otr_engine_step;
%rename(engine_step) otr_plain_engine_step;
%newobject otr_plain_engine_step;
%inline %{
static otr_step_report *otr_plain_engine_step(otr_engine *engine, int32_t *status) {
  otr_step_report *made = (otr_step_report *)otr_swig_new_record(sizeof(*made), status);
  if (*status == OTR_OK) *status = otr_engine_step(engine, made);
  return otr_swig_if_ok(made, status);
}
%}

%ignore otr_engine_step_begin;
%rename(engine_step_begin) otr_plain_engine_step_begin;
%inline %{
static void otr_plain_engine_step_begin(otr_engine *engine, int32_t *status) {
  *status = otr_engine_step_begin(engine);
}
%}

%ignore otr_engine_report;
%rename(engine_report) otr_plain_engine_report;
%newobject otr_plain_engine_report;
%inline %{
static otr_step_report *otr_plain_engine_report(otr_engine *engine, double timeout_seconds, int32_t *status) {
  otr_step_report *made = (otr_step_report *)otr_swig_new_record(sizeof(*made), status);
  if (*status == OTR_OK) *status = otr_engine_report(engine, timeout_seconds, made);
  return otr_swig_if_ok(made, status);
}
%}

%ignore otr_engine_reduce;
%rename(engine_reduce) otr_plain_engine_reduce;
%newobject otr_plain_engine_reduce;
%inline %{
static otr_step_report *otr_plain_engine_reduce(otr_engine *engine, int32_t *status) {
  otr_step_report *made = (otr_step_report *)otr_swig_new_record(sizeof(*made), status);
  if (*status == OTR_OK) *status = otr_engine_reduce(engine, made);
  return otr_swig_if_ok(made, status);
}
%}

%ignore otr_engine_has_grad;
%rename(engine_has_grad) otr_plain_engine_has_grad;
%inline %{
static int32_t otr_plain_engine_has_grad(const otr_engine *engine, int64_t id, int32_t *status) {
  int32_t made = 0;
  *status = otr_engine_has_grad(engine, id, &made);
  return made;
}
%}

%ignore otr_engine_discard;
%rename(engine_discard) otr_plain_engine_discard;
%inline %{
static void otr_plain_engine_discard(otr_engine *engine, int32_t *status) {
  *status = otr_engine_discard(engine);
}
%}

%ignore otr_step_many;
%rename(step_many) otr_plain_step_many;
%newobject otr_plain_step_many;
%inline %{
static otr_swig_reports *otr_plain_step_many(const otr_swig_engines *engines, otr_comm *joint, int32_t *status) {
  otr_swig_reports *made = otr_swig_new_reports(otr_swig_engines_count(engines), status);
  if (*status == OTR_OK) *status = otr_step_many(otr_swig_engines_items(engines), otr_swig_engines_count(engines), joint, made->items);
  return otr_swig_reports_if_ok(made, status);
}
%}

%ignore otr_engine_set_boundary;
%rename(engine_set_boundary) otr_plain_engine_set_boundary;
%inline %{
static void otr_plain_engine_set_boundary(otr_engine *engine, int32_t boundary, int32_t *status) {
  *status = otr_engine_set_boundary(engine, boundary);
}
%}

%ignore otr_engine_get_boundary;
%rename(engine_get_boundary) otr_plain_engine_get_boundary;
%inline %{
static int32_t otr_plain_engine_get_boundary(const otr_engine *engine, int32_t *status) {
  int32_t made = 0;
  *status = otr_engine_get_boundary(engine, &made);
  return made;
}
%}

%ignore otr_engine_get_loss_scale;
%rename(engine_get_loss_scale) otr_plain_engine_get_loss_scale;
%inline %{
static double otr_plain_engine_get_loss_scale(const otr_engine *engine, int32_t *status) {
  double made = 0;
  *status = otr_engine_get_loss_scale(engine, &made);
  return made;
}
%}

%ignore otr_engine_get_progress;
%rename(engine_get_progress) otr_plain_engine_get_progress;
%newobject otr_plain_engine_get_progress;
%inline %{
static char *otr_plain_engine_get_progress(const otr_engine *engine, int32_t *status) {
  char *made = NULL;
  *status = otr_swig_engine_get_progress(engine, &made);
  return otr_swig_if_ok(made, status);
}
%}

%ignore otr_engine_set_progress;
%rename(engine_set_progress) otr_plain_engine_set_progress;
%inline %{
static void otr_plain_engine_set_progress(otr_engine *engine, const char *progress_json, int32_t *status) {
  *status = otr_engine_set_progress(engine, progress_json);
}
%}

%ignore otr_engine_watch;
%rename(engine_watch) otr_plain_engine_watch;
%inline %{
static void otr_plain_engine_watch(otr_engine *engine, const otr_watch_options *options, int32_t *status) {
  *status = otr_engine_watch(engine, options);
}
%}

%ignore otr_engine_note;
%rename(engine_note) otr_plain_engine_note;
%inline %{
static void otr_plain_engine_note(otr_engine *engine, const char *name, double value, int32_t *status) {
  *status = otr_engine_note(engine, name, value);
}
%}

%ignore otr_engine_get_record;
%rename(engine_get_record) otr_plain_engine_get_record;
%newobject otr_plain_engine_get_record;
%inline %{
static char *otr_plain_engine_get_record(const otr_engine *engine, int32_t *status) {
  char *made = NULL;
  *status = otr_swig_engine_get_record(engine, &made);
  return otr_swig_if_ok(made, status);
}
%}

%ignore otr_engine_save;
%rename(engine_save) otr_plain_engine_save;
%inline %{
static void otr_plain_engine_save(otr_engine *engine, const char *directory, const char *tag, const otr_save_options *options, int32_t *status) {
  *status = otr_engine_save(engine, directory, tag, options);
}
%}

%ignore otr_engine_wait_save;
%rename(engine_wait_save) otr_plain_engine_wait_save;
%newobject otr_plain_engine_wait_save;
%inline %{
static otr_save_status *otr_plain_engine_wait_save(otr_engine *engine, double timeout_seconds, int32_t *status) {
  otr_save_status *made = (otr_save_status *)otr_swig_new_record(sizeof(*made), status);
  if (*status == OTR_OK) *status = otr_engine_wait_save(engine, timeout_seconds, made);
  return otr_swig_if_ok(made, status);
}
%}

%ignore otr_engine_load;
%rename(engine_load) otr_plain_engine_load;
%inline %{
static void otr_plain_engine_load(otr_engine *engine, const char *directory, const char *tag, const otr_load_options *options, int32_t *status) {
  *status = otr_engine_load(engine, directory, tag, options);
}
%}

%ignore otr_snapshot_create;
%rename(snapshot_create) otr_plain_snapshot_create;
%newobject otr_plain_snapshot_create;
%inline %{
static otr_snapshot *otr_plain_snapshot_create(int32_t *status) {
  otr_snapshot *made = NULL;
  *status = otr_snapshot_create(&made);
  return made;
}
%}

%ignore otr_engine_snapshot;
%rename(engine_snapshot) otr_plain_engine_snapshot;
%inline %{
static void otr_plain_engine_snapshot(otr_engine *engine, otr_snapshot *snapshot, const otr_snapshot_options *options, int32_t *status) {
  *status = otr_engine_snapshot(engine, snapshot, options);
}
%}

%ignore otr_engine_restore;
%rename(engine_restore) otr_plain_engine_restore;
%inline %{
static void otr_plain_engine_restore(otr_engine *engine, const otr_swig_snapshots *snapshots, int32_t *status) {
  *status = otr_engine_restore(engine, otr_swig_snapshots_items(snapshots), otr_swig_snapshots_count(snapshots));
}
%}

%ignore otr_snapshot_get_info;
%rename(snapshot_get_info) otr_plain_snapshot_get_info;
%newobject otr_plain_snapshot_get_info;
%inline %{
static otr_snapshot_info *otr_plain_snapshot_get_info(const otr_snapshot *snapshot, int32_t *status) {
  otr_snapshot_info *made = (otr_snapshot_info *)otr_swig_new_record(sizeof(*made), status);
  if (*status == OTR_OK) *status = otr_snapshot_get_info(snapshot, made);
  return otr_swig_if_ok(made, status);
}
%}

%ignore otr_snapshot_part;
%rename(snapshot_part) otr_plain_snapshot_part;
%newobject otr_plain_snapshot_part;
%inline %{
static otr_tensor *otr_plain_snapshot_part(const otr_snapshot *snapshot, const char *name, int32_t *status) {
  void *made = NULL;
  size_t size = 0;
  *status = otr_swig_snapshot_part(snapshot, name, &made, &size);
  return otr_swig_own_bytes(made, size, status);
}
%}

%ignore otr_checkpoint_open;
%rename(checkpoint_open) otr_plain_checkpoint_open;
%newobject otr_plain_checkpoint_open;
%inline %{
static otr_checkpoint *otr_plain_checkpoint_open(const char *directory, const char *tag, int32_t *status) {
  otr_checkpoint *made = NULL;
  *status = otr_checkpoint_open(directory, tag, &made);
  return made;
}
%}

%ignore otr_checkpoint_describe;
%rename(checkpoint_describe) otr_plain_checkpoint_describe;
%newobject otr_plain_checkpoint_describe;
%inline %{
static char *otr_plain_checkpoint_describe(otr_checkpoint *checkpoint, int32_t *status) {
  char *made = NULL;
  *status = otr_swig_checkpoint_describe(checkpoint, &made);
  return otr_swig_if_ok(made, status);
}
%}

%ignore otr_checkpoint_part;
%rename(checkpoint_part) otr_plain_checkpoint_part;
%newobject otr_plain_checkpoint_part;
%inline %{
static otr_tensor *otr_plain_checkpoint_part(otr_checkpoint *checkpoint, int32_t rank, const char *name, int32_t *status) {
  void *made = NULL;
  size_t size = 0;
  *status = otr_swig_checkpoint_part(checkpoint, rank, name, &made, &size);
  return otr_swig_own_bytes(made, size, status);
}
%}

%ignore otr_checkpoint_read;
%rename(checkpoint_read) otr_plain_checkpoint_read;
%inline %{
static void otr_plain_checkpoint_read(otr_checkpoint *checkpoint, const char *name, int32_t value, int64_t first, const otr_tensor *out, int32_t *status) {
  if (otr_swig_writable(out, "out", status) && otr_swig_is(out, "out", "float32", status)) *status = otr_checkpoint_read(checkpoint, name, value, first, otr_swig_elements(out), (float *)otr_swig_data(out));
}
%}

%ignore otr_checkpoint_export;
%rename(checkpoint_export) otr_plain_checkpoint_export;
%inline %{
static void otr_plain_checkpoint_export(otr_checkpoint *checkpoint, const char *path, const otr_export_options *options, int32_t *status) {
  *status = otr_checkpoint_export(checkpoint, path, options);
}
%}

%ignore otr_checkpoint_verify;
%rename(checkpoint_verify) otr_plain_checkpoint_verify;
%inline %{
static void otr_plain_checkpoint_verify(otr_checkpoint *checkpoint, int32_t *status) {
  *status = otr_checkpoint_verify(checkpoint);
}
%}

%ignore otr_checkpoint_list;
%rename(checkpoint_list) otr_plain_checkpoint_list;
%newobject otr_plain_checkpoint_list;
%inline %{
static char *otr_plain_checkpoint_list(const char *directory, int32_t *status) {
  char *made = NULL;
  *status = otr_swig_checkpoint_list(directory, &made);
  return otr_swig_if_ok(made, status);
}
%}

%ignore otr_checkpoint_writer_create;
%rename(checkpoint_writer_create) otr_plain_checkpoint_writer_create;
%newobject otr_plain_checkpoint_writer_create;
%inline %{
static otr_checkpoint_writer *otr_plain_checkpoint_writer_create(const char *directory, const char *tag, const otr_writer_options *options, int32_t *status) {
  otr_checkpoint_writer *made = NULL;
  *status = otr_checkpoint_writer_create(directory, tag, options, &made);
  return made;
}
%}

%ignore otr_checkpoint_writer_add_parameter;
%rename(checkpoint_writer_add_parameter) otr_plain_checkpoint_writer_add_parameter;
%inline %{
static void otr_plain_checkpoint_writer_add_parameter(otr_checkpoint_writer *writer, const char *name, const int64_t *shape, int64_t ndim, const otr_writer_param_options *options, int32_t *status) {
  *status = otr_checkpoint_writer_add_parameter(writer, name, shape, ndim, options);
}
%}

%ignore otr_checkpoint_writer_add_part;
%rename(checkpoint_writer_add_part) otr_plain_checkpoint_writer_add_part;
%inline %{
static void otr_plain_checkpoint_writer_add_part(otr_checkpoint_writer *writer, const char *name, const otr_tensor *mine, int32_t *status) {
  if (otr_swig_readable(mine, "mine", status)) *status = otr_checkpoint_writer_add_part(writer, name, otr_swig_data(mine), otr_swig_bytes(mine));
}
%}

%ignore otr_checkpoint_writer_write;
%rename(checkpoint_writer_write) otr_plain_checkpoint_writer_write;
%inline %{
static void otr_plain_checkpoint_writer_write(otr_checkpoint_writer *writer, const char *name, int32_t value, int64_t first, const otr_tensor *source, int32_t *status) {
  if (otr_swig_readable(source, "source", status)) *status = otr_checkpoint_writer_write(writer, name, value, first, source);
}
%}

%ignore otr_checkpoint_writer_finish;
%rename(checkpoint_writer_finish) otr_plain_checkpoint_writer_finish;
%inline %{
static void otr_plain_checkpoint_writer_finish(otr_checkpoint_writer *writer, int32_t *status) {
  *status = otr_checkpoint_writer_finish(writer);
}
%}

%ignore otr_checkpoint_import;
%rename(checkpoint_import) otr_plain_checkpoint_import;
%inline %{
static void otr_plain_checkpoint_import(const char *source, const char *directory, const char *tag, const otr_import_options *options, int32_t *status) {
  *status = otr_checkpoint_import(source, directory, tag, options);
}
%}

%ignore otr_message_pack;  // plain_message.i

%ignore otr_message_seal;
%rename(message_seal) otr_plain_message_seal;
%inline %{
static void otr_plain_message_seal(const otr_tensor *buffer, int32_t *status) {
  if (otr_swig_writable(buffer, "buffer", status)) *status = otr_message_seal(otr_swig_data(buffer), otr_swig_bytes(buffer));
}
%}

%ignore otr_message_unpack;
%rename(message_unpack) otr_plain_message_unpack;
%newobject otr_plain_message_unpack;
%inline %{
static otr_message *otr_plain_message_unpack(const otr_tensor *data, uint32_t flags, int32_t *status) {
  otr_message *made = NULL;
  if (otr_swig_readable(data, "data", status)) *status = otr_message_unpack(otr_swig_data(data), otr_swig_bytes(data), flags, &made);
  return made;
}
%}

%ignore otr_message_get_info;
%rename(message_get_info) otr_plain_message_get_info;
%newobject otr_plain_message_get_info;
%inline %{
static otr_message_info *otr_plain_message_get_info(const otr_message *message, int32_t *status) {
  otr_message_info *made = (otr_message_info *)otr_swig_new_record(sizeof(*made), status);
  if (*status == OTR_OK) *status = otr_message_get_info(message, made);
  return otr_swig_if_ok(made, status);
}
%}

%ignore otr_message_tensor_name;
%rename(message_tensor_name) otr_plain_message_tensor_name;
%inline %{
static const char *otr_plain_message_tensor_name(const otr_message *message, int64_t index, int32_t *status) {
  const char *made = NULL;
  *status = otr_message_tensor_name(message, index, &made);
  return made;
}
%}

%ignore otr_message_get_tensor;
%rename(message_get_tensor) otr_plain_message_get_tensor;
%newobject otr_plain_message_get_tensor;
%inline %{
static otr_tensor *otr_plain_message_get_tensor(const otr_message *message, const char *name, int32_t *status) {
  otr_tensor made = {0};
  *status = otr_message_get_tensor(message, name, &made);
  return otr_swig_show(&made, 0, status);
}
%}

%ignore otr_message_get_tag;
%rename(message_get_tag) otr_plain_message_get_tag;
%inline %{
static void otr_plain_message_get_tag(const otr_message *message, otr_call_info *info, int32_t *status) {
  *status = otr_message_get_tag(message, info);
}
%}

%ignore otr_message_attribute_name;
%rename(message_attribute_name) otr_plain_message_attribute_name;
%inline %{
static const char *otr_plain_message_attribute_name(const otr_message *message, int64_t index, int32_t *status) {
  const char *made = NULL;
  *status = otr_message_attribute_name(message, index, &made);
  return made;
}
%}

%ignore otr_message_get_attribute;
%rename(message_get_attribute) otr_plain_message_get_attribute;
%inline %{
static const char *otr_plain_message_get_attribute(const otr_message *message, const char *name, int32_t *status) {
  const char *made = NULL;
  *status = otr_message_get_attribute(message, name, &made);
  return made;
}
%}

%ignore otr_message_routes;  // plain_message.i

%ignore otr_shard_wrap;
%rename(shard_wrap) otr_plain_shard_wrap;
%newobject otr_plain_shard_wrap;
%inline %{
static otr_shard *otr_plain_shard_wrap(otr_context *context, const otr_tensor *weights, const otr_tensor *grads, const otr_shard_options *options, int32_t *status) {
  otr_shard *made = NULL;
  if (otr_swig_writable(weights, "weights", status) && otr_swig_readable(grads, "grads", status)) *status = otr_shard_wrap(context, weights, grads, options, &made);
  return made;
}
%}

%ignore otr_shard_set_grads;
%rename(shard_set_grads) otr_plain_shard_set_grads;
%inline %{
static void otr_plain_shard_set_grads(otr_shard *shard, const otr_tensor *grads, int32_t *status) {
  if (otr_swig_readable(grads, "grads", status)) *status = otr_shard_set_grads(shard, grads);
}
%}

%ignore otr_shard_state;
%rename(shard_state) otr_plain_shard_state;
%newobject otr_plain_shard_state;
%inline %{
static otr_tensor *otr_plain_shard_state(otr_shard *shard, int32_t value, int32_t *status) {
  otr_tensor made = {0};
  *status = otr_shard_state(shard, value, &made);
  return otr_swig_show(&made, 0, status);
}
%}

%ignore otr_shard_read;
%rename(shard_read) otr_plain_shard_read;
%inline %{
static void otr_plain_shard_read(otr_shard *shard, int32_t value, const otr_tensor *destination, int32_t *status) {
  if (otr_swig_writable(destination, "destination", status)) *status = otr_shard_read(shard, value, destination);
}
%}

%ignore otr_shard_write;
%rename(shard_write) otr_plain_shard_write;
%inline %{
static void otr_plain_shard_write(otr_shard *shard, int32_t value, const otr_tensor *source, int32_t *status) {
  if (otr_swig_readable(source, "source", status)) *status = otr_shard_write(shard, value, source);
}
%}

%ignore otr_shard_get_step;
%rename(shard_get_step) otr_plain_shard_get_step;
%inline %{
static int64_t otr_plain_shard_get_step(const otr_shard *shard, int32_t *status) {
  int64_t made = 0;
  *status = otr_shard_get_step(shard, &made);
  return made;
}
%}

%ignore otr_shard_set_step;
%rename(shard_set_step) otr_plain_shard_set_step;
%inline %{
static void otr_plain_shard_set_step(otr_shard *shard, int64_t step, int32_t *status) {
  *status = otr_shard_set_step(shard, step);
}
%}

%ignore otr_shard_state_bytes;
%rename(shard_state_bytes) otr_plain_shard_state_bytes;
%inline %{
static int64_t otr_plain_shard_state_bytes(const otr_shard *shard, int32_t *status) {
  int64_t made = 0;
  *status = otr_shard_state_bytes(shard, &made);
  return made;
}
%}

%ignore otr_optimizer_create;
%rename(optimizer_create) otr_plain_optimizer_create;
%newobject otr_plain_optimizer_create;
%inline %{
static otr_optimizer *otr_plain_optimizer_create(otr_context *context, const char *optimizer_json, int32_t *status) {
  otr_optimizer *made = NULL;
  *status = otr_optimizer_create(context, optimizer_json, &made);
  return made;
}
%}

%ignore otr_optimizer_set_value;
%rename(optimizer_set_value) otr_plain_optimizer_set_value;
%inline %{
static void otr_plain_optimizer_set_value(otr_optimizer *optimizer, const char *name, double value, int32_t *status) {
  *status = otr_optimizer_set_value(optimizer, name, value);
}
%}

%ignore otr_optimizer_step;
%rename(optimizer_step) otr_plain_optimizer_step;
%newobject otr_plain_optimizer_step;
%inline %{
static otr_step_report *otr_plain_optimizer_step(otr_optimizer *optimizer, const otr_swig_shards *shards, int32_t *status) {
  otr_step_report *made = (otr_step_report *)otr_swig_new_record(sizeof(*made), status);
  if (*status == OTR_OK) *status = otr_optimizer_step(optimizer, otr_swig_shards_items(shards), otr_swig_shards_count(shards), made);
  return otr_swig_if_ok(made, status);
}
%}

%ignore otr_optimizer_norm;
%rename(optimizer_norm) otr_plain_optimizer_norm;
%inline %{
static double otr_plain_optimizer_norm(otr_optimizer *optimizer, const otr_swig_shards *shards, int32_t *status) {
  double made = 0;
  *status = otr_optimizer_norm(optimizer, otr_swig_shards_items(shards), otr_swig_shards_count(shards), &made);
  return made;
}
%}

%ignore otr_optimizer_prepare;
%rename(optimizer_prepare) otr_plain_optimizer_prepare;
%inline %{
static void otr_plain_optimizer_prepare(otr_optimizer *optimizer, const otr_swig_shards *shards, int32_t *status) {
  *status = otr_optimizer_prepare(optimizer, otr_swig_shards_items(shards), otr_swig_shards_count(shards));
}
%}

%ignore otr_optimizer_save;
%rename(optimizer_save) otr_plain_optimizer_save;
%inline %{
static void otr_plain_optimizer_save(otr_optimizer *optimizer, const otr_swig_shards *shards, const char *directory, const char *tag, const otr_save_options *options, int32_t *status) {
  *status = otr_optimizer_save(optimizer, otr_swig_shards_items(shards), otr_swig_shards_count(shards), directory, tag, options);
}
%}

%ignore otr_optimizer_load;
%rename(optimizer_load) otr_plain_optimizer_load;
%inline %{
static void otr_plain_optimizer_load(otr_optimizer *optimizer, const otr_swig_shards *shards, const char *directory, const char *tag, const otr_load_options *options, int32_t *status) {
  *status = otr_optimizer_load(optimizer, otr_swig_shards_items(shards), otr_swig_shards_count(shards), directory, tag, options);
}
%}

%ignore otr_optimizer_snapshot;
%rename(optimizer_snapshot) otr_plain_optimizer_snapshot;
%inline %{
static void otr_plain_optimizer_snapshot(otr_optimizer *optimizer, const otr_swig_shards *shards, otr_snapshot *snapshot, const otr_snapshot_options *options, int32_t *status) {
  *status = otr_optimizer_snapshot(optimizer, otr_swig_shards_items(shards), otr_swig_shards_count(shards), snapshot, options);
}
%}

%ignore otr_optimizer_restore;
%rename(optimizer_restore) otr_plain_optimizer_restore;
%inline %{
static void otr_plain_optimizer_restore(otr_optimizer *optimizer, const otr_swig_shards *shards, const otr_snapshot *snapshot, int32_t *status) {
  *status = otr_optimizer_restore(optimizer, otr_swig_shards_items(shards), otr_swig_shards_count(shards), snapshot);
}
%}
