# SPDX-License-Identifier: Apache-2.0
# One backward pass: from the gradients of the outputs to those of the parameters.

"""
    Pass(engine, output_grads = (); tag = nothing)

Begins a pass; [`backward`](@ref) is its block form. `output_grads`: arrays of any shape, of which scaled copies are [`output_grad`](@ref). `tag`: another
pass's, if the gradients come from there. It is over with `end!`, `abandon!` or `close`.
"""
function Pass(engine::Engine, output_grads = (); tag = nothing)
    arguments = tensor_arguments(output_grads)
    tensors = otr_tensor[argument.tensor for argument in arguments]
    info = tag === nothing ? C_NULL : Ref(tag)
    GC.@preserve arguments begin
        ptr = out(reference -> otr_pass_begin(engine, tensors, length(tensors), info, reference), Ptr{otr_pass})
    end
    pass = Pass(ptr, engine)
    pass.loan.writable = true
    return pass
end

"""
    backward(engine, ȳ...; tag = nothing) do pass, ȳ... end

One pass: the block gets the scaled gradients of the outputs, as arrays that are valid inside of it, and hands over those of the parameters with
[`add_grad!`](@ref) or `pass[id] = grad`. The pass ends on a normal return and is abandoned on an exception. Gives what the block gives.
"""
function backward(body, engine::Engine, output_grads...; tag = nothing)
    pass = Pass(engine, output_grads; tag = tag)
    try
        result = body(pass, dynamic(Any[output_grad(pass, i - 1) for i in eachindex(output_grads)])...)
        isopen(pass) && end!(pass)
        return result
    catch
        isopen(pass) && abandon!(pass)
        rethrow()
    finally
        close(pass)
    end
end

"""
    add_grad!(pass, id, gradient)
    pass[id] = gradient
    pass["name"] = gradient

Adds a gradient, from the scaled gradients of the outputs, to a parameter. Contributions add: a second assignment does not replace the first. `gradient`: an
array of the parameter's size, copied; or the slot that [`slot`](@ref) gave, which is the library's again. Any thread.
"""
function add_grad!(pass::Pass, id::Integer, gradient::AbstractArray)
    check(otr_pass_add_grad(pass, id, gradient, C_NULL))
    loan = loan_of(gradient)
    loan === nothing || loan.of !== pass.loan || (loan.valid = false)
    return nothing
end

"""
    add_grad!(pass, ids, gradients)

The same of nested gradients, in the nesting that [`add_parameters!`](@ref) gave. `nothing` and missing names have none.
"""
add_grad!(pass::Pass, ids::Nested, ::Nothing) = nothing
add_grad!(pass::Pass, ::Nothing, gradient) =
    gradient_of(gradient) === nothing ? nothing : throw(ArgumentError("a gradient of what is no parameter"))
add_grad!(pass::Pass, ::Nothing, ::Nothing) = nothing
add_grad!(pass::Pass, id::Integer, ::Nothing) = nothing
function add_grad!(pass::Pass, ids::NamedTuple, gradients::NamedTuple)
    for name in keys(gradients)
        haskey(ids, name) || throw(ArgumentError("a gradient of $name; there are the parameters $(join(keys(ids), ", "))"))
        add_grad!(pass, ids[name], gradients[name])
    end
end
function add_grad!(pass::Pass, ids::Tuple, gradients::Tuple)
    length(ids) == length(gradients) || throw(ArgumentError("$(length(gradients)) gradients of $(length(ids)) parameters"))
    foreach((id, gradient) -> add_grad!(pass, id, gradient), ids, gradients)
end
# Whatever else automatic differentiation gives.
function add_grad!(pass::Pass, ids, gradient)
    plain = gradient_of(gradient)
    plain === gradient && throw(ArgumentError("a gradient is an array, nested as the parameters are; this is a $(typeof(gradient))"))
    return add_grad!(pass, ids, plain)
end
gradient_of(gradient) = gradient  # extensions know more

Base.setindex!(pass::Pass, gradient, id::Integer) = add_grad!(pass, id, gradient)
Base.setindex!(pass::Pass, gradient, name::AbstractString) = add_grad!(pass, parameter_id(pass.owner::Engine, name), gradient)

"""
    slot(pass, id)

Memory to write a parameter's gradient into, uninitialised: an array of its size and the compute dtype, until it is handed back with [`add_grad!`](@ref) or
the pass is over. One at a time for each parameter. Any thread.
"""
slot(pass::Pass, id) = wrap(out(reference -> otr_pass_get_slot(pass, id, reference), otr_tensor), Loan(true, true, pass.loan, pass))

"""
    output_grad(pass, index = 0)

The scaled gradient of an output, from 0: Float32, writable, until the pass is over. Any thread.
"""
output_grad(pass::Pass, index = 0) = wrap(out(reference -> otr_pass_get_output_grad(pass, index, reference), otr_tensor), pass.loan)

"""
    seed_overflow(pass)

The first output whose gradient overflowed when it was scaled, from 0: the step will be skipped, and a backward is in vain. `nothing`: none. Any thread.
"""
function seed_overflow(pass::Pass)
    index = out(reference -> otr_pass_get_seed_overflow(pass, reference), Int64)
    return index < 0 ? nothing : index
end

"""
    end!(pass)

Ends the pass; parameters without a gradient count as zero on this rank. Does not wait for other ranks.
"""
end!(pass::Pass) = (check(otr_pass_end(pass)); pass.loan.valid = false; nothing)

"""
    abandon!(pass)

Gives the pass up: the next step discards the window on all ranks, unless nothing was added to it.
"""
abandon!(pass::Pass) = (check(otr_pass_abandon(pass)); pass.loan.valid = false; nothing)

"""
    tag(pass)

What this pass's gradients carry, for the engine that made the inputs. Any thread.
"""
function tag(pass::Pass)
    info = Options(otr_call_info, otr_call_info_init).value
    check(otr_pass_get_tag(pass, info))
    return info[]
end

"""
    unscale(pass, gradient)

A gradient without the factors that it carries, as a new Float32 array. Any thread.
"""
function unscale(pass::Pass, gradient::AbstractArray)
    unscaled = Array{Float32}(undef, size(gradient))
    check(otr_pass_unscale(pass, gradient, unscaled))
    return unscaled
end

"The factor that the pass applied to the gradients of the outputs. Any thread."
scale(pass::Pass) = out(reference -> otr_pass_get_scale(pass, reference), Float64)
