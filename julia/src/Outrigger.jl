# SPDX-License-Identifier: Apache-2.0
"""
ZeRO sharding and low-precision optimizer states for any array library, over the C library Outrigger.

`liboutrigger.jl` holds the C declarations, generated from `outrigger.h`; the other files are a layer of objects over them. Arrays go in without a copy, in
Julia's own memory order. Functions marked "collective" are called by every rank of the group, in the same order.
"""
module Outrigger

import FileWatching, Libdl, Logging
using LinearAlgebra: Adjoint, Transpose

# By its soname: __init__ has loaded the file, so each ccall finds it.
const liboutrigger = Sys.isapple() ? "liboutrigger.0.dylib" : Sys.iswindows() ? "outrigger.dll" : "liboutrigger.so.0"

include("calls.jl")
include("liboutrigger.jl")
include("errors.jl")
include("log.jl")
include("interrupts.jl")
include("bfloat16.jl")
include("handles.jl")
include("tensors.jl")
include("json.jl")
include("comm.jl")
include("engine.jl")
include("parameters.jl")
include("pass.jl")
include("step.jl")
include("optimizer.jl")
include("checkpoints.jl")
include("messages.jl")

export BFloat16, Checkpoint, CheckpointWriter, Comm, Context, Engine, Message, Optimizer, OutriggerError, Pass, Shard, Snapshot
export abandon!, abort!, acquire, add_grad!, add_parameter!, add_parameters!, add_part!, all_gather, all_reduce_sum!, all_to_all, attributes, backward,
       barrier, broadcast!, build_info, commit!, configuration, declare_parameter!, describe, description, discard!, duplicate, end!, estimate,
       export_weights, failure, finalize!, finish!, get_group_value, get_progress, get_step, has_grad, hierarchical_group, host_memory, import_weights,
       is_boundary, library_version, list_checkpoints, live_children, load!, local_range, loss_scale, machine_info, managed, memory, note!, offload_states!,
       outcome, output_grad, pack, parameter_count, parameter_id, parameter_name, parameter_shape, part, parts, prefetch, prepare!, rank, read!, read_local,
       record, reduce!, reload_states!, restore!, resume!, routes, save, seed_overflow, self_group, set_boundary!, set_grads!, set_group_value!,
       set_initial!, set_progress!, set_step!, set_trainable!, shapes, shared_memory_group, skip_reason, slot, snapshot!, state, state_bytes, step!,
       step_begin!, step_many!, tag, thread_groups, unscale, verify, wait_save, watch!, world_size, write!, write_local!

"""
The library that is loaded: in the folder that OUTRIGGER_LIB_DIR names, else what deps/build.jl has built beside the package, else where the system looks.
"""
function library_path()
    haskey(ENV, "OUTRIGGER_LIB_DIR") && return joinpath(ENV["OUTRIGGER_LIB_DIR"], liboutrigger)
    built = joinpath(@__DIR__, "..", "deps", "build", liboutrigger)
    return isfile(built) ? abspath(built) : liboutrigger
end

function __init__()
    path = library_path()
    if Libdl.dlopen(path; throw_error = false) === nothing
        error("the library $path cannot be loaded. Build it with Pkg.build(\"Outrigger\"), or set OUTRIGGER_LIB_DIR to its folder, or install it")
    end
    loaded = otr_abi_version()
    loaded == OTR_ABI_VERSION || error("this package speaks the binary interface $OTR_ABI_VERSION of Outrigger; ",
                                       "$path (", unsafe_string(otr_version()), ") has $loaded")
end

end
