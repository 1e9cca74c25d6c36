# SPDX-License-Identifier: Apache-2.0
# Generated from outrigger.h by bindings/gen; not to be edited.

const OTR_VERSION_MAJOR = Int32(0)
const OTR_VERSION_MINOR = Int32(1)
const OTR_VERSION_PATCH = Int32(0)
const OTR_VERSION_STRING = "0.1.0"
const OTR_ABI_VERSION = Int32(0)
const OTR_OK = Int32(0)
const OTR_E_ARGUMENT = Int32(-1)
const OTR_E_STATE = Int32(-2)
const OTR_E_CONFIG = Int32(-3)
const OTR_E_UNSUPPORTED = Int32(-4)
const OTR_E_SHAPE = Int32(-5)
const OTR_E_DTYPE = Int32(-6)
const OTR_E_DEVICE = Int32(-7)
const OTR_E_NOT_FOUND = Int32(-8)
const OTR_E_DUPLICATE = Int32(-9)
const OTR_E_OUT_OF_MEMORY = Int32(-10)
const OTR_E_BUFFER_SIZE = Int32(-11)
const OTR_E_PEER_DEAD = Int32(-12)
const OTR_E_TIMEOUT = Int32(-13)
const OTR_E_MISMATCH = Int32(-14)
const OTR_E_ABORTED = Int32(-15)
const OTR_E_POISONED = Int32(-16)
const OTR_E_SYSTEM = Int32(-17)
const OTR_E_ABI = Int32(-18)
const OTR_E_HOST = Int32(-19)
const OTR_E_INTERRUPTED = Int32(-20)
const OTR_E_LOSS_SCALE = Int32(-21)
const OTR_E_DEVICE_FAULT = Int32(-22)
const OTR_E_IO = Int32(-23)
const OTR_E_CORRUPT = Int32(-24)
const OTR_E_INTERNAL = Int32(-99)
const OTR_DEVICE_CPU = Int32(1)
const OTR_DEVICE_CUDA = Int32(2)
const OTR_DEVICE_CUDA_HOST = Int32(3)
const OTR_DEVICE_EXTENSION = Int32(12)
const OTR_DTYPE_INT = Int32(0)
const OTR_DTYPE_UINT = Int32(1)
const OTR_DTYPE_FLOAT = Int32(2)
const OTR_DTYPE_BFLOAT = Int32(4)
const OTR_DTYPE_BOOL = Int32(6)
const OTR_ACQUIRE_FLOAT32 = UInt32(1)
const OTR_PASS_KEEP_DTYPE = UInt32(2)
const OTR_LOG_ERROR = Int32(1)
const OTR_LOG_WARNING = Int32(2)
const OTR_LOG_INFO = Int32(3)
const OTR_LOG_DEBUG = Int32(4)
const OTR_VALUE_MASTER = Int32(0)
const OTR_VALUE_PUBLISHED = Int32(1)
const OTR_VALUE_EXP_AVG = Int32(2)
const OTR_VALUE_EXP_AVG_SQ = Int32(3)
const OTR_VALUE_GRAD = Int32(4)
const OTR_STATES_PUBLISHED = Int32(1)
const OTR_STATES_MASTER = Int32(2)
const OTR_STATES_MOMENTS = Int32(4)
const OTR_STATES_GRADIENTS = Int32(8)
const OTR_LAYOUT_OUTRIGGER = Int32(0)
const OTR_LAYOUT_DEEPSPEED = Int32(1)
const OTR_START_NONE = Int32(0)
const OTR_START_GIVEN = Int32(1)
const OTR_START_HELD = Int32(2)
const OTR_START_SHARED_OUT = Int32(3)
const OTR_STEP_ACCUMULATED = Int32(1)
const OTR_STEP_APPLIED = Int32(2)
const OTR_STEP_SKIPPED = Int32(3)
const OTR_STEP_REDUCED = Int32(4)
const OTR_STEP_PENDING = Int32(5)
const OTR_SKIP_NONE = Int32(0)
const OTR_SKIP_NONFINITE = Int32(1)
const OTR_SKIP_ABANDONED = Int32(2)
const OTR_SKIP_SEED_OVERFLOW = Int32(3)
const OTR_SKIP_JOINT = Int32(4)
const OTR_SKIP_OUTLIER = Int32(5)
const OTR_BOUNDARY_CONFIGURED = Int32(0)
const OTR_BOUNDARY_NO = Int32(1)
const OTR_BOUNDARY_YES = Int32(2)
const OTR_SAVE_WAIT = Int32(0)
const OTR_SAVE_REFUSE = Int32(1)
const OTR_SAVE_NONE = Int32(0)
const OTR_SAVE_UNDER_WAY = Int32(1)
const OTR_SAVE_DONE = Int32(2)
const OTR_SAVE_FAILED = Int32(3)
const OTR_MESSAGE_UNCHECKED = UInt32(1)

mutable struct otr_context end

mutable struct otr_comm end

mutable struct otr_engine end

mutable struct otr_pass end

mutable struct otr_snapshot end

mutable struct otr_checkpoint end

mutable struct otr_checkpoint_writer end

mutable struct otr_message end

mutable struct otr_shard end

mutable struct otr_optimizer end

struct otr_device
    device_type::Int32
    device_id::Int32
end

struct otr_dtype
    code::UInt8
    bits::UInt8
    lanes::UInt16
end

struct otr_tensor
    data::Ptr{Cvoid}
    device::otr_device
    ndim::Int32
    dtype::otr_dtype
    shape::Ptr{Int64}
    strides::Ptr{Int64}
    byte_offset::UInt64
end

struct otr_call_info
    struct_size::UInt32
    flags::UInt32
    stream::UInt64
    loss_scale::Float64
    accumulation::Int32
    ranks::Int32
    reserved::NTuple{3, UInt64}
end

struct otr_context_options
    struct_size::UInt32
    log_level::Int32
    log_callback::Ptr{Cvoid}
    log_user_data::Ptr{Cvoid}
    workers::Int32
    reserved0::Int32
    interrupt_callback::Ptr{Cvoid}
    interrupt_user_data::Ptr{Cvoid}
    reserved::NTuple{4, UInt64}
end

struct otr_device_allocator
    struct_size::UInt32
    reserved0::Int32
    user_data::Ptr{Cvoid}
    allocate::Ptr{Cvoid}
    release::Ptr{Cvoid}
    reserved::NTuple{4, UInt64}
end

struct otr_comm_options
    struct_size::UInt32
    rank::Int32
    world_size::Int32
    reserved0::Int32
    timeout::Float64
    job::Cstring
    reserved::NTuple{6, UInt64}
end

struct otr_comm_table
    struct_size::UInt32
    rank::Int32
    world_size::Int32
    reserved0::Int32
    user_data::Ptr{Cvoid}
    all_gather::Ptr{Cvoid}
    broadcast::Ptr{Cvoid}
    all_to_all::Ptr{Cvoid}
    duplicate::Ptr{Cvoid}
    abort::Ptr{Cvoid}
    destroy::Ptr{Cvoid}
    split::Ptr{Cvoid}
    reserved::NTuple{5, UInt64}
end

struct otr_param_options
    struct_size::UInt32
    trainable::Int32
    alias_of::Int64
    group::Cstring
    contributions::Int32
    replicated::Int32
    held_bytes::Int64
    reserved::NTuple{5, UInt64}
end

struct otr_memory_entry
    struct_size::UInt32
    device_type::Int32
    purpose::Cstring
    resident_bytes::Int64
    peak_bytes::Int64
end

struct otr_offload_options
    struct_size::UInt32
    states::Int32
    page_lock::Int32
    reserved0::Int32
    reserved::NTuple{4, UInt64}
end

struct otr_estimate_options
    struct_size::UInt32
    world_size::Int32
    rank::Int32
    layout::Int32
    separate_memory::Int32
    grads_at_once::Int32
    acquired_elements::Int64
    widened_elements::Int64
    output_elements::Int64
    start::Int32
    initial_element_bytes::Int32
    hosts::Int32
    on_device::Int32
    reserved::NTuple{4, UInt64}
end

struct otr_step_report
    struct_size::UInt32
    outcome::Int32
    reason::Int32
    nonfinite_rank::Int32
    nonfinite_param::Int64
    nonfinite_count::Int64
    micro_steps::Int64
    applied_steps::Int64
    skipped_steps::Int64
    grad_norm::Float64
    clip_coefficient::Float64
    loss_scale::Float64
    lr::Float64
    updates::Int64
    vanished::Int64
end

struct otr_watch_options
    struct_size::UInt32
    reserved0::Int32
    name::Cstring
    records::Cstring
    trace::Cstring
    callback::Ptr{Cvoid}
    user_data::Ptr{Cvoid}
    reserved::NTuple{4, UInt64}
end

struct otr_part
    name::Cstring
    data::Ptr{Cvoid}
    bytes::Csize_t
end

struct otr_save_options
    struct_size::UInt32
    keep_last::Int32
    replace::Int32
    asynchronous::Int32
    when_busy::Int32
    reserved0::UInt32
    parts::Ptr{otr_part}
    part_count::Int64
    reserved::NTuple{4, UInt64}
end

struct otr_save_status
    struct_size::UInt32
    state::Int32
    bytes::Int64
    bytes_written::Int64
    held_up_seconds::Float64
    seconds::Float64
    reserved::NTuple{4, UInt64}
end

struct otr_rename
    here::Cstring
    there::Cstring
end

struct otr_load_options
    struct_size::UInt32
    weights_only::Int32
    strict::Int32
    reserved0::UInt32
    include::Ptr{Cstring}
    include_count::Int64
    exclude::Ptr{Cstring}
    exclude_count::Int64
    renamed::Ptr{otr_rename}
    renamed_count::Int64
    resized::Ptr{Cstring}
    resized_count::Int64
    reserved::NTuple{4, UInt64}
end

struct otr_snapshot_options
    struct_size::UInt32
    replicas::Int32
    parts::Ptr{otr_part}
    part_count::Int64
    reserved::NTuple{4, UInt64}
end

struct otr_snapshot_info
    struct_size::UInt32
    rank::Int32
    copies::Int32
    world_size::Int32
    micro_steps::Int64
    bytes::Int64
    reserved::NTuple{4, UInt64}
end

struct otr_export_options
    struct_size::UInt32
    replace::Int32
    dtype::Cstring
    max_shard_bytes::Int64
    reserved::NTuple{4, UInt64}
end

struct otr_writer_options
    struct_size::UInt32
    replace::Int32
    master::Cstring
    exp_avg::Cstring
    exp_avg_sq::Cstring
    applied_steps::Int64
    reserved::NTuple{4, UInt64}
end

struct otr_writer_param_options
    struct_size::UInt32
    trainable::Int32
    alias_of::Cstring
    group::Cstring
    updates::Int64
    exp_avg::Int32
    exp_avg_sq::Int32
    reserved::NTuple{4, UInt64}
end

struct otr_import_options
    struct_size::UInt32
    replace::Int32
    skip_other_dtypes::Int32
    reserved0::UInt32
    reserved::NTuple{4, UInt64}
end

struct otr_message_attribute
    name::Cstring
    text::Cstring
end

struct otr_message_options
    struct_size::UInt32
    reserved0::UInt32
    micro_batch::Int64
    tag::Ptr{otr_call_info}
    attributes::Ptr{otr_message_attribute}
    attribute_count::Int64
    reserved::NTuple{4, UInt64}
end

struct otr_message_info
    struct_size::UInt32
    reserved0::UInt32
    micro_batch::Int64
    tensor_count::Int64
    attribute_count::Int64
    bytes::Int64
    reserved::NTuple{4, UInt64}
end

struct otr_message_route
    source::Int32
    target::Int32
    source_row::Int64
    target_row::Int64
    rows::Int64
end

struct otr_shard_options
    struct_size::UInt32
    reserved0::UInt32
    name::Cstring
    first_element::Int64
    published::Ptr{otr_tensor}
    remainder::Ptr{otr_tensor}
    rows::Int64
    reserved::NTuple{4, UInt64}
end

otr_status_name(status) =
    ccall((:otr_status_name, liboutrigger), Cstring,
        (Int32,),
        status)

otr_last_error_message() = ccall((:otr_last_error_message, liboutrigger), Cstring, ())

otr_version() = ccall((:otr_version, liboutrigger), Cstring, ())

otr_abi_version() = ccall((:otr_abi_version, liboutrigger), Int32, ())

otr_build_info() = ccall((:otr_build_info, liboutrigger), Cstring, ())

otr_machine_info(buffer, inout_size) =
    ccall((:otr_machine_info, liboutrigger), Int32,
        (Ptr{UInt8}, Ptr{Csize_t}),
        buffer, inout_size)

otr_tensor_init(data, dtype, ndim, shape, out_tensor) =
    ccall((:otr_tensor_init, liboutrigger), Int32,
        (Ptr{Cvoid}, Cstring, Int32, Ptr{Int64}, Ptr{otr_tensor}),
        data, dtype, ndim, shape, out_tensor)

otr_call_info_init(info, size) =
    ccall((:otr_call_info_init, liboutrigger), Int32,
        (Ptr{otr_call_info}, Csize_t),
        info, size)

otr_context_options_init(options, size) =
    ccall((:otr_context_options_init, liboutrigger), Int32,
        (Ptr{otr_context_options}, Csize_t),
        options, size)

otr_context_create(options, out_context) =
    ccall((:otr_context_create, liboutrigger), Int32,
        (Ptr{otr_context_options}, Ptr{Ptr{otr_context}}),
        options, out_context)

otr_context_destroy(context) =
    ccall((:otr_context_destroy, liboutrigger), Cvoid,
        (Ptr{otr_context},),
        context)

otr_context_load_plugin(context, name) =
    @call beside ccall((:otr_context_load_plugin, liboutrigger), Int32,
        (Ptr{otr_context}, Cstring),
        context, name)

otr_device_count(context, device_type, out_count) =
    @call beside ccall((:otr_device_count, liboutrigger), Int32,
        (Ptr{otr_context}, Int32, Ptr{Int32}),
        context, device_type, out_count)

otr_device_set_value(context, device_type, device_id, name, value) =
    @call beside ccall((:otr_device_set_value, liboutrigger), Int32,
        (Ptr{otr_context}, Int32, Int32, Cstring, Float64),
        context, device_type, device_id, name, value)

otr_device_get_value(context, device_type, device_id, name, out_value) =
    @call beside ccall((:otr_device_get_value, liboutrigger), Int32,
        (Ptr{otr_context}, Int32, Int32, Cstring, Ptr{Float64}),
        context, device_type, device_id, name, out_value)

otr_device_allocator_init(allocator, size) =
    ccall((:otr_device_allocator_init, liboutrigger), Int32,
        (Ptr{otr_device_allocator}, Csize_t),
        allocator, size)

otr_device_set_allocator(context, device_type, device_id, allocator) =
    @call beside ccall((:otr_device_set_allocator, liboutrigger), Int32,
        (Ptr{otr_context}, Int32, Int32, Ptr{otr_device_allocator}),
        context, device_type, device_id, allocator)

otr_device_allocate(context, device_type, device_id, bytes, out_data) =
    @call beside ccall((:otr_device_allocate, liboutrigger), Int32,
        (Ptr{otr_context}, Int32, Int32, Csize_t, Ptr{Ptr{Cvoid}}),
        context, device_type, device_id, bytes, out_data)

otr_device_free(context, device_type, device_id, data) =
    @call beside ccall((:otr_device_free, liboutrigger), Int32,
        (Ptr{otr_context}, Int32, Int32, Ptr{Cvoid}),
        context, device_type, device_id, data)

otr_tensor_copy(context, to, from) =
    @call beside ccall((:otr_tensor_copy, liboutrigger), Int32,
        (Ptr{otr_context}, Ptr{otr_tensor}, Ptr{otr_tensor}),
        context, to, from)

otr_comm_options_init(options, size) =
    ccall((:otr_comm_options_init, liboutrigger), Int32,
        (Ptr{otr_comm_options}, Csize_t),
        options, size)

otr_comm_create_self(context, out_comm) =
    @call beside ccall((:otr_comm_create_self, liboutrigger), Int32,
        (Ptr{otr_context}, Ptr{Ptr{otr_comm}}),
        context, out_comm)

otr_comm_create_threads(context, world_size, options, out_comms) =
    @call beside ccall((:otr_comm_create_threads, liboutrigger), Int32,
        (Ptr{otr_context}, Int32, Ptr{otr_comm_options}, Ptr{Ptr{otr_comm}}),
        context, world_size, options, out_comms)

otr_comm_create_shm(context, options, out_comm) =
    @call waits beside ccall((:otr_comm_create_shm, liboutrigger), Int32,
        (Ptr{otr_context}, Ptr{otr_comm_options}, Ptr{Ptr{otr_comm}}),
        context, options, out_comm)

otr_comm_from_env(context, options, out_comm) =
    @call waits beside ccall((:otr_comm_from_env, liboutrigger), Int32,
        (Ptr{otr_context}, Ptr{otr_comm_options}, Ptr{Ptr{otr_comm}}),
        context, options, out_comm)

otr_comm_table_init(table, size) =
    ccall((:otr_comm_table_init, liboutrigger), Int32,
        (Ptr{otr_comm_table}, Csize_t),
        table, size)

otr_comm_create_custom(context, table, out_comm) =
    @call waits beside ccall((:otr_comm_create_custom, liboutrigger), Int32,
        (Ptr{otr_context}, Ptr{otr_comm_table}, Ptr{Ptr{otr_comm}}),
        context, table, out_comm)

otr_comm_create_mpi(context, mpi_comm, options, out_comm) =
    @call waits beside ccall((:otr_comm_create_mpi, liboutrigger), Int32,
        (Ptr{otr_context}, Ptr{Cvoid}, Ptr{otr_comm_options}, Ptr{Ptr{otr_comm}}),
        context, mpi_comm, options, out_comm)

otr_comm_create_hierarchical(world, host, across, out_comm) =
    @call waits alone ccall((:otr_comm_create_hierarchical, liboutrigger), Int32,
        (Ptr{otr_comm}, Ptr{otr_comm}, Ptr{otr_comm}, Ptr{Ptr{otr_comm}}),
        world, host, across, out_comm)

otr_comm_duplicate(comm, out_comm) =
    @call waits alone ccall((:otr_comm_duplicate, liboutrigger), Int32,
        (Ptr{otr_comm}, Ptr{Ptr{otr_comm}}),
        comm, out_comm)

otr_comm_split(comm, color, key, out_comm) =
    @call waits alone ccall((:otr_comm_split, liboutrigger), Int32,
        (Ptr{otr_comm}, Int32, Int32, Ptr{Ptr{otr_comm}}),
        comm, color, key, out_comm)

otr_comm_rank(comm, out_rank) =
    @call beside ccall((:otr_comm_rank, liboutrigger), Int32,
        (Ptr{otr_comm}, Ptr{Int32}),
        comm, out_rank)

otr_comm_size(comm, out_world_size) =
    @call beside ccall((:otr_comm_size, liboutrigger), Int32,
        (Ptr{otr_comm}, Ptr{Int32}),
        comm, out_world_size)

otr_comm_shares_memory(comm, out_shares) =
    @call beside ccall((:otr_comm_shares_memory, liboutrigger), Int32,
        (Ptr{otr_comm}, Ptr{Int32}),
        comm, out_shares)

otr_comm_barrier(comm) =
    @call waits alone ccall((:otr_comm_barrier, liboutrigger), Int32,
        (Ptr{otr_comm},),
        comm)

otr_comm_broadcast(comm, data, bytes, root) =
    @call waits alone ccall((:otr_comm_broadcast, liboutrigger), Int32,
        (Ptr{otr_comm}, Ptr{Cvoid}, Csize_t, Int32),
        comm, data, bytes, root)

otr_comm_all_gather(comm, mine, bytes, all) =
    @call waits alone ccall((:otr_comm_all_gather, liboutrigger), Int32,
        (Ptr{otr_comm}, Ptr{Cvoid}, Csize_t, Ptr{Cvoid}),
        comm, mine, bytes, all)

otr_comm_all_to_all(comm, parts, part_bytes, received, received_bytes) =
    @call waits alone ccall((:otr_comm_all_to_all, liboutrigger), Int32,
        (Ptr{otr_comm}, Ptr{Cvoid}, Ptr{Csize_t}, Ptr{Cvoid}, Ptr{Csize_t}),
        comm, parts, part_bytes, received, received_bytes)

otr_comm_all_reduce_sum(comm, values, count) =
    @call waits alone ccall((:otr_comm_all_reduce_sum, liboutrigger), Int32,
        (Ptr{otr_comm}, Ptr{Float64}, Csize_t),
        comm, values, count)

otr_comm_abort(comm, reason) =
    @call beside ccall((:otr_comm_abort, liboutrigger), Int32,
        (Ptr{otr_comm}, Cstring),
        comm, reason)

otr_comm_destroy(comm) =
    ccall((:otr_comm_destroy, liboutrigger), Cvoid,
        (Ptr{otr_comm},),
        comm)

otr_engine_create(comm, config_json, out_engine) =
    @call waits alone ccall((:otr_engine_create, liboutrigger), Int32,
        (Ptr{otr_comm}, Cstring, Ptr{Ptr{otr_engine}}),
        comm, config_json, out_engine)

otr_engine_set_device(engine, device_type, device_id) =
    @call alone ccall((:otr_engine_set_device, liboutrigger), Int32,
        (Ptr{otr_engine}, Int32, Int32),
        engine, device_type, device_id)

otr_param_options_init(options, size) =
    ccall((:otr_param_options_init, liboutrigger), Int32,
        (Ptr{otr_param_options}, Csize_t),
        options, size)

otr_engine_add_parameter(engine, name, initial, options, out_id) =
    @call alone ccall((:otr_engine_add_parameter, liboutrigger), Int32,
        (Ptr{otr_engine}, Cstring, Ptr{otr_tensor}, Ptr{otr_param_options}, Ptr{Int64}),
        engine, name, initial, options, out_id)

otr_engine_commit(engine) =
    @call waits alone ccall((:otr_engine_commit, liboutrigger), Int32,
        (Ptr{otr_engine},),
        engine)

otr_engine_set_initial(engine, ids, count, values) =
    @call waits alone ccall((:otr_engine_set_initial, liboutrigger), Int32,
        (Ptr{otr_engine}, Ptr{Int64}, Int64, Ptr{otr_tensor}),
        engine, ids, count, values)

otr_engine_finalize(engine) =
    @call waits alone ccall((:otr_engine_finalize, liboutrigger), Int32,
        (Ptr{otr_engine},),
        engine)

otr_engine_abort(engine, reason) =
    @call beside ccall((:otr_engine_abort, liboutrigger), Int32,
        (Ptr{otr_engine}, Cstring),
        engine, reason)

otr_engine_check(engine) =
    @call beside ccall((:otr_engine_check, liboutrigger), Int32,
        (Ptr{otr_engine},),
        engine)

otr_engine_destroy(engine) =
    @call waits ccall((:otr_engine_destroy, liboutrigger), Cvoid,
        (Ptr{otr_engine},),
        engine)

otr_engine_live_children(engine, out_count) =
    @call beside ccall((:otr_engine_live_children, liboutrigger), Int32,
        (Ptr{otr_engine}, Ptr{Int64}),
        engine, out_count)

otr_engine_parameter_count(engine, out_count) =
    @call beside ccall((:otr_engine_parameter_count, liboutrigger), Int32,
        (Ptr{otr_engine}, Ptr{Int64}),
        engine, out_count)

otr_engine_parameter_id(engine, name, out_id) =
    @call beside ccall((:otr_engine_parameter_id, liboutrigger), Int32,
        (Ptr{otr_engine}, Cstring, Ptr{Int64}),
        engine, name, out_id)

otr_engine_parameter_name(engine, id, out_name) =
    @call beside ccall((:otr_engine_parameter_name, liboutrigger), Int32,
        (Ptr{otr_engine}, Int64, Ptr{Cstring}),
        engine, id, out_name)

otr_engine_parameter_shape(engine, id, out_ndim, out_shape) =
    @call beside ccall((:otr_engine_parameter_shape, liboutrigger), Int32,
        (Ptr{otr_engine}, Int64, Ptr{Int32}, Ptr{Ptr{Int64}}),
        engine, id, out_ndim, out_shape)

otr_engine_acquire(engine, ids, count, info, out_tensors) =
    @call waits alone ccall((:otr_engine_acquire, liboutrigger), Int32,
        (Ptr{otr_engine}, Ptr{Int64}, Int64, Ptr{otr_call_info}, Ptr{otr_tensor}),
        engine, ids, count, info, out_tensors)

otr_engine_release(engine, ids, count, info) =
    @call waits alone ccall((:otr_engine_release, liboutrigger), Int32,
        (Ptr{otr_engine}, Ptr{Int64}, Int64, Ptr{otr_call_info}),
        engine, ids, count, info)

otr_engine_prefetch(engine, ids, count, info) =
    @call waits alone ccall((:otr_engine_prefetch, liboutrigger), Int32,
        (Ptr{otr_engine}, Ptr{Int64}, Int64, Ptr{otr_call_info}),
        engine, ids, count, info)

otr_engine_parameter_read(engine, id, value, out) =
    @call waits alone ccall((:otr_engine_parameter_read, liboutrigger), Int32,
        (Ptr{otr_engine}, Int64, Int32, Ptr{otr_tensor}),
        engine, id, value, out)

otr_engine_parameter_write(engine, id, value, source) =
    @call waits alone ccall((:otr_engine_parameter_write, liboutrigger), Int32,
        (Ptr{otr_engine}, Int64, Int32, Ptr{otr_tensor}),
        engine, id, value, source)

otr_engine_local_range(engine, id, out_first, out_count) =
    @call alone ccall((:otr_engine_local_range, liboutrigger), Int32,
        (Ptr{otr_engine}, Int64, Ptr{Int64}, Ptr{Int64}),
        engine, id, out_first, out_count)

otr_engine_local_read(engine, id, value, out) =
    @call alone ccall((:otr_engine_local_read, liboutrigger), Int32,
        (Ptr{otr_engine}, Int64, Int32, Ptr{otr_tensor}),
        engine, id, value, out)

otr_engine_local_write(engine, id, value, source) =
    @call waits alone ccall((:otr_engine_local_write, liboutrigger), Int32,
        (Ptr{otr_engine}, Int64, Int32, Ptr{otr_tensor}),
        engine, id, value, source)

otr_engine_set_trainable(engine, id, trainable) =
    @call alone ccall((:otr_engine_set_trainable, liboutrigger), Int32,
        (Ptr{otr_engine}, Int64, Int32),
        engine, id, trainable)

otr_engine_set_group_value(engine, group, name, value) =
    @call alone ccall((:otr_engine_set_group_value, liboutrigger), Int32,
        (Ptr{otr_engine}, Cstring, Cstring, Float64),
        engine, group, name, value)

otr_engine_get_group_value(engine, group, name, out_value) =
    @call alone ccall((:otr_engine_get_group_value, liboutrigger), Int32,
        (Ptr{otr_engine}, Cstring, Cstring, Ptr{Float64}),
        engine, group, name, out_value)

otr_engine_config(engine, buffer, inout_size) =
    @call alone ccall((:otr_engine_config, liboutrigger), Int32,
        (Ptr{otr_engine}, Ptr{UInt8}, Ptr{Csize_t}),
        engine, buffer, inout_size)

otr_config_check(config_json, world_size, buffer, inout_size) =
    ccall((:otr_config_check, liboutrigger), Int32,
        (Cstring, Int32, Ptr{UInt8}, Ptr{Csize_t}),
        config_json, world_size, buffer, inout_size)

otr_engine_memory(engine, entries, inout_count) =
    @call alone ccall((:otr_engine_memory, liboutrigger), Int32,
        (Ptr{otr_engine}, Ptr{otr_memory_entry}, Ptr{Csize_t}),
        engine, entries, inout_count)

otr_engine_host_memory(engine, buffer, inout_size) =
    @call alone ccall((:otr_engine_host_memory, liboutrigger), Int32,
        (Ptr{otr_engine}, Ptr{UInt8}, Ptr{Csize_t}),
        engine, buffer, inout_size)

otr_offload_options_init(options, size) =
    ccall((:otr_offload_options_init, liboutrigger), Int32,
        (Ptr{otr_offload_options}, Csize_t),
        options, size)

otr_engine_offload_states(engine, options) =
    @call waits alone ccall((:otr_engine_offload_states, liboutrigger), Int32,
        (Ptr{otr_engine}, Ptr{otr_offload_options}),
        engine, options)

otr_engine_reload_states(engine) =
    @call waits alone ccall((:otr_engine_reload_states, liboutrigger), Int32,
        (Ptr{otr_engine},),
        engine)

otr_estimate_options_init(options, size) =
    ccall((:otr_estimate_options_init, liboutrigger), Int32,
        (Ptr{otr_estimate_options}, Csize_t),
        options, size)

otr_engine_estimate(engine, options, entries, inout_count) =
    @call alone ccall((:otr_engine_estimate, liboutrigger), Int32,
        (Ptr{otr_engine}, Ptr{otr_estimate_options}, Ptr{otr_memory_entry}, Ptr{Csize_t}),
        engine, options, entries, inout_count)

otr_pass_begin(engine, output_grads, count, info, out_pass) =
    @call waits alone ccall((:otr_pass_begin, liboutrigger), Int32,
        (Ptr{otr_engine}, Ptr{otr_tensor}, Int64, Ptr{otr_call_info}, Ptr{Ptr{otr_pass}}),
        engine, output_grads, count, info, out_pass)

otr_pass_get_output_grad(pass, index, out_tensor) =
    @call beside ccall((:otr_pass_get_output_grad, liboutrigger), Int32,
        (Ptr{otr_pass}, Int64, Ptr{otr_tensor}),
        pass, index, out_tensor)

otr_pass_get_scale(pass, out_scale) =
    @call beside ccall((:otr_pass_get_scale, liboutrigger), Int32,
        (Ptr{otr_pass}, Ptr{Float64}),
        pass, out_scale)

otr_pass_get_tag(pass, info) =
    @call beside ccall((:otr_pass_get_tag, liboutrigger), Int32,
        (Ptr{otr_pass}, Ptr{otr_call_info}),
        pass, info)

otr_pass_unscale(pass, grad, out) =
    @call beside ccall((:otr_pass_unscale, liboutrigger), Int32,
        (Ptr{otr_pass}, Ptr{otr_tensor}, Ptr{otr_tensor}),
        pass, grad, out)

otr_pass_get_seed_overflow(pass, out_index) =
    @call beside ccall((:otr_pass_get_seed_overflow, liboutrigger), Int32,
        (Ptr{otr_pass}, Ptr{Int64}),
        pass, out_index)

otr_pass_get_slot(pass, id, out_slot) =
    @call beside ccall((:otr_pass_get_slot, liboutrigger), Int32,
        (Ptr{otr_pass}, Int64, Ptr{otr_tensor}),
        pass, id, out_slot)

otr_pass_add_grad(pass, id, grad, info) =
    @call beside ccall((:otr_pass_add_grad, liboutrigger), Int32,
        (Ptr{otr_pass}, Int64, Ptr{otr_tensor}, Ptr{otr_call_info}),
        pass, id, grad, info)

otr_pass_end(pass) =
    @call alone ccall((:otr_pass_end, liboutrigger), Int32,
        (Ptr{otr_pass},),
        pass)

otr_pass_abandon(pass) =
    @call alone ccall((:otr_pass_abandon, liboutrigger), Int32,
        (Ptr{otr_pass},),
        pass)

otr_pass_destroy(pass) =
    ccall((:otr_pass_destroy, liboutrigger), Cvoid,
        (Ptr{otr_pass},),
        pass)

otr_engine_backward(engine, output_grads, count, info, vjp, user_data) =
    @call alone ccall((:otr_engine_backward, liboutrigger), Int32,
        (Ptr{otr_engine}, Ptr{otr_tensor}, Int64, Ptr{otr_call_info}, Ptr{Cvoid}, Ptr{Cvoid}),
        engine, output_grads, count, info, vjp, user_data)

otr_engine_step(engine, report) =
    @call waits alone ccall((:otr_engine_step, liboutrigger), Int32,
        (Ptr{otr_engine}, Ptr{otr_step_report}),
        engine, report)

otr_engine_step_begin(engine) =
    @call alone ccall((:otr_engine_step_begin, liboutrigger), Int32,
        (Ptr{otr_engine},),
        engine)

otr_engine_report(engine, timeout_seconds, report) =
    @call waits alone ccall((:otr_engine_report, liboutrigger), Int32,
        (Ptr{otr_engine}, Float64, Ptr{otr_step_report}),
        engine, timeout_seconds, report)

otr_engine_reduce(engine, report) =
    @call waits alone ccall((:otr_engine_reduce, liboutrigger), Int32,
        (Ptr{otr_engine}, Ptr{otr_step_report}),
        engine, report)

otr_engine_has_grad(engine, id, out_has_grad) =
    @call alone ccall((:otr_engine_has_grad, liboutrigger), Int32,
        (Ptr{otr_engine}, Int64, Ptr{Int32}),
        engine, id, out_has_grad)

otr_engine_discard(engine) =
    @call waits alone ccall((:otr_engine_discard, liboutrigger), Int32,
        (Ptr{otr_engine},),
        engine)

otr_step_many(engines, count, joint, reports) =
    @call waits ccall((:otr_step_many, liboutrigger), Int32,
        (Ptr{Ptr{otr_engine}}, Int64, Ptr{otr_comm}, Ptr{otr_step_report}),
        engines, count, joint, reports)

otr_engine_set_boundary(engine, boundary) =
    @call alone ccall((:otr_engine_set_boundary, liboutrigger), Int32,
        (Ptr{otr_engine}, Int32),
        engine, boundary)

otr_engine_get_boundary(engine, out_is_boundary) =
    @call alone ccall((:otr_engine_get_boundary, liboutrigger), Int32,
        (Ptr{otr_engine}, Ptr{Int32}),
        engine, out_is_boundary)

otr_engine_get_loss_scale(engine, out_scale) =
    @call alone ccall((:otr_engine_get_loss_scale, liboutrigger), Int32,
        (Ptr{otr_engine}, Ptr{Float64}),
        engine, out_scale)

otr_engine_get_progress(engine, buffer, inout_size) =
    @call alone ccall((:otr_engine_get_progress, liboutrigger), Int32,
        (Ptr{otr_engine}, Ptr{UInt8}, Ptr{Csize_t}),
        engine, buffer, inout_size)

otr_engine_set_progress(engine, progress_json) =
    @call waits alone ccall((:otr_engine_set_progress, liboutrigger), Int32,
        (Ptr{otr_engine}, Cstring),
        engine, progress_json)

otr_watch_options_init(options, size) =
    ccall((:otr_watch_options_init, liboutrigger), Int32,
        (Ptr{otr_watch_options}, Csize_t),
        options, size)

otr_engine_watch(engine, options) =
    @call alone ccall((:otr_engine_watch, liboutrigger), Int32,
        (Ptr{otr_engine}, Ptr{otr_watch_options}),
        engine, options)

otr_engine_note(engine, name, value) =
    @call beside ccall((:otr_engine_note, liboutrigger), Int32,
        (Ptr{otr_engine}, Cstring, Float64),
        engine, name, value)

otr_engine_get_record(engine, buffer, inout_size) =
    @call beside ccall((:otr_engine_get_record, liboutrigger), Int32,
        (Ptr{otr_engine}, Ptr{UInt8}, Ptr{Csize_t}),
        engine, buffer, inout_size)

otr_save_options_init(options, size) =
    ccall((:otr_save_options_init, liboutrigger), Int32,
        (Ptr{otr_save_options}, Csize_t),
        options, size)

otr_engine_save(engine, directory, tag, options) =
    @call waits alone ccall((:otr_engine_save, liboutrigger), Int32,
        (Ptr{otr_engine}, Cstring, Cstring, Ptr{otr_save_options}),
        engine, directory, tag, options)

otr_engine_wait_save(engine, timeout_seconds, out_status) =
    @call waits alone ccall((:otr_engine_wait_save, liboutrigger), Int32,
        (Ptr{otr_engine}, Float64, Ptr{otr_save_status}),
        engine, timeout_seconds, out_status)

otr_load_options_init(options, size) =
    ccall((:otr_load_options_init, liboutrigger), Int32,
        (Ptr{otr_load_options}, Csize_t),
        options, size)

otr_engine_load(engine, directory, tag, options) =
    @call waits alone ccall((:otr_engine_load, liboutrigger), Int32,
        (Ptr{otr_engine}, Cstring, Cstring, Ptr{otr_load_options}),
        engine, directory, tag, options)

otr_snapshot_create(out_snapshot) =
    ccall((:otr_snapshot_create, liboutrigger), Int32,
        (Ptr{Ptr{otr_snapshot}},),
        out_snapshot)

otr_snapshot_destroy(snapshot) =
    ccall((:otr_snapshot_destroy, liboutrigger), Cvoid,
        (Ptr{otr_snapshot},),
        snapshot)

otr_snapshot_options_init(options, size) =
    ccall((:otr_snapshot_options_init, liboutrigger), Int32,
        (Ptr{otr_snapshot_options}, Csize_t),
        options, size)

otr_engine_snapshot(engine, snapshot, options) =
    @call waits alone ccall((:otr_engine_snapshot, liboutrigger), Int32,
        (Ptr{otr_engine}, Ptr{otr_snapshot}, Ptr{otr_snapshot_options}),
        engine, snapshot, options)

otr_engine_restore(engine, snapshots, count) =
    @call waits alone ccall((:otr_engine_restore, liboutrigger), Int32,
        (Ptr{otr_engine}, Ptr{Ptr{otr_snapshot}}, Int64),
        engine, snapshots, count)

otr_snapshot_get_info(snapshot, out_info) =
    @call alone ccall((:otr_snapshot_get_info, liboutrigger), Int32,
        (Ptr{otr_snapshot}, Ptr{otr_snapshot_info}),
        snapshot, out_info)

otr_snapshot_part(snapshot, name, buffer, inout_size) =
    @call alone ccall((:otr_snapshot_part, liboutrigger), Int32,
        (Ptr{otr_snapshot}, Cstring, Ptr{Cvoid}, Ptr{Csize_t}),
        snapshot, name, buffer, inout_size)

otr_checkpoint_open(directory, tag, out_checkpoint) =
    ccall((:otr_checkpoint_open, liboutrigger), Int32,
        (Cstring, Cstring, Ptr{Ptr{otr_checkpoint}}),
        directory, tag, out_checkpoint)

otr_checkpoint_destroy(checkpoint) =
    ccall((:otr_checkpoint_destroy, liboutrigger), Cvoid,
        (Ptr{otr_checkpoint},),
        checkpoint)

otr_checkpoint_describe(checkpoint, buffer, inout_size) =
    @call alone ccall((:otr_checkpoint_describe, liboutrigger), Int32,
        (Ptr{otr_checkpoint}, Ptr{UInt8}, Ptr{Csize_t}),
        checkpoint, buffer, inout_size)

otr_checkpoint_part(checkpoint, rank, name, buffer, inout_size) =
    @call alone ccall((:otr_checkpoint_part, liboutrigger), Int32,
        (Ptr{otr_checkpoint}, Int32, Cstring, Ptr{Cvoid}, Ptr{Csize_t}),
        checkpoint, rank, name, buffer, inout_size)

otr_checkpoint_read(checkpoint, name, value, first, count, out) =
    @call beside ccall((:otr_checkpoint_read, liboutrigger), Int32,
        (Ptr{otr_checkpoint}, Cstring, Int32, Int64, Int64, Ptr{Float32}),
        checkpoint, name, value, first, count, out)

otr_export_options_init(options, size) =
    ccall((:otr_export_options_init, liboutrigger), Int32,
        (Ptr{otr_export_options}, Csize_t),
        options, size)

otr_checkpoint_export(checkpoint, path, options) =
    @call alone ccall((:otr_checkpoint_export, liboutrigger), Int32,
        (Ptr{otr_checkpoint}, Cstring, Ptr{otr_export_options}),
        checkpoint, path, options)

otr_checkpoint_verify(checkpoint) =
    @call alone ccall((:otr_checkpoint_verify, liboutrigger), Int32,
        (Ptr{otr_checkpoint},),
        checkpoint)

otr_checkpoint_list(directory, buffer, inout_size) =
    ccall((:otr_checkpoint_list, liboutrigger), Int32,
        (Cstring, Ptr{UInt8}, Ptr{Csize_t}),
        directory, buffer, inout_size)

otr_writer_options_init(options, size) =
    ccall((:otr_writer_options_init, liboutrigger), Int32,
        (Ptr{otr_writer_options}, Csize_t),
        options, size)

otr_writer_param_options_init(options, size) =
    ccall((:otr_writer_param_options_init, liboutrigger), Int32,
        (Ptr{otr_writer_param_options}, Csize_t),
        options, size)

otr_checkpoint_writer_create(directory, tag, options, out_writer) =
    ccall((:otr_checkpoint_writer_create, liboutrigger), Int32,
        (Cstring, Cstring, Ptr{otr_writer_options}, Ptr{Ptr{otr_checkpoint_writer}}),
        directory, tag, options, out_writer)

otr_checkpoint_writer_add_parameter(writer, name, shape, ndim, options) =
    @call beside ccall((:otr_checkpoint_writer_add_parameter, liboutrigger), Int32,
        (Ptr{otr_checkpoint_writer}, Cstring, Ptr{Int64}, Int64, Ptr{otr_writer_param_options}),
        writer, name, shape, ndim, options)

otr_checkpoint_writer_add_part(writer, name, mine, bytes) =
    @call beside ccall((:otr_checkpoint_writer_add_part, liboutrigger), Int32,
        (Ptr{otr_checkpoint_writer}, Cstring, Ptr{Cvoid}, Csize_t),
        writer, name, mine, bytes)

otr_checkpoint_writer_write(writer, name, value, first, source) =
    @call beside ccall((:otr_checkpoint_writer_write, liboutrigger), Int32,
        (Ptr{otr_checkpoint_writer}, Cstring, Int32, Int64, Ptr{otr_tensor}),
        writer, name, value, first, source)

otr_checkpoint_writer_finish(writer) =
    @call alone ccall((:otr_checkpoint_writer_finish, liboutrigger), Int32,
        (Ptr{otr_checkpoint_writer},),
        writer)

otr_checkpoint_writer_destroy(writer) =
    ccall((:otr_checkpoint_writer_destroy, liboutrigger), Cvoid,
        (Ptr{otr_checkpoint_writer},),
        writer)

otr_import_options_init(options, size) =
    ccall((:otr_import_options_init, liboutrigger), Int32,
        (Ptr{otr_import_options}, Csize_t),
        options, size)

otr_checkpoint_import(source, directory, tag, options) =
    ccall((:otr_checkpoint_import, liboutrigger), Int32,
        (Cstring, Cstring, Cstring, Ptr{otr_import_options}),
        source, directory, tag, options)

otr_message_options_init(options, size) =
    ccall((:otr_message_options_init, liboutrigger), Int32,
        (Ptr{otr_message_options}, Csize_t),
        options, size)

otr_message_pack(names, tensors, count, options, buffer, inout_size) =
    ccall((:otr_message_pack, liboutrigger), Int32,
        (Ptr{Cstring}, Ptr{otr_tensor}, Int64, Ptr{otr_message_options}, Ptr{Cvoid}, Ptr{Csize_t}),
        names, tensors, count, options, buffer, inout_size)

otr_message_seal(buffer, size) =
    ccall((:otr_message_seal, liboutrigger), Int32,
        (Ptr{Cvoid}, Csize_t),
        buffer, size)

otr_message_unpack(data, size, flags, out_message) =
    ccall((:otr_message_unpack, liboutrigger), Int32,
        (Ptr{Cvoid}, Csize_t, UInt32, Ptr{Ptr{otr_message}}),
        data, size, flags, out_message)

otr_message_destroy(message) =
    ccall((:otr_message_destroy, liboutrigger), Cvoid,
        (Ptr{otr_message},),
        message)

otr_message_get_info(message, out_info) =
    @call beside ccall((:otr_message_get_info, liboutrigger), Int32,
        (Ptr{otr_message}, Ptr{otr_message_info}),
        message, out_info)

otr_message_tensor_name(message, index, out_name) =
    @call beside ccall((:otr_message_tensor_name, liboutrigger), Int32,
        (Ptr{otr_message}, Int64, Ptr{Cstring}),
        message, index, out_name)

otr_message_get_tensor(message, name, out_part) =
    @call beside ccall((:otr_message_get_tensor, liboutrigger), Int32,
        (Ptr{otr_message}, Cstring, Ptr{otr_tensor}),
        message, name, out_part)

otr_message_get_tag(message, info) =
    @call beside ccall((:otr_message_get_tag, liboutrigger), Int32,
        (Ptr{otr_message}, Ptr{otr_call_info}),
        message, info)

otr_message_attribute_name(message, index, out_name) =
    @call beside ccall((:otr_message_attribute_name, liboutrigger), Int32,
        (Ptr{otr_message}, Int64, Ptr{Cstring}),
        message, index, out_name)

otr_message_get_attribute(message, name, out_text) =
    @call beside ccall((:otr_message_get_attribute, liboutrigger), Int32,
        (Ptr{otr_message}, Cstring, Ptr{Cstring}),
        message, name, out_text)

otr_message_routes(source_rows, source_ranks, target_rows, target_ranks, routes, inout_count) =
    ccall((:otr_message_routes, liboutrigger), Int32,
        (Ptr{Int64}, Int32, Ptr{Int64}, Int32, Ptr{otr_message_route}, Ptr{Int64}),
        source_rows, source_ranks, target_rows, target_ranks, routes, inout_count)

otr_shard_options_init(options, size) =
    ccall((:otr_shard_options_init, liboutrigger), Int32,
        (Ptr{otr_shard_options}, Csize_t),
        options, size)

otr_shard_wrap(context, weights, grads, options, out_shard) =
    @call beside ccall((:otr_shard_wrap, liboutrigger), Int32,
        (Ptr{otr_context}, Ptr{otr_tensor}, Ptr{otr_tensor}, Ptr{otr_shard_options}, Ptr{Ptr{otr_shard}}),
        context, weights, grads, options, out_shard)

otr_shard_set_grads(shard, grads) =
    @call alone ccall((:otr_shard_set_grads, liboutrigger), Int32,
        (Ptr{otr_shard}, Ptr{otr_tensor}),
        shard, grads)

otr_shard_state(shard, value, out_tensor) =
    @call alone ccall((:otr_shard_state, liboutrigger), Int32,
        (Ptr{otr_shard}, Int32, Ptr{otr_tensor}),
        shard, value, out_tensor)

otr_shard_read(shard, value, destination) =
    @call alone ccall((:otr_shard_read, liboutrigger), Int32,
        (Ptr{otr_shard}, Int32, Ptr{otr_tensor}),
        shard, value, destination)

otr_shard_write(shard, value, source) =
    @call alone ccall((:otr_shard_write, liboutrigger), Int32,
        (Ptr{otr_shard}, Int32, Ptr{otr_tensor}),
        shard, value, source)

otr_shard_get_step(shard, out_step) =
    @call alone ccall((:otr_shard_get_step, liboutrigger), Int32,
        (Ptr{otr_shard}, Ptr{Int64}),
        shard, out_step)

otr_shard_set_step(shard, step) =
    @call alone ccall((:otr_shard_set_step, liboutrigger), Int32,
        (Ptr{otr_shard}, Int64),
        shard, step)

otr_shard_state_bytes(shard, out_bytes) =
    @call alone ccall((:otr_shard_state_bytes, liboutrigger), Int32,
        (Ptr{otr_shard}, Ptr{Int64}),
        shard, out_bytes)

otr_shard_destroy(shard) =
    ccall((:otr_shard_destroy, liboutrigger), Cvoid,
        (Ptr{otr_shard},),
        shard)

otr_optimizer_create(context, optimizer_json, out_optimizer) =
    @call waits beside ccall((:otr_optimizer_create, liboutrigger), Int32,
        (Ptr{otr_context}, Cstring, Ptr{Ptr{otr_optimizer}}),
        context, optimizer_json, out_optimizer)

otr_optimizer_set_value(optimizer, name, value) =
    @call alone ccall((:otr_optimizer_set_value, liboutrigger), Int32,
        (Ptr{otr_optimizer}, Cstring, Float64),
        optimizer, name, value)

otr_optimizer_step(optimizer, shards, count, report) =
    @call alone ccall((:otr_optimizer_step, liboutrigger), Int32,
        (Ptr{otr_optimizer}, Ptr{Ptr{otr_shard}}, Int64, Ptr{otr_step_report}),
        optimizer, shards, count, report)

otr_optimizer_norm(optimizer, shards, count, out_norm) =
    @call alone ccall((:otr_optimizer_norm, liboutrigger), Int32,
        (Ptr{otr_optimizer}, Ptr{Ptr{otr_shard}}, Int64, Ptr{Float64}),
        optimizer, shards, count, out_norm)

otr_optimizer_prepare(optimizer, shards, count) =
    @call alone ccall((:otr_optimizer_prepare, liboutrigger), Int32,
        (Ptr{otr_optimizer}, Ptr{Ptr{otr_shard}}, Int64),
        optimizer, shards, count)

otr_optimizer_save(optimizer, shards, count, directory, tag, options) =
    @call waits alone ccall((:otr_optimizer_save, liboutrigger), Int32,
        (Ptr{otr_optimizer}, Ptr{Ptr{otr_shard}}, Int64, Cstring, Cstring, Ptr{otr_save_options}),
        optimizer, shards, count, directory, tag, options)

otr_optimizer_load(optimizer, shards, count, directory, tag, options) =
    @call waits alone ccall((:otr_optimizer_load, liboutrigger), Int32,
        (Ptr{otr_optimizer}, Ptr{Ptr{otr_shard}}, Int64, Cstring, Cstring, Ptr{otr_load_options}),
        optimizer, shards, count, directory, tag, options)

otr_optimizer_snapshot(optimizer, shards, count, snapshot, options) =
    @call alone ccall((:otr_optimizer_snapshot, liboutrigger), Int32,
        (Ptr{otr_optimizer}, Ptr{Ptr{otr_shard}}, Int64, Ptr{otr_snapshot}, Ptr{otr_snapshot_options}),
        optimizer, shards, count, snapshot, options)

otr_optimizer_restore(optimizer, shards, count, snapshot) =
    @call alone ccall((:otr_optimizer_restore, liboutrigger), Int32,
        (Ptr{otr_optimizer}, Ptr{Ptr{otr_shard}}, Int64, Ptr{otr_snapshot}),
        optimizer, shards, count, snapshot)

otr_optimizer_destroy(optimizer) =
    ccall((:otr_optimizer_destroy, liboutrigger), Cvoid,
        (Ptr{otr_optimizer},),
        optimizer)
