# SPDX-License-Identifier: Apache-2.0

"""
    Context(; workers = 0, log_level = Logging.Warn, interrupt = nothing)
    Context(…) do context … end

Holds what would otherwise be global. `workers`: threads of each engine for updates and reductions; 0: this rank's share of the cores. `log_level`: lines
of the library from this level on go to Julia's Logging. `interrupt`: a function without arguments; calls that wait for other ranks ask it about 20 times a
second, on their own thread, and end with OTR_E_INTERRUPTED where it says `true`, or with what it throws. It must not yield, nor call what waits.

Ctrl-C ends such a call with an `InterruptException`, where Julia throws that at all (`Base.exit_on_sigint(false)` in a script). Any thread.
"""
Context(; workers = 0, log_level = Logging.Warn, interrupt = nothing) = Context(out(Ptr{otr_context}) do context
    otr_context_create(Options(otr_context_options, otr_context_options_init; workers = Int32(workers), log_options(log_level)...,
                               interrupt_options(interrupt)...), context)
end)

# ---- Groups ----

"""
    Comm(context; timeout = 300, job)
    Comm(context) do comm … end

The group that the launcher describes in the environment; one rank alone without a launcher. `timeout`: seconds that a collective call waits for a silent
rank; `job`: a text that the ranks of one job have in common. One thread at a time may use it. Collective.
"""
Comm(context::Context; options...) = Comm(out(Ptr{otr_comm}) do comm
    otr_comm_from_env(context, Options(otr_comm_options, otr_comm_options_init; options...), comm)
end)

"""
    self_group(context)

A group of this rank alone. Local.
"""
self_group(context::Context) = Comm(out(comm -> otr_comm_create_self(context, comm), Ptr{otr_comm}))

"""
    thread_groups(context, ranks; timeout)

A vector of `ranks` groups inside this process, for tests and simulation: each is one rank, and is driven by a thread of its own. Local.
"""
function thread_groups(context::Context, ranks::Integer; options...)
    ranks >= 1 || throw(ArgumentError("$ranks ranks; legal is 1 or more"))
    pointers = fill(Ptr{otr_comm}(C_NULL), ranks)
    check(otr_comm_create_threads(context, ranks, Options(otr_comm_options, otr_comm_options_init; options...), pointers))
    return map(Comm, pointers)
end

"""
    shared_memory_group(context; rank, world_size, job, timeout)

A group of processes of one user on this host. Collective.
"""
shared_memory_group(context::Context; rank, world_size, job, options...) = Comm(out(Ptr{otr_comm}) do comm
    wanted = Options(otr_comm_options, otr_comm_options_init; rank = Int32(rank), world_size = Int32(world_size), job = job, options...)
    otr_comm_create_shm(context, wanted, comm)
end)

"""
    hierarchical_group(world, host, across)

A group of two levels: `world` has every rank, `host` those of this rank's host, `across` those at this rank's place on each host. They stay the caller's.
Collective.
"""
hierarchical_group(world::Comm, host::Comm, across::Comm) =
    Comm(out(comm -> otr_comm_create_hierarchical(world, host, across, comm), Ptr{otr_comm}))

"""
    duplicate(comm)

A second group of the same ranks, for another thread. Collective.
"""
duplicate(comm::Comm) = Comm(out(made -> otr_comm_duplicate(comm, made), Ptr{otr_comm}))

"""
    split(comm, color; key = 0)

The group of the ranks that give the same color, in the order of their keys; `nothing` with color -1. Collective.
"""
function Base.split(comm::Comm, color::Integer; key = 0)
    pointer = out(made -> otr_comm_split(comm, color, key, made), Ptr{otr_comm})
    return pointer == C_NULL ? nothing : Comm(pointer)
end

"""
    rank(comm)

This rank's number, from 0. Any thread.
"""
rank(comm::Comm) = out(reference -> otr_comm_rank(comm, reference), Int32)

"""
    world_size(comm)

The number of ranks. Any thread.
"""
world_size(comm::Comm) = out(reference -> otr_comm_size(comm, reference), Int32)

"""
    abort!(comm, reason = "")
    abort!(engine, reason = "")

Ends a group, or an engine, for all ranks: their calls fail with OTR_E_ABORTED, this rank's number and the reason. Any thread.
"""
abort!(comm::Comm, reason::AbstractString = "") = check(otr_comm_abort(comm, reason))

# ---- Collectives ----

"""
    barrier(comm)

Returns when every rank has called it. Collective.
"""
barrier(comm::Comm) = check(otr_comm_barrier(comm))

plain(array::Array{T}) where {T} = isbitstype(T) ? array :
    throw(ArgumentError("ranks exchange the bytes of elements, and a $T is none; serialize it first"))

"""
    broadcast!(comm, array; root = 0)

Copies the array of rank `root` to all others. Collective.
"""
function Base.broadcast!(comm::Comm, data::Array; root = 0)
    check(otr_comm_broadcast(comm, plain(data), sizeof(data), root))
    return data
end

"""
    all_gather(comm, mine)

The vectors of all ranks, one behind the other; all are as long. Collective.
"""
function all_gather(comm::Comm, mine::Vector{T}) where {T}
    all = Vector{T}(undef, length(mine) * world_size(comm))
    check(otr_comm_all_gather(comm, plain(mine), sizeof(mine), all))
    return all
end

"""
    all_to_all(comm, parts, counts)

Sends a part to every rank and receives one from each. `parts`: a vector for each rank; `counts`: how many elements each rank sends here, a number for
each. Gives a vector from each rank. Collective.
"""
function all_to_all(comm::Comm, parts::AbstractVector{Vector{T}}, counts) where {T}
    ranks = world_size(comm)
    length(parts) == length(counts) == ranks ||
        throw(ArgumentError("$(length(parts)) parts and $(length(counts)) counts; give one of each for each of $ranks ranks"))
    sent, received = plain(reduce(vcat, parts)), Vector{T}(undef, sum(counts))
    check(otr_comm_all_to_all(comm, sent, Csize_t[sizeof(part) for part in parts], received, Csize_t[count * sizeof(T) for count in counts]))
    ends = cumsum(counts)
    return [received[last - count + 1:last] for (last, count) in zip(ends, counts)]
end

"""
    all_reduce_sum!(comm, values)

Replaces each value by its sum over ranks, added in their order: all have the same bits. Collective.
"""
function all_reduce_sum!(comm::Comm, values::Array{Float64})
    check(otr_comm_all_reduce_sum(comm, values, length(values)))
    return values
end
