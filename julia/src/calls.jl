# SPDX-License-Identifier: Apache-2.0
# What a call of the library does besides: see @call. The declarations in liboutrigger.jl are marked by it.

"""
A C object and what is done with it. `close` gives it back, any number of times; the finalizer does the same, and calls the local
`otr_<name>_destroy` alone. `owner` is what has to live as long; `loan` is of arrays that lie in its memory.
"""
abstract type Handle end

# What Handle.calls counts: each call 1, one that no other may run beside ALONE more. Below 0 the handle is closed.
const ALONE = 1 << 32
const CLOSED = typemin(Int) >> 1

function enter(handle::Handle, weight::Int)
    before = Threads.atomic_add!(handle.calls, weight)
    if before < 0 || (before >= ALONE && weight >= ALONE)
        Threads.atomic_sub!(handle.calls, weight)
        throw(before < 0 ? is_closed(handle) : in_use(handle))
    end
    return handle.ptr
end
leave(handle::Handle, weight::Int) = (Threads.atomic_sub!(handle.calls, weight); nothing)

@noinline is_closed(handle) = OutriggerError(OTR_E_STATE, "this $(nameof(typeof(handle))) is closed")
@noinline in_use(handle) =
    OutriggerError(OTR_E_STATE, "another thread is using this $(nameof(typeof(handle))); one at a time may, but for functions that say \"any thread\"")

"""
    alone(f, handles)

`f(pointers)`, while no other thread may use one of the handles.
"""
function alone(f, handles)
    taken = 0
    try
        pointers = [(pointer = enter(handle, ALONE); taken += 1; pointer) for handle in handles]
        return GC.@preserve handles f(pointers)
    finally
        foreach(handle -> leave(handle, ALONE), Iterators.take(handles, taken))
    end
end

"""
    @call [waits] [alone | beside] ccall((:name, library), Result, (Types...,), arguments...)

A ccall with what it needs besides:
- `alone`, `beside`: its first argument is a handle, which must not be closed before or meanwhile, nor be in a call that is `alone` on another
  thread if this one is, too. Else an error, where C would fail in some way.
- `waits`: other threads may collect garbage meanwhile. A thread that waits inside C in the ordinary state holds up every collection, and so
  every thread, until it returns. Ctrl-C is kept back meanwhile, but for `asked_to_end`, which the library calls: an exception must not go through C.

Arguments are converted before, since conversion allocates and throws.
"""
macro call(arguments...)
    flags, call = arguments[1:end-1], arguments[end]
    target, result, types, given = call.args[2], call.args[3], call.args[4], call.args[5:end]
    weight = :alone in flags ? 1 + ALONE : :beside in flags ? 1 : 0
    guarded, waits = weight > 0, :waits in flags
    kept, plain = [gensym() for _ in given], [gensym() for _ in given]
    keep = [:($k = Base.cconvert($t, $a)) for (k, t, a) in zip(kept, types.args, given)]
    convert = [:($p = Base.unsafe_convert($t, $k)) for (p, t, k) in zip(plain, types.args, kept)]
    guarded && (convert[1] = :($(plain[1]) = $enter($(kept[1]), $weight)))
    esc(quote
        $(keep...)
        GC.@preserve $(kept...) begin
            $(reverse(convert)...)  # the handle last: nothing throws from there on
            $(waits ? :(Base.sigatomic_begin(); state = ccall(:jl_gc_safe_enter, Int8, ())) : nothing)
            value = ccall($target, $result, $types, $(plain...))
            $(waits ? :(ccall(:jl_gc_safe_leave, Cvoid, (Int8,), state)) : nothing)
            $(guarded ? :($leave($(kept[1]), $weight)) : nothing)
            $(waits ? :(Base.sigatomic_end()) : nothing)
        end
        value
    end)
end
