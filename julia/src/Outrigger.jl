# SPDX-License-Identifier: Apache-2.0
"""
ZeRO sharding and low-precision optimizer states for any array library, over the C library Outrigger.

`liboutrigger.jl` holds the C declarations, generated from `outrigger.h`; the other files are a thin layer of
objects over them. Arrays go in without a copy, in Julia's own memory order.
"""
module Outrigger

using Libdl

# By its soname: __init__ has loaded the file, so each ccall finds it.
const liboutrigger = Sys.isapple() ? "liboutrigger.0.dylib" : Sys.iswindows() ? "outrigger.dll" : "liboutrigger.so.0"

include("gcsafe.jl")
include("liboutrigger.jl")
include("errors.jl")
include("tensors.jl")
include("handles.jl")
include("engine.jl")
include("json.jl")
include("checkpoints.jl")
include("messages.jl")

export BFloat16, Checkpoint, CheckpointWriter, Comm, Context, Engine, Message, Optimizer, OutriggerError, Pass, Shard, Snapshot
export acquire, add_grad!, add_parameter!, add_part!, all_gather, all_reduce_sum!, all_to_all, attributes, backward, barrier, broadcast!, commit!, declare_parameter!, describe,
       description, discard!, end!, export_weights, finalize!, finish!, get_group_value, get_progress, get_step, has_grad, host_memory, import_weights, is_boundary,
       list_checkpoints, live_children, load!, loss_scale, memory, output_grad, pack, parameter_id, parameter_name, parameter_shape, part, parts, prefetch, prepare!,
       offload_states!, rank, read!, reduce!, reload_states!, restore!, resume!, routes, save, set_boundary!, set_grads!, set_group_value!, set_initial!, set_progress!, set_step!, set_trainable!, shapes, slot, snapshot!, state,
       state_bytes, step!, step_begin!, step_many!, tag, unscale, verify, wait_save, world_size, write!

"""OUTRIGGER_LIB_DIR names the folder of the library; without it the system's own places are searched."""
library_path() = haskey(ENV, "OUTRIGGER_LIB_DIR") ? joinpath(ENV["OUTRIGGER_LIB_DIR"], liboutrigger) : liboutrigger

function __init__()
    path = library_path()
    if Libdl.dlopen(path; throw_error = false) === nothing
        error("the library $path cannot be loaded. Build it (cmake --build build --target outrigger) and set ",
              "OUTRIGGER_LIB_DIR to its folder, or install it")
    end
    loaded = otr_abi_version()
    loaded == OTR_ABI_VERSION || error("this package speaks the binary interface $OTR_ABI_VERSION of Outrigger; ",
                                       "$path (", unsafe_string(otr_version()), ") has $loaded")
end

end
