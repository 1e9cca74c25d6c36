# SPDX-License-Identifier: Apache-2.0

"""
    @gcsafe ccall((:name, library), Result, (Types...,), arguments...)

A ccall during which other threads may collect garbage. A thread that waits inside C in the ordinary state holds up
every collection, and so every thread, until it returns. Arguments are converted before, since conversion allocates.
"""
macro gcsafe(call)
    target, result, types, arguments = call.args[2], call.args[3], call.args[4], call.args[5:end]
    kept = [gensym() for _ in arguments]
    plain = [gensym() for _ in arguments]
    keep = [:($k = Base.cconvert($t, $a)) for (k, t, a) in zip(kept, types.args, arguments)]
    convert = [:($p = Base.unsafe_convert($t, $k)) for (p, t, k) in zip(plain, types.args, kept)]
    esc(quote
        $(keep...)
        GC.@preserve $(kept...) begin
            $(convert...)
            state = ccall(:jl_gc_safe_enter, Int8, ())
            value = ccall($target, $result, $types, $(plain...))
            ccall(:jl_gc_safe_leave, Cvoid, (Int8,), state)
        end
        value
    end)
end
