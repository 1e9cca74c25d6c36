# SPDX-License-Identifier: Apache-2.0
# The functions of outrigger.h as methods; what they do in detail stands there.

"""
    Engine(comm, config = "")
    Engine(comm, config) do engine … end

One model's training state on this rank. `config`: DeepSpeed-compatible JSON (docs/configuration.md), as a text or as named tuples and dictionaries. Then
come [`add_parameter!`](@ref) or [`add_parameters!`](@ref), and [`commit!`](@ref). One thread at a time may use an engine, but for functions that say "any
thread".

With a block the engine is finalized at its end. If the block throws, it is aborted instead, so that other ranks do not wait.
"""
Engine(comm::Comm, config = "") =
    Engine(out(reference -> otr_engine_create(comm, configuration_text(config), reference), Ptr{otr_engine}), Watches(Any[], ""))

configuration_text(config::AbstractString) = config
configuration_text(config::Union{NamedTuple, AbstractDict}) = json(config)

function Engine(body::Function, comm::Comm, config = "")
    engine = Engine(comm, config)
    try
        result = body(engine)
        isopen(engine) && finalize!(engine)
        return result
    catch cause
        try
            abort!(engine, sprint(showerror, cause))
        catch
        end
        rethrow()
    finally
        close(engine)
    end
end

"""
    commit!(engine)

Ends the declarations: shards, allocates, distributes rank 0's values. Collective.
"""
commit!(engine::Engine) = (check(otr_engine_commit(engine)); deliver_log())

"""
    finalize!(engine)

Waits for all background work of all ranks, and ends the engine's collectives. What it lent is over. Collective.
"""
function finalize!(engine::Engine)
    check(otr_engine_finalize(engine))
    engine.loan.valid = false
    return nothing
end

abort!(engine::Engine, reason::AbstractString = "") = check(otr_engine_abort(engine, reason))

"""
    failure(engine)

The first failure of background work or of a collective call, as an `OutriggerError`; `nothing`: there was none. Any thread.
"""
function failure(engine::Engine)
    code = otr_engine_check(engine)
    return code == OTR_OK ? nothing : OutriggerError(code, unsafe_string(otr_last_error_message()))
end

"""
    live_children(engine)

Passes that are not closed yet, for tests of leaks. Any thread.
"""
live_children(engine::Engine) = out(reference -> otr_engine_live_children(engine, reference), Int64)

# ---- Hyperparameters and configuration ----

"""
    set_group_value!(engine, name, value; group)

Sets a hyperparameter ("lr", "weight_decay", …) of a parameter group, or of all, from the next step on. Every rank sets the same.
"""
set_group_value!(engine::Engine, name, value; group = C_NULL) = check(otr_engine_set_group_value(engine, group, name, value))

"""
    get_group_value(engine, name; group)

A hyperparameter; "scheduled_lr" is the next update's rate. Without a group: that of "default".
"""
get_group_value(engine::Engine, name; group = C_NULL) =
    out(reference -> otr_engine_get_group_value(engine, group, name, reference), Float64)

"""
    configuration(engine)
    configuration(config; world_size = 1)

The configuration in effect, each key with its value and origin, as a dictionary; of an engine, or of a configuration that is checked without one.
"""
configuration(engine::Engine) = parse_json(text(asked((buffer, size) -> otr_engine_config(engine, buffer, size))))
configuration(config; world_size = 1) =
    parse_json(text(asked((buffer, size) -> otr_config_check(configuration_text(config), world_size, buffer, size))))

# ---- Memory ----

function ledger(ask)
    count = Ref{Csize_t}(0)
    check(ask(C_NULL, count))
    entries = [sized(otr_memory_entry)[] for _ in 1:count[]]
    check(ask(entries, count))
    return [(unsafe_string(entry.purpose), entry.resident_bytes, entry.peak_bytes) for entry in entries]
end

"""
    memory(engine)

The ledger of this rank: a vector of purpose, resident bytes and peak bytes, with a "total" last.
"""
memory(engine::Engine) = ledger((entries, count) -> otr_engine_memory(engine, entries, count))

"""
    estimate(engine; world_size = 1, options…)

What one rank would hold for the parameters declared so far, as [`memory`](@ref) shows it. Nothing is allocated. Options: the fields of
`otr_estimate_options`.
"""
function estimate(engine::Engine; options...)
    wanted = Options(otr_estimate_options, otr_estimate_options_init; options...)
    return ledger((entries, count) -> otr_engine_estimate(engine, wanted, entries, count))
end

"""
    host_memory(engine)

What the system has given for the engine's large blocks of host memory, as a dictionary: resident, huge and locked bytes, nodes, page-locking.
"""
host_memory(engine::Engine) = parse_json(text(asked((buffer, size) -> otr_engine_host_memory(engine, buffer, size))))

"""
    offload_states!(engine; states = 0, page_lock = true)

Moves states from the device to host memory, so that others can use the device between two windows. `states`: a sum of OTR_STATES_PUBLISHED,
OTR_STATES_MASTER, OTR_STATES_MOMENTS and OTR_STATES_GRADIENTS; 0: all. Until `reload_states!` a call that needs what was moved fails. Collective.
"""
function offload_states!(engine::Engine; states = 0, page_lock = true)
    return_lent!(engine)
    return check(otr_engine_offload_states(engine, Options(otr_offload_options, otr_offload_options_init; states = states, page_lock = page_lock)))
end

"""
    reload_states!(engine)

Moves all of it back. Collective.
"""
reload_states!(engine::Engine) = check(otr_engine_reload_states(engine))

# ---- Progress ----

"""
    get_progress(engine)

All that the run is besides the parameters' values, as one line of JSON; between two windows.
"""
get_progress(engine::Engine) = text(asked((buffer, size) -> otr_engine_get_progress(engine, buffer, size)))

"""
    set_progress!(engine, progress)

Goes on from what `get_progress` gave, here or in another engine of the same parameters, whose values are written apart. Collective.
"""
set_progress!(engine::Engine, progress) = check(otr_engine_set_progress(engine, progress))

# ---- The library and the machine ----

"""
    library_version()

The version of the library that is loaded. Any thread.
"""
library_version() = VersionNumber(unsafe_string(otr_version()))

"""
    build_info()

The library's compiler, instruction sets and communicators, as a dictionary. Any thread.
"""
build_info() = parse_json(unsafe_string(otr_build_info()))

"""
    machine_info()

What this machine and this process offer: cores, caches, memory and its limits, as a dictionary. Any thread.
"""
machine_info() = parse_json(text(asked(otr_machine_info)))
