# SPDX-License-Identifier: Apache-2.0
# What the layer adds to the library's own calls, in nanoseconds.
#
#     julia --project=julia julia/bench/overhead.jl [LIMIT]      fails where a call costs more than LIMIT ns beside C's

using Outrigger
using Outrigger: OTR_OK, TensorArgument, liboutrigger, otr_step_report, otr_tensor, sized

const CALLS, ROUNDS = 1000, 200

# The best of many rounds of either form, taken in turn: what else the machine does comes to both.
function nanoseconds(forms...)
    best = fill(Inf, length(forms))
    for _ in 1:ROUNDS, (index, form) in enumerate(forms)
        begun = time_ns()
        form(CALLS)
        best[index] = min(best[index], (time_ns() - begun) / CALLS)
    end
    return best
end

ok(code) = code == OTR_OK || error("the library refused a call: $code")

function add_grads(pass, id, gradient)
    layer(calls) = for _ in 1:calls
        add_grad!(pass, id, gradient)
    end
    argument, raw = TensorArgument(gradient), pass.ptr
    library(calls) = GC.@preserve argument for _ in 1:calls
        ok(ccall((:otr_pass_add_grad, liboutrigger), Int32, (Ptr{Cvoid}, Int64, Ptr{Cvoid}, Ptr{Cvoid}), raw, id, pointer_from_objref(argument), C_NULL))
    end
    return nanoseconds(layer, library)
end

# A pass without gradients, and a step in a window that goes on.
function empty_steps(engine)
    layer(calls) = for _ in 1:calls
        pass = Pass(engine)
        end!(pass)
        close(pass)
        step!(engine)
    end
    raw, made, report = engine.ptr, Ref{Ptr{Cvoid}}(), sized(otr_step_report)
    passes(calls, step) = for _ in 1:calls
        ok(ccall((:otr_pass_begin, liboutrigger), Int32, (Ptr{Cvoid}, Ptr{Cvoid}, Int64, Ptr{Cvoid}, Ptr{Ptr{Cvoid}}), raw, C_NULL, 0, C_NULL, made))
        ok(ccall((:otr_pass_end, liboutrigger), Int32, (Ptr{Cvoid},), made[]))
        ccall((:otr_pass_destroy, liboutrigger), Cvoid, (Ptr{Cvoid},), made[])
        step()
    end
    library_step() = ok(ccall((:otr_engine_step, liboutrigger), Int32, (Ptr{Cvoid}, Ptr{otr_step_report}), raw, report))
    mixed(calls) = passes(calls, () -> step!(engine))
    library(calls) = passes(calls, library_step)
    whole, only_step, c = nanoseconds(layer, mixed, library)
    return (whole, c), (only_step, c)
end

function main(limit = "Inf")
    engine = Engine(self_group(Context(workers = 1)), (gradient_accumulation_steps = 1_000_000_000,))
    id = add_parameter!(engine, "w", zeros(Float32, 4, 4))
    commit!(engine)
    pass = Pass(engine)
    small = add_grads(pass, id, ones(Float32, 4, 4))
    end!(pass)
    close(pass)
    passes, steps = empty_steps(engine)
    for (what, (layer, library)) in ("add_grad! of 4×4 Float32" => small, "step! that accumulates" => steps, "an empty pass and a step" => passes)
        println(rpad(what, 26), lpad(round(Int, layer), 6), " ns, C ", lpad(round(Int, library), 6), " ns, the layer ", lpad(round(Int, layer - library), 5), " ns")
        what == "an empty pass and a step" || layer - library < parse(Float64, limit) || error("$what: $(layer - library) ns beside C, more than $limit")
    end
end

main(ARGS...)
