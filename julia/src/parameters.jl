# SPDX-License-Identifier: Apache-2.0
# Parameters: declared, by name or nested; acquired; read and written.

const Nested = Union{NamedTuple, Tuple}
const VALUES = (master = OTR_VALUE_MASTER, published = OTR_VALUE_PUBLISHED, exp_avg = OTR_VALUE_EXP_AVG, exp_avg_sq = OTR_VALUE_EXP_AVG_SQ,
                grad = OTR_VALUE_GRAD)
value_of(value::Integer) = value
value_of(value::Symbol) = haskey(VALUES, value) ? VALUES[value] : throw(ArgumentError("no value :$value; there are :$(join(keys(VALUES), ", :"))"))

"""
    add_parameter!(engine, name, initial; trainable, alias_of, group, contributions)

Declares a parameter, before `commit!`, and gives its id. `initial`: an array of Float32, Float64, Float16 or BFloat16, of any shape and strides, which is
copied; `nothing` for an alias. `trainable`: 0: frozen; `alias_of`: the id of an earlier parameter that this name shares; `group`: a name;
`contributions`: how many gradients a pass adds. Every rank declares the same; rank 0's values count.
"""
function add_parameter!(engine::Engine, name::AbstractString, initial = nothing; options...)
    wanted = Options(otr_param_options, otr_param_options_init; options...)
    values = initial === nothing ? C_NULL : initial
    return out(reference -> otr_engine_add_parameter(engine, name, values, wanted, reference), Int64)
end

"""
    declare_parameter!(engine, name, shape; options…)

Like [`add_parameter!`](@ref), without a value: it is 0 until `set_initial!`, which costs nothing beside the caller's own memory.
"""
function declare_parameter!(engine::Engine, name::AbstractString, shape; options...)
    wanted = Options(otr_param_options, otr_param_options_init; options...)
    extents = collect(Int64, shape)
    nothing_yet = Ref{otr_tensor}()
    GC.@preserve extents begin
        check(otr_tensor_init(C_NULL, "float32", length(extents), extents, nothing_yet))
        return out(reference -> otr_engine_add_parameter(engine, name, nothing_yet, wanted, reference), Int64)
    end
end

"""
    add_parameters!(engine, values; trainable = name -> true, group = name -> "default")

Declares the arrays of nested named tuples and tuples, as Lux and Zygote have them, and gives ids in the same nesting: `(layer1 = (weight = w,),)` has the
parameter "layer1.weight". In a tuple the names count from 1. An array that comes twice is one parameter with two names. `nothing` and empty tuples stay.

    add_parameters!(engine, model, rng; …)

The same of a model of Lux, with the package LuxCore loaded: gives the ids and the model's state.
"""
function add_parameters!(engine::Engine, values::Nested; trainable = name -> true, group = name -> "default")
    seen = IdDict{Any, Int64}()
    return named(values, "") do name, value
        value === nothing && return nothing
        value isa AbstractArray || throw(ArgumentError("\"$name\" is a $(typeof(value)); a parameter is an array, of no dimension for a number: fill(x)"))
        haskey(seen, value) && return add_parameter!(engine, name; alias_of = seen[value])
        return seen[value] = add_parameter!(engine, name, value; trainable = Int32(trainable(name)::Bool), group = group(name))
    end
end

# f(name, leaf) for each leaf, in the same nesting.
named(f, values::Nested, prefix) = isempty(values) ? values : of_keys(values, map((key, value) -> named(f, value, "$prefix$key."), Tuple(keys(values)), Tuple(values)))
named(f, leaf, prefix) = f(String(chop(prefix)), leaf)
of_keys(::NamedTuple{names}, values) where {names} = NamedTuple{names}(values)
of_keys(::Tuple, values) = values

# The leaves one behind the other, and such a vector in the nesting again.
flat!(found, nested::Nested) = (foreach(each -> flat!(found, each), Tuple(nested)); found)
flat!(found, leaf) = leaf === nothing ? found : push!(found, leaf)
function nest(nested, leaves)
    next = Ref(0)
    return named((name, leaf) -> leaf === nothing ? nothing : leaves[next[] += 1], nested, "")
end

"""
    set_initial!(engine, ids, values)

First values of these parameters, one array for each id, between `commit!` and the first pass; equal on all ranks, else rank 0's win. Both may be nested
alike. Collective.
"""
function set_initial!(engine::Engine, ids, values)
    arguments = tensor_arguments(values)
    tensors = otr_tensor[argument.tensor for argument in arguments]
    length(ids) == length(tensors) || throw(ArgumentError("$(length(tensors)) values for $(length(ids)) ids"))
    GC.@preserve arguments begin
        check(otr_engine_set_initial(engine, collect(Int64, ids), length(tensors), tensors))
    end
end
set_initial!(engine::Engine, ids::Nested, values::Nested) = set_initial!(engine, flat!(Int64[], ids), flat!(Any[], values))

"""
    parameter_count(engine)

Parameters declared, aliases and frozen ones included. Any thread.
"""
parameter_count(engine::Engine) = out(reference -> otr_engine_parameter_count(engine, reference), Int64)

"""
    parameter_id(engine, name)

A parameter's id, from 0. Any thread.
"""
parameter_id(engine::Engine, name) = out(reference -> otr_engine_parameter_id(engine, name, reference), Int64)

"""
    parameter_name(engine, id)

A parameter's name. Any thread.
"""
parameter_name(engine::Engine, id) =
    GC.@preserve engine unsafe_string(out(reference -> otr_engine_parameter_name(engine, id, reference), Cstring))

"""
    parameter_shape(engine, id)

A parameter's size, as `size` gives it. Any thread.
"""
function parameter_shape(engine::Engine, id)
    ndim, shape = Ref{Int32}(0), Ref{Ptr{Int64}}(C_NULL)
    GC.@preserve engine begin
        check(otr_engine_parameter_shape(engine, id, ndim, shape))
        return Tuple(Int(unsafe_load(shape[], d)) for d in 1:ndim[])
    end
end

"""
    set_trainable!(engine, id, trainable)

Freezes a parameter that was declared trainable, or thaws it; not between a pass and its step. Every rank makes the same call.
"""
set_trainable!(engine::Engine, id, trainable) = check(otr_engine_set_trainable(engine, id, Int32(trainable)))

# ---- Acquired ----

acquire_info(float32) = Options(otr_call_info, otr_call_info_init; flags = float32 ? OTR_ACQUIRE_FLOAT32 : UInt32(0))

"""
    prefetch(engine, ids; float32 = false)

Starts to gather what an acquire of the same parameters needs soon. Without use where parameters are this rank's memory.
"""
prefetch(engine::Engine, ids; float32 = false) = check(otr_engine_prefetch(engine, collect(Int64, ids), length(ids), acquire_info(float32)))
prefetch(engine::Engine, ids::Nested; float32 = false) = prefetch(engine, flat!(Int64[], ids); float32 = float32)

"""
    acquire(engine, ids; float32 = false) do weights … end

Gives parameters as read-only arrays, in the compute dtype or as Float32 copies: a vector for a vector of ids, or in the nesting that
[`add_parameters!`](@ref) gave. They are valid inside of the block and up to a step; later uses of them throw.
"""
function acquire(body, engine::Engine, ids; float32 = false)
    numbers, info = collect(Int64, ids), acquire_info(float32)
    tensors = Vector{otr_tensor}(undef, length(numbers))
    check(otr_engine_acquire(engine, numbers, length(numbers), info, tensors))
    loan = Loan(true, false, engine.loan, engine)
    try
        return body(dynamic([wrap(tensor, loan) for tensor in tensors]))
    finally
        acquired = is_valid(loan)  # a step, finalize! and close end it
        loan.valid = false
        acquired && check(otr_engine_release(engine, numbers, length(numbers), info))
    end
end
acquire(body, engine::Engine, ids::Nested; float32 = false) =
    acquire(weights -> body(dynamic(nest(ids, weights))), engine, flat!(Int64[], ids); float32 = float32)

"""
    managed(f, engine, ids, x...)

`f(weights, x...)`, with these parameters acquired. With ChainRulesCore it has a derivative: its pullback computes `f` once more, gives the gradients of
the parameters to a pass of the engine and returns those of `x`; then comes `step!`. Written for what lies in a larger differentiated function.
"""
managed(f, engine::Engine, ids, x...) = acquire(weights -> f(weights, x...), engine, ids)

# Dtypes and dimensions are known when the program runs: a block is compiled for those, and not for whatever might come.
dynamic(value) = Ref{Any}(value)[]

# What acquire gave is over: a step, or a move of the states.
function return_lent!(engine::Engine)
    engine.loan.valid = false
    engine.loan = Loan(true, false, nothing, engine)
    return nothing
end

# ---- Read and written ----

"""
    read(engine, id, value = :master)
    read!(engine, id, value, array)

Copies a value of the whole parameter, `:master`, `:published`, `:exp_avg`, `:exp_avg_sq` or `:grad`, into a new Float32 array, or into one of any float
type and strides. With nested ids: nested arrays. Collective.
"""
Base.read(engine::Engine, id::Integer, value = :master) = read!(engine, id, value, Array{Float32}(undef, parameter_shape(engine, id)))
Base.read(engine::Engine, ids::Nested, value = :master) = named((name, id) -> id === nothing ? nothing : read(engine, id, value), ids, "")
function Base.read!(engine::Engine, id, value, array::AbstractArray)
    check(otr_engine_parameter_read(engine, id, value_of(value), own_memory(array)))
    return array
end

"""
    write!(engine, id, source, value = :master)

Sets a value of the whole parameter from rank 0's array. Collective.
"""
write!(engine::Engine, id, source::AbstractArray, value = :master) = check(otr_engine_parameter_write(engine, id, value_of(value), source))

"""
    local_range(engine, id)

The elements of a parameter that this rank updates, as a range of row-major positions from 1.
"""
function local_range(engine::Engine, id)
    first, count = Ref{Int64}(0), Ref{Int64}(0)
    check(otr_engine_local_range(engine, id, first, count))
    return first[]+1:first[]+count[]
end

"""
    read_local(engine, id, value = :master)

A value of the elements of [`local_range`](@ref), as a Float32 vector. Local.
"""
function read_local(engine::Engine, id, value = :master)
    values = Vector{Float32}(undef, length(local_range(engine, id)))
    check(otr_engine_local_read(engine, id, value_of(value), values))
    return values
end

"""
    write_local!(engine, id, values, value = :master)

Sets a value of the elements of [`local_range`](@ref), each rank its own. See `otr_engine_local_write` for when others see it. Local.
"""
write_local!(engine::Engine, id, values::AbstractVector, value = :master) =
    check(otr_engine_local_write(engine, id, value_of(value), values))
