# SPDX-License-Identifier: Apache-2.0
# The functions of outrigger.h as methods; what they do stands there.

Context(; options...) = Context(out(Ptr{otr_context}) do context
    otr_context_create(Options(otr_context_options, otr_context_options_init; options...), context)
end)

# ---- Communicators ----

"""The group that the launcher describes in the environment. Options: timeout, job."""
Comm(context::Context; options...) = Comm(out(Ptr{otr_comm}) do comm
    otr_comm_from_env(context, Options(otr_comm_options, otr_comm_options_init; options...), comm)
end)

rank(comm::Comm) = out(reference -> otr_comm_rank(comm, reference), Int32)
world_size(comm::Comm) = out(reference -> otr_comm_size(comm, reference), Int32)
barrier(comm::Comm) = check(otr_comm_barrier(comm))

function Base.broadcast!(comm::Comm, data::Array; root = 0)
    check(otr_comm_broadcast(comm, data, sizeof(data), root))
    data
end

function all_gather(comm::Comm, mine::Vector{T}) where {T}
    all = Vector{T}(undef, length(mine) * world_size(comm))
    check(otr_comm_all_gather(comm, mine, sizeof(mine), all))
    all
end

"""
    all_to_all(comm, parts, counts)

Sends a part to every rank and receives one from each. parts: a vector for each rank; counts: how many elements each rank sends here, a number for
each. Gives a vector from each rank. Collective.
"""
function all_to_all(comm::Comm, parts::AbstractVector{Vector{T}}, counts) where {T}
    ranks = world_size(comm)
    length(parts) == length(counts) == ranks ||
        throw(ArgumentError("$(length(parts)) parts and $(length(counts)) counts; give one of each for each of $ranks ranks"))
    sent, received = reduce(vcat, parts), Vector{T}(undef, sum(counts))
    check(otr_comm_all_to_all(comm, sent, Csize_t[sizeof(part) for part in parts], received, Csize_t[count * sizeof(T) for count in counts]))
    ends = cumsum(counts)
    return [received[last - count + 1:last] for (last, count) in zip(ends, counts)]
end

function all_reduce_sum!(comm::Comm, values::Array{Float64})
    check(otr_comm_all_reduce_sum(comm, values, length(values)))
    values
end

# ---- Engine ----

Engine(comm::Comm, config::AbstractString = "") =
    Engine(out(reference -> otr_engine_create(comm, config, reference), Ptr{otr_engine}))

"""Returns the id. `initial` may be nothing for an alias. Options: trainable, alias_of, group, contributions."""
function add_parameter!(engine::Engine, name::AbstractString, initial = nothing; options...)
    wanted = Options(otr_param_options, otr_param_options_init; options...)
    values = initial === nothing ? C_NULL : initial
    out(reference -> otr_engine_add_parameter(engine, name, values, wanted, reference), Int64)
end

"""
    declare_parameter!(engine, name, shape; options…)

Like add_parameter!, without a value: it is 0 until set_initial!, which costs nothing beside the caller's own memory.
"""
function declare_parameter!(engine::Engine, name::AbstractString, shape; options...)
    wanted = Options(otr_param_options, otr_param_options_init; options...)
    extents = collect(Int64, shape)
    nothing_yet = Ref{otr_tensor}()
    GC.@preserve extents begin
        check(otr_tensor_init(C_NULL, "float32", length(extents), extents, nothing_yet))
        out(reference -> otr_engine_add_parameter(engine, name, nothing_yet, wanted, reference), Int64)
    end
end

commit!(engine::Engine) = check(otr_engine_commit(engine))

"""
First values of these parameters, one array for each id, between commit! and the first pass; equal on all ranks, else
rank 0's win. Collective.
"""
function set_initial!(engine::Engine, ids, values)
    arguments = [Base.cconvert(Ptr{otr_tensor}, value) for value in values]
    tensors = otr_tensor[argument.tensor[] for argument in arguments]
    length(ids) == length(tensors) || throw(ArgumentError("$(length(tensors)) values for $(length(ids)) ids"))
    GC.@preserve arguments begin
        check(otr_engine_set_initial(engine, collect(Int64, ids), length(tensors), tensors))
    end
end

finalize!(engine::Engine) = check(otr_engine_finalize(engine))
live_children(engine::Engine) = out(reference -> otr_engine_live_children(engine, reference), Int64)
parameter_id(engine::Engine, name) = out(reference -> otr_engine_parameter_id(engine, name, reference), Int64)
parameter_name(engine::Engine, id) =
    unsafe_string(out(reference -> otr_engine_parameter_name(engine, id, reference), Cstring))
function parameter_shape(engine::Engine, id)
    ndim, shape = Ref{Int32}(0), Ref{Ptr{Int64}}(C_NULL)
    check(otr_engine_parameter_shape(engine, id, ndim, shape))
    Tuple(Int(unsafe_load(shape[], d)) for d in 1:ndim[])
end
set_group_value!(engine::Engine, name, value; group = C_NULL) =
    check(otr_engine_set_group_value(engine, group, name, value))
get_group_value(engine::Engine, name; group = C_NULL) =
    out(reference -> otr_engine_get_group_value(engine, group, name, reference), Float64)

acquire_info(float32) = Options(otr_call_info, otr_call_info_init; flags = float32 ? OTR_ACQUIRE_FLOAT32 : UInt32(0))

prefetch(engine::Engine, ids; float32 = false) =
    check(otr_engine_prefetch(engine, collect(Int64, ids), length(ids), acquire_info(float32)))

"""
    acquire(engine, ids; float32 = false) do weights … end

Gives the parameters as read-only arrays, which are valid inside of the block.
"""
function acquire(body, engine::Engine, ids; float32 = false)
    numbers, info = collect(Int64, ids), acquire_info(float32)
    tensors = Vector{otr_tensor}(undef, length(numbers))
    check(otr_engine_acquire(engine, numbers, length(numbers), info, tensors))
    try
        body(map(wrap, tensors))
    finally
        check(otr_engine_release(engine, numbers, length(numbers), info))
    end
end

"""Copies a value (OTR_VALUE_MASTER, …) of the whole parameter into an array, or into a new one. Collective."""
Base.read(engine::Engine, id, value = OTR_VALUE_MASTER) =
    read!(engine, id, value, Array{Float32}(undef, parameter_shape(engine, id)))
function Base.read!(engine::Engine, id, value, array::AbstractArray)
    check(otr_engine_parameter_read(engine, id, value, array))
    array
end

"""The ledger: (purpose, resident bytes, peak bytes)."""
function memory(engine::Engine)
    count = Ref{Csize_t}(0)
    check(otr_engine_memory(engine, C_NULL, count))
    entries = fill(otr_memory_entry(sizeof(otr_memory_entry), 0, Cstring(C_NULL), 0, 0), count[])
    check(otr_engine_memory(engine, entries, count))
    [(unsafe_string(e.purpose), e.resident_bytes, e.peak_bytes) for e in entries]
end

"""
Moves states from the device to host memory, so that others can use the device between two windows. states: a sum of OTR_STATES_PUBLISHED,
OTR_STATES_MASTER, OTR_STATES_MOMENTS and OTR_STATES_GRADIENTS; 0: all. Until reload_states! a call that needs what was moved fails. Collective.
"""
offload_states!(engine::Engine; states = 0, page_lock = true) = check(otr_engine_offload_states(engine,
    Options(otr_offload_options, otr_offload_options_init; states = Int32(states), page_lock = Int32(page_lock))))

"""
Moves all of it back. Collective.
"""
reload_states!(engine::Engine) = check(otr_engine_reload_states(engine))

"""What the system has given for the engine's large blocks of host memory: resident, huge and locked bytes, nodes, page-locking."""
function host_memory(engine::Engine)
    size = Ref{Csize_t}(0)
    check(otr_engine_host_memory(engine, C_NULL, size))
    buffer = Vector{UInt8}(undef, size[] + 1024)  # figures change, and with them the length
    size[] = length(buffer)
    check(otr_engine_host_memory(engine, buffer, size))
    parse_json(text(buffer[1:size[]]))
end

step_report() = Ref(otr_step_report(sizeof(otr_step_report), zeros(fieldcount(otr_step_report) - 1)...))

"""Ends a micro-batch; the report's outcome is OTR_STEP_ACCUMULATED, OTR_STEP_APPLIED or OTR_STEP_SKIPPED."""
function step!(engine::Engine)
    report = step_report()
    check(otr_engine_step(engine, report))
    report[]
end

"""Begins the step on a thread of the library and returns at once; `Outrigger.report` tells how it ended."""
step_begin!(engine::Engine) = check(otr_engine_step_begin(engine))

"""
The report of the step that was begun last; its outcome is OTR_STEP_PENDING if that is not over within `timeout`
seconds. 0 only asks, a negative one waits for the end.
"""
function report(engine::Engine, timeout = -1.0)
    found = step_report()
    check(otr_engine_report(engine, timeout, found))
    found[]
end

"""
The first half of a step that ends a window: until the step, `OTR_VALUE_GRAD` can be read and written. Collective.
"""
function reduce!(engine::Engine)
    report = step_report()
    check(otr_engine_reduce(engine, report))
    report[]
end

"""
Whether the step would update this parameter; between `reduce!` and the step.
"""
has_grad(engine::Engine, id) = out(reference -> otr_engine_has_grad(engine, id, reference), Int32) != 0

"""
Drops the gradients of the window, summed or not. Collective.
"""
discard!(engine::Engine) = check(otr_engine_discard(engine))

# Asks in two calls: for the size, then for the bytes.
function asked(ask)
    size = Ref{Csize_t}(0)
    check(ask(C_NULL, size))
    buffer = Vector{UInt8}(undef, size[])
    check(ask(buffer, size))
    buffer
end
text(bytes) = String(bytes[1:end-1])  # without its NUL

"""
All that the run is besides the parameters' values, as one line of JSON; between two windows.
"""
get_progress(engine::Engine) = text(asked((buffer, size) -> otr_engine_get_progress(engine, buffer, size)))

"""
Goes on from what `get_progress` gave, here or in another engine of the same parameters, whose values are written apart.
Collective.
"""
set_progress!(engine::Engine, progress) = check(otr_engine_set_progress(engine, progress))

"""
One step of several engines, all or none. joint: a group of the ranks of all, where they have different engines.
Collective.
"""
function step_many!(engines; joint = nothing)
    pointers = [engine.ptr for engine in engines]
    reports = [step_report()[] for _ in engines]
    GC.@preserve engines begin
        check(otr_step_many(pointers, length(pointers), joint === nothing ? C_NULL : joint, reports))
    end
    reports
end

"""boundary: OTR_BOUNDARY_CONFIGURED, OTR_BOUNDARY_NO or OTR_BOUNDARY_YES."""
set_boundary!(engine::Engine, boundary) = check(otr_engine_set_boundary(engine, boundary))
is_boundary(engine::Engine) = out(reference -> otr_engine_get_boundary(engine, reference), Int32) != 0
loss_scale(engine::Engine) = out(reference -> otr_engine_get_loss_scale(engine, reference), Float64)
set_trainable!(engine::Engine, id, trainable) = check(otr_engine_set_trainable(engine, id, Int32(trainable)))

"""Sets a value (OTR_VALUE_MASTER, …) of the whole parameter from rank 0's array. Collective."""
write!(engine::Engine, id, source::AbstractArray, value = OTR_VALUE_MASTER) =
    check(otr_engine_parameter_write(engine, id, value, source))

# ---- Pass ----

"""tag: another pass's, if the gradients come from there."""
function Pass(engine::Engine, output_grads = (); tag = nothing)
    arguments = [Base.cconvert(Ptr{otr_tensor}, gradient) for gradient in output_grads]
    tensors = otr_tensor[argument.tensor[] for argument in arguments]
    info = tag === nothing ? C_NULL : Ref(tag)
    GC.@preserve arguments begin
        ptr = out(reference -> otr_pass_begin(engine, tensors, length(tensors), info, reference), Ptr{otr_pass})
    end
    Pass(ptr, engine)
end

"""
    backward(engine, ȳ...; tag) do pass, ȳ... end

One pass: the block gets the scaled gradients of the outputs, which are valid inside of it. It ends on a normal
return and is abandoned on an exception.
"""
function backward(body, engine::Engine, output_grads...; tag = nothing)
    pass = Pass(engine, output_grads; tag = tag)
    try
        GC.@preserve pass body(pass, (output_grad(pass, i - 1) for i in eachindex(output_grads))...)
        end!(pass)
    catch
        abandon!(pass)
        rethrow()
    finally
        close(pass)
    end
end

"""What this pass's gradients carry, for the engine that made the inputs."""
function tag(pass::Pass)
    info = Options(otr_call_info, otr_call_info_init).value
    check(otr_pass_get_tag(pass, info))
    info[]
end

"""gradient without the factor that the pass applied, as a new array."""
function unscale(pass::Pass, gradient::AbstractArray)
    plain = Array{Float32}(undef, size(gradient))
    check(otr_pass_unscale(pass, gradient, plain))
    plain
end

scale(pass::Pass) = out(reference -> otr_pass_get_scale(pass, reference), Float64)
output_grad(pass::Pass, index = 0) = wrap(out(reference -> otr_pass_get_output_grad(pass, index, reference), otr_tensor))
slot(pass::Pass, id) = wrap(out(reference -> otr_pass_get_slot(pass, id, reference), otr_tensor))
add_grad!(pass::Pass, id, gradient::AbstractArray) = check(otr_pass_add_grad(pass, id, gradient, C_NULL))
end!(pass::Pass) = check(otr_pass_end(pass))
abandon!(pass::Pass) = check(otr_pass_abandon(pass))

# ---- Optimizer and shard ----

"""The arrays stay the caller's and are held by the shard. remainder: UInt16 beside BFloat16 weights, the other half of a split master.
Options: name, first_element, rows: for Muon the shard is a matrix of so many rows, row by row (a Julia matrix has columns: give
`vec(permutedims(w))`)."""
function Shard(context::Context, weights, grads; published = nothing, remainder = nothing, options...)
    copies = map(array -> array === nothing ? nothing : TensorArgument(array), (; published, remainder))
    pointers = map(copy -> copy === nothing ? C_NULL : Base.unsafe_convert(Ptr{otr_tensor}, copy), copies)
    GC.@preserve copies begin
        wanted = Options(otr_shard_options, otr_shard_options_init; pointers..., options...)
        ptr = out(reference -> otr_shard_wrap(context, weights, grads, wanted, reference), Ptr{otr_shard})
    end
    Shard(ptr, (weights, grads, published, remainder))
end

"""The gradients of the next steps, held by the shard in the place of the last ones; nothing: none."""
function set_grads!(shard::Shard, grads)
    check(otr_shard_set_grads(shard, grads === nothing ? C_NULL : grads))
    shard.owner = (shard.owner[1], grads, shard.owner[3:end]...)
    shard
end

state(shard::Shard, value) = wrap(out(reference -> otr_shard_state(shard, value, reference), otr_tensor))
Base.read!(shard::Shard, value, to::AbstractVector) = (check(otr_shard_read(shard, value, to)); to)
write!(shard::Shard, value, from::AbstractVector) = check(otr_shard_write(shard, value, from))
get_step(shard::Shard) = out(reference -> otr_shard_get_step(shard, reference), Int64)
set_step!(shard::Shard, updates) = check(otr_shard_set_step(shard, updates))
state_bytes(shard::Shard) = out(reference -> otr_shard_state_bytes(shard, reference), Int64)

Optimizer(context::Context, config::AbstractString) =
    Optimizer(out(reference -> otr_optimizer_create(context, config, reference), Ptr{otr_optimizer}))

set_value!(optimizer::Optimizer, name, value) = check(otr_optimizer_set_value(optimizer, name, value))

"""The norm of the shards' gradients, as a step multiplies them; Inf where one is not finite."""
function norm(optimizer::Optimizer, shards...)
    pointers = [shard.ptr for shard in shards]
    GC.@preserve shards out(reference -> otr_optimizer_norm(optimizer, pointers, length(pointers), reference), Float64)
end

"""Gives the shards their states, to load a checkpoint into them."""
function prepare!(optimizer::Optimizer, shards...)
    pointers = [shard.ptr for shard in shards]
    GC.@preserve shards check(otr_optimizer_prepare(optimizer, pointers, length(pointers)))
end

function step!(optimizer::Optimizer, shards...)
    report = step_report()
    pointers = [shard.ptr for shard in shards]
    GC.@preserve shards check(otr_optimizer_step(optimizer, pointers, length(pointers), report))
    report[]
end
