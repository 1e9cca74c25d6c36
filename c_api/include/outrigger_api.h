/* SPDX-License-Identifier: Apache-2.0
 * Generated from outrigger.h by bindings/gen; not to be edited.
 *
 * The functions of outrigger.h as one table, for a program that loads the library at run time and
 * is not linked against it. docs/c.md has a whole program:
 *
 *   void *library = dlopen("liboutrigger.so.0", RTLD_NOW | RTLD_LOCAL);
 *   otr_get_api_function get_api = (otr_get_api_function)dlsym(library, "otr_get_api");
 *   const otr_api *otr = NULL;
 *   if (get_api(OTR_ABI_VERSION, sizeof *otr, &otr) == OTR_OK) otr->context_create(NULL, &context);
 */
#ifndef OUTRIGGER_API_H
#define OUTRIGGER_API_H

#include "outrigger.h"

#ifdef __cplusplus
extern "C" {
#endif

/* clang-format off */

/* Each member is the function otr_<member> of outrigger.h, and does what stands there. A later
 * release adds members at the end. Never NULL as far as struct_size goes. */
typedef struct otr_api {
  uint32_t struct_size; /* of the library that is loaded; at least what the program asked for */
  uint32_t reserved0;
  const char *(*status_name)(int32_t status);
  const char *(*last_error_message)(void);
  const char *(*version)(void);
  int32_t (*abi_version)(void);
  const char *(*build_info)(void);
  int32_t (*machine_info)(char *buffer, size_t *inout_size);
  int32_t (*tensor_init)(void *data, const char *dtype, int32_t ndim, int64_t *shape, otr_tensor *out_tensor);
  int32_t (*call_info_init)(otr_call_info *info, size_t size);
  int32_t (*context_options_init)(otr_context_options *options, size_t size);
  int32_t (*context_create)(const otr_context_options *options, otr_context **out_context);
  void (*context_destroy)(otr_context *context);
  int32_t (*context_load_plugin)(otr_context *context, const char *name);
  int32_t (*device_count)(otr_context *context, int32_t device_type, int32_t *out_count);
  int32_t (*device_set_value)(otr_context *context, int32_t device_type, int32_t device_id, const char *name, double value);
  int32_t (*device_get_value)(otr_context *context, int32_t device_type, int32_t device_id, const char *name, double *out_value);
  int32_t (*device_allocator_init)(otr_device_allocator *allocator, size_t size);
  int32_t (*device_set_allocator)(otr_context *context, int32_t device_type, int32_t device_id, const otr_device_allocator *allocator);
  int32_t (*device_allocate)(otr_context *context, int32_t device_type, int32_t device_id, size_t bytes, void **out_data);
  int32_t (*device_free)(otr_context *context, int32_t device_type, int32_t device_id, void *data);
  int32_t (*tensor_copy)(otr_context *context, const otr_tensor *to, const otr_tensor *from);
  int32_t (*comm_options_init)(otr_comm_options *options, size_t size);
  int32_t (*comm_create_self)(otr_context *context, otr_comm **out_comm);
  int32_t (*comm_create_threads)(otr_context *context, int32_t world_size, const otr_comm_options *options, otr_comm **out_comms);
  int32_t (*comm_create_shm)(otr_context *context, const otr_comm_options *options, otr_comm **out_comm);
  int32_t (*comm_from_env)(otr_context *context, const otr_comm_options *options, otr_comm **out_comm);
  int32_t (*comm_table_init)(otr_comm_table *table, size_t size);
  int32_t (*comm_create_custom)(otr_context *context, const otr_comm_table *table, otr_comm **out_comm);
  int32_t (*comm_create_hierarchical)(otr_comm *world, otr_comm *host, otr_comm *across, otr_comm **out_comm);
  int32_t (*comm_duplicate)(otr_comm *comm, otr_comm **out_comm);
  int32_t (*comm_split)(otr_comm *comm, int32_t color, int32_t key, otr_comm **out_comm);
  int32_t (*comm_rank)(const otr_comm *comm, int32_t *out_rank);
  int32_t (*comm_size)(const otr_comm *comm, int32_t *out_world_size);
  int32_t (*comm_barrier)(otr_comm *comm);
  int32_t (*comm_broadcast)(otr_comm *comm, void *data, size_t bytes, int32_t root);
  int32_t (*comm_all_gather)(otr_comm *comm, const void *mine, size_t bytes, void *all);
  int32_t (*comm_all_to_all)(otr_comm *comm, const void *parts, const size_t *part_bytes, void *received, const size_t *received_bytes);
  int32_t (*comm_all_reduce_sum)(otr_comm *comm, double *values, size_t count);
  int32_t (*comm_abort)(otr_comm *comm, const char *reason);
  void (*comm_destroy)(otr_comm *comm);
  int32_t (*engine_create)(otr_comm *comm, const char *config_json, otr_engine **out_engine);
  int32_t (*engine_set_device)(otr_engine *engine, int32_t device_type, int32_t device_id);
  int32_t (*param_options_init)(otr_param_options *options, size_t size);
  int32_t (*engine_add_parameter)(otr_engine *engine, const char *name, const otr_tensor *initial, const otr_param_options *options, int64_t *out_id);
  int32_t (*engine_commit)(otr_engine *engine);
  int32_t (*engine_set_initial)(otr_engine *engine, const int64_t *ids, int64_t count, const otr_tensor *values);
  int32_t (*engine_finalize)(otr_engine *engine);
  int32_t (*engine_abort)(otr_engine *engine, const char *reason);
  int32_t (*engine_check)(otr_engine *engine);
  void (*engine_destroy)(otr_engine *engine);
  int32_t (*engine_live_children)(const otr_engine *engine, int64_t *out_count);
  int32_t (*engine_parameter_count)(const otr_engine *engine, int64_t *out_count);
  int32_t (*engine_parameter_id)(const otr_engine *engine, const char *name, int64_t *out_id);
  int32_t (*engine_parameter_name)(const otr_engine *engine, int64_t id, const char **out_name);
  int32_t (*engine_parameter_shape)(const otr_engine *engine, int64_t id, int32_t *out_ndim, const int64_t **out_shape);
  int32_t (*engine_acquire)(otr_engine *engine, const int64_t *ids, int64_t count, const otr_call_info *info, otr_tensor *out_tensors);
  int32_t (*engine_release)(otr_engine *engine, const int64_t *ids, int64_t count, const otr_call_info *info);
  int32_t (*engine_prefetch)(otr_engine *engine, const int64_t *ids, int64_t count, const otr_call_info *info);
  int32_t (*engine_parameter_read)(otr_engine *engine, int64_t id, int32_t value, const otr_tensor *out);
  int32_t (*engine_parameter_write)(otr_engine *engine, int64_t id, int32_t value, const otr_tensor *source);
  int32_t (*engine_local_range)(const otr_engine *engine, int64_t id, int64_t *out_first, int64_t *out_count);
  int32_t (*engine_local_read)(otr_engine *engine, int64_t id, int32_t value, const otr_tensor *out);
  int32_t (*engine_local_write)(otr_engine *engine, int64_t id, int32_t value, const otr_tensor *source);
  int32_t (*engine_set_trainable)(otr_engine *engine, int64_t id, int32_t trainable);
  int32_t (*engine_set_group_value)(otr_engine *engine, const char *group, const char *name, double value);
  int32_t (*engine_get_group_value)(const otr_engine *engine, const char *group, const char *name, double *out_value);
  int32_t (*engine_config)(const otr_engine *engine, char *buffer, size_t *inout_size);
  int32_t (*config_check)(const char *config_json, int32_t world_size, char *buffer, size_t *inout_size);
  int32_t (*engine_memory)(const otr_engine *engine, otr_memory_entry *entries, size_t *inout_count);
  int32_t (*engine_host_memory)(const otr_engine *engine, char *buffer, size_t *inout_size);
  int32_t (*offload_options_init)(otr_offload_options *options, size_t size);
  int32_t (*engine_offload_states)(otr_engine *engine, const otr_offload_options *options);
  int32_t (*engine_reload_states)(otr_engine *engine);
  int32_t (*estimate_options_init)(otr_estimate_options *options, size_t size);
  int32_t (*engine_estimate)(const otr_engine *engine, const otr_estimate_options *options, otr_memory_entry *entries, size_t *inout_count);
  int32_t (*pass_begin)(otr_engine *engine, const otr_tensor *output_grads, int64_t count, const otr_call_info *info, otr_pass **out_pass);
  int32_t (*pass_get_output_grad)(otr_pass *pass, int64_t index, otr_tensor *out_tensor);
  int32_t (*pass_get_scale)(const otr_pass *pass, double *out_scale);
  int32_t (*pass_get_tag)(const otr_pass *pass, otr_call_info *info);
  int32_t (*pass_unscale)(const otr_pass *pass, const otr_tensor *grad, const otr_tensor *out);
  int32_t (*pass_get_seed_overflow)(const otr_pass *pass, int64_t *out_index);
  int32_t (*pass_get_slot)(otr_pass *pass, int64_t id, otr_tensor *out_slot);
  int32_t (*pass_add_grad)(otr_pass *pass, int64_t id, const otr_tensor *grad, const otr_call_info *info);
  int32_t (*pass_end)(otr_pass *pass);
  int32_t (*pass_abandon)(otr_pass *pass);
  void (*pass_destroy)(otr_pass *pass);
  int32_t (*engine_backward)(otr_engine *engine, const otr_tensor *output_grads, int64_t count, const otr_call_info *info, otr_vjp_callback vjp, void *user_data);
  int32_t (*engine_step)(otr_engine *engine, otr_step_report *report);
  int32_t (*engine_step_begin)(otr_engine *engine);
  int32_t (*engine_report)(otr_engine *engine, double timeout_seconds, otr_step_report *report);
  int32_t (*engine_reduce)(otr_engine *engine, otr_step_report *report);
  int32_t (*engine_has_grad)(const otr_engine *engine, int64_t id, int32_t *out_has_grad);
  int32_t (*engine_discard)(otr_engine *engine);
  int32_t (*step_many)(otr_engine *const *engines, int64_t count, otr_comm *joint, otr_step_report *reports);
  int32_t (*engine_set_boundary)(otr_engine *engine, int32_t boundary);
  int32_t (*engine_get_boundary)(const otr_engine *engine, int32_t *out_is_boundary);
  int32_t (*engine_get_loss_scale)(const otr_engine *engine, double *out_scale);
  int32_t (*engine_get_progress)(const otr_engine *engine, char *buffer, size_t *inout_size);
  int32_t (*engine_set_progress)(otr_engine *engine, const char *progress_json);
  int32_t (*watch_options_init)(otr_watch_options *options, size_t size);
  int32_t (*engine_watch)(otr_engine *engine, const otr_watch_options *options);
  int32_t (*engine_note)(otr_engine *engine, const char *name, double value);
  int32_t (*engine_get_record)(const otr_engine *engine, char *buffer, size_t *inout_size);
  int32_t (*save_options_init)(otr_save_options *options, size_t size);
  int32_t (*engine_save)(otr_engine *engine, const char *directory, const char *tag, const otr_save_options *options);
  int32_t (*engine_wait_save)(otr_engine *engine, double timeout_seconds, otr_save_status *out_status);
  int32_t (*load_options_init)(otr_load_options *options, size_t size);
  int32_t (*engine_load)(otr_engine *engine, const char *directory, const char *tag, const otr_load_options *options);
  int32_t (*snapshot_create)(otr_snapshot **out_snapshot);
  void (*snapshot_destroy)(otr_snapshot *snapshot);
  int32_t (*snapshot_options_init)(otr_snapshot_options *options, size_t size);
  int32_t (*engine_snapshot)(otr_engine *engine, otr_snapshot *snapshot, const otr_snapshot_options *options);
  int32_t (*engine_restore)(otr_engine *engine, otr_snapshot *const *snapshots, int64_t count);
  int32_t (*snapshot_get_info)(const otr_snapshot *snapshot, otr_snapshot_info *out_info);
  int32_t (*snapshot_part)(const otr_snapshot *snapshot, const char *name, void *buffer, size_t *inout_size);
  int32_t (*checkpoint_open)(const char *directory, const char *tag, otr_checkpoint **out_checkpoint);
  void (*checkpoint_destroy)(otr_checkpoint *checkpoint);
  int32_t (*checkpoint_describe)(otr_checkpoint *checkpoint, char *buffer, size_t *inout_size);
  int32_t (*checkpoint_part)(otr_checkpoint *checkpoint, int32_t rank, const char *name, void *buffer, size_t *inout_size);
  int32_t (*checkpoint_read)(otr_checkpoint *checkpoint, const char *name, int32_t value, int64_t first, int64_t count, float *out);
  int32_t (*export_options_init)(otr_export_options *options, size_t size);
  int32_t (*checkpoint_export)(otr_checkpoint *checkpoint, const char *path, const otr_export_options *options);
  int32_t (*checkpoint_verify)(otr_checkpoint *checkpoint);
  int32_t (*checkpoint_list)(const char *directory, char *buffer, size_t *inout_size);
  int32_t (*writer_options_init)(otr_writer_options *options, size_t size);
  int32_t (*writer_param_options_init)(otr_writer_param_options *options, size_t size);
  int32_t (*checkpoint_writer_create)(const char *directory, const char *tag, const otr_writer_options *options, otr_checkpoint_writer **out_writer);
  int32_t (*checkpoint_writer_add_parameter)(otr_checkpoint_writer *writer, const char *name, const int64_t *shape, int64_t ndim, const otr_writer_param_options *options);
  int32_t (*checkpoint_writer_add_part)(otr_checkpoint_writer *writer, const char *name, const void *mine, size_t bytes);
  int32_t (*checkpoint_writer_write)(otr_checkpoint_writer *writer, const char *name, int32_t value, int64_t first, const otr_tensor *source);
  int32_t (*checkpoint_writer_finish)(otr_checkpoint_writer *writer);
  void (*checkpoint_writer_destroy)(otr_checkpoint_writer *writer);
  int32_t (*import_options_init)(otr_import_options *options, size_t size);
  int32_t (*checkpoint_import)(const char *source, const char *directory, const char *tag, const otr_import_options *options);
  int32_t (*message_options_init)(otr_message_options *options, size_t size);
  int32_t (*message_pack)(const char *const *names, const otr_tensor *tensors, int64_t count, const otr_message_options *options, void *buffer, size_t *inout_size);
  int32_t (*message_seal)(void *buffer, size_t size);
  int32_t (*message_unpack)(const void *data, size_t size, uint32_t flags, otr_message **out_message);
  void (*message_destroy)(otr_message *message);
  int32_t (*message_get_info)(const otr_message *message, otr_message_info *out_info);
  int32_t (*message_tensor_name)(const otr_message *message, int64_t index, const char **out_name);
  int32_t (*message_get_tensor)(const otr_message *message, const char *name, otr_tensor *out_part);
  int32_t (*message_get_tag)(const otr_message *message, otr_call_info *info);
  int32_t (*message_attribute_name)(const otr_message *message, int64_t index, const char **out_name);
  int32_t (*message_get_attribute)(const otr_message *message, const char *name, const char **out_text);
  int32_t (*message_routes)(const int64_t *source_rows, int32_t source_ranks, const int64_t *target_rows, int32_t target_ranks, otr_message_route *routes, int64_t *inout_count);
  int32_t (*shard_options_init)(otr_shard_options *options, size_t size);
  int32_t (*shard_wrap)(otr_context *context, const otr_tensor *weights, const otr_tensor *grads, const otr_shard_options *options, otr_shard **out_shard);
  int32_t (*shard_set_grads)(otr_shard *shard, const otr_tensor *grads);
  int32_t (*shard_state)(otr_shard *shard, int32_t value, otr_tensor *out_tensor);
  int32_t (*shard_read)(otr_shard *shard, int32_t value, const otr_tensor *destination);
  int32_t (*shard_write)(otr_shard *shard, int32_t value, const otr_tensor *source);
  int32_t (*shard_get_step)(const otr_shard *shard, int64_t *out_step);
  int32_t (*shard_set_step)(otr_shard *shard, int64_t step);
  int32_t (*shard_state_bytes)(const otr_shard *shard, int64_t *out_bytes);
  void (*shard_destroy)(otr_shard *shard);
  int32_t (*optimizer_create)(otr_context *context, const char *optimizer_json, otr_optimizer **out_optimizer);
  int32_t (*optimizer_set_value)(otr_optimizer *optimizer, const char *name, double value);
  int32_t (*optimizer_step)(otr_optimizer *optimizer, otr_shard *const *shards, int64_t count, otr_step_report *report);
  int32_t (*optimizer_norm)(otr_optimizer *optimizer, otr_shard *const *shards, int64_t count, double *out_norm);
  int32_t (*optimizer_prepare)(otr_optimizer *optimizer, otr_shard *const *shards, int64_t count);
  void (*optimizer_destroy)(otr_optimizer *optimizer);
  int32_t (*comm_create_mpi)(otr_context *context, const void *mpi_comm, const otr_comm_options *options, otr_comm **out_comm);
  int32_t (*comm_shares_memory)(const otr_comm *comm, int32_t *out_shares);
  int32_t (*optimizer_save)(otr_optimizer *optimizer, otr_shard *const *shards, int64_t count, const char *directory, const char *tag, const otr_save_options *options);
  int32_t (*optimizer_load)(otr_optimizer *optimizer, otr_shard *const *shards, int64_t count, const char *directory, const char *tag, const otr_load_options *options);
  int32_t (*optimizer_snapshot)(otr_optimizer *optimizer, otr_shard *const *shards, int64_t count, otr_snapshot *snapshot, const otr_snapshot_options *options);
  int32_t (*optimizer_restore)(otr_optimizer *optimizer, otr_shard *const *shards, int64_t count, const otr_snapshot *snapshot);
} otr_api;

/* clang-format on */

/* The table of the library that is loaded. abi_version: OTR_ABI_VERSION; size: sizeof(otr_api),
 * both as the program was built with; a smaller size asks for the first members alone. *out_api is
 * static. OTR_E_ABI: the library has another binary interface, or is older and lacks members. On an
 * error *out_api is NULL, and otr_last_error_message (by dlsym, too) says why. Any thread. Since:
 * 0.1 */
OTR_API int32_t otr_get_api(int32_t abi_version, size_t size, const otr_api **out_api) OTR_NOEXCEPT;

/* What dlsym(library, "otr_get_api") gives. */
typedef int32_t (*otr_get_api_function)(int32_t abi_version, size_t size, const otr_api **out_api);

#ifdef __cplusplus
}
#endif

#endif /* OUTRIGGER_API_H */
