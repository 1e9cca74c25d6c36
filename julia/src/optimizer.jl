# SPDX-License-Identifier: Apache-2.0
# Optimizer and shard, without an engine.

"""
    Shard(context, weights, grads; published, remainder, options…)

A flat piece of the caller's memory that an [`Optimizer`](@ref) updates; the arrays stay the caller's, and the shard keeps them. `weights`, `grads`: vectors
of Float32, BFloat16 or Float16; `grads` may be `nothing` until [`set_grads!`](@ref). `published`: BFloat16 or Float16, receives the updated weights;
`remainder`: UInt16 beside BFloat16 weights, the other half of a split master. Options: `name`, `first_element`, `rows`: for Muon the shard is a matrix of
so many rows, row by row (a Julia matrix has columns: give `vec(permutedims(w))`).
"""
function Shard(context::Context, weights::AbstractArray, grads; published = nothing, remainder = nothing, options...)
    copies = map(array -> array === nothing ? nothing : TensorArgument(own_memory(array)), (published = published, remainder = remainder))
    pointers = map(copy -> copy === nothing ? C_NULL : Base.unsafe_convert(Ptr{otr_tensor}, copy), copies)
    GC.@preserve copies begin
        wanted = Options(otr_shard_options, otr_shard_options_init; pointers..., options...)
        ptr = out(reference -> otr_shard_wrap(context, own_memory(weights), gradients_of(grads), wanted, reference), Ptr{otr_shard})
    end
    return Shard(ptr, (weights, grads, published, remainder))
end
gradients_of(grads) = grads === nothing ? C_NULL : own_memory(grads)

"""
    set_grads!(shard, grads)

The gradients of the next steps, kept by the shard in the place of the last ones; `nothing`: none.
"""
function set_grads!(shard::Shard, grads)
    check(otr_shard_set_grads(shard, gradients_of(grads)))
    shard.owner = (shard.owner[1], grads, shard.owner[3:end]...)
    return shard
end

"""
    state(shard, value)

A moment as it is stored, `:exp_avg` or `:exp_avg_sq`, read-only: valid until the shard is closed, and changed by its steps.
"""
state(shard::Shard, value) = wrap(out(reference -> otr_shard_state(shard, value_of(value), reference), otr_tensor), shard.loan)

"""
    read!(shard, value, to)

Copies `:master`, `:exp_avg` or `:exp_avg_sq` into a vector of any float type.
"""
Base.read!(shard::Shard, value, to::AbstractVector) = (check(otr_shard_read(shard, value_of(value), own_memory(to))); to)

write!(shard::Shard, value, from::AbstractVector) = check(otr_shard_write(shard, value_of(value), from))

"""
    get_step(shard)

How many updates the shard has had.
"""
get_step(shard::Shard) = out(reference -> otr_shard_get_step(shard, reference), Int64)

"""
    set_step!(shard, updates)

The same, when a checkpoint is loaded.
"""
set_step!(shard::Shard, updates) = check(otr_shard_set_step(shard, updates))

"""
    state_bytes(shard)

Bytes of states that the shard owns.
"""
state_bytes(shard::Shard) = out(reference -> otr_shard_state_bytes(shard, reference), Int64)

"""
    Optimizer(context, config)

An update rule: JSON as a text, or as named tuples and dictionaries, `(type = "AdamW", params = (lr = 1e-3,))`.
"""
Optimizer(context::Context, config) =
    Optimizer(out(reference -> otr_optimizer_create(context, configuration_text(config), reference), Ptr{otr_optimizer}))

"Sets \"lr\", \"weight_decay\" and so on; \"gradient_factor\" is what gradients are multiplied by."
set_value!(optimizer::Optimizer, name, value) = check(otr_optimizer_set_value(optimizer, name, value))

"The norm of the shards' gradients, as a step multiplies them; Inf where one is not finite."
norm(optimizer::Optimizer, shards::Shard...) = alone(shards) do pointers
    out(reference -> otr_optimizer_norm(optimizer, shard_pointers(pointers), length(pointers), reference), Float64)
end
shard_pointers(pointers) = Ptr{otr_shard}[pointers...]

"""
    prepare!(optimizer, shards...)

Gives shards their states, zero, to load a checkpoint into them.
"""
prepare!(optimizer::Optimizer, shards::Shard...) =
    check(alone(pointers -> otr_optimizer_prepare(optimizer, shard_pointers(pointers), length(pointers)), shards))

"""
    step!(optimizer, shards...)

One update of the shards, with one norm over all. Gives the report.
"""
function step!(optimizer::Optimizer, shards::Shard...)
    report = sized(otr_step_report)
    check(alone(pointers -> otr_optimizer_step(optimizer, shard_pointers(pointers), length(pointers), report), shards))
    return report[]
end

"""
    Outrigger.Rule(config; context = Context())

An update rule of the library for `Optimisers.setup`, with Float32 masters and moments of any format; norm and clipping are each array's own. With the
package Optimisers loaded.
"""
function Rule end
