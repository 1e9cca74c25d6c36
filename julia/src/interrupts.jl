# SPDX-License-Identifier: Apache-2.0
# Whether a call that waits for other ranks shall end: because of Ctrl-C, or because a context's function says so.

const ASKED = Dict{UInt, Any}()  # the functions of contexts, which engines keep longer
const ASKED_LOCK = ReentrantLock()

# The library asks about 20 times a second, on the thread that made the call, which is between jl_gc_safe_enter and _leave.
function asked_to_end(key::Ptr{Cvoid})
    before = ccall(:jl_gc_safe_enter, Int8, ())
    ccall(:jl_gc_safe_leave, Cvoid, (Int8,), Int8(0))
    answer = end_wait(UInt(key))
    before == 0 || ccall(:jl_gc_safe_enter, Int8, ())
    return answer
end

@noinline function end_wait(key::UInt)
    try
        # What @call keeps back: throws the InterruptException of a Ctrl-C that has come.
        Base.sigatomic_end()
        Base.sigatomic_begin()
        key == 0 || !lock(() -> ASKED[key], ASKED_LOCK)() || return Int32(1)
        return Int32(0)
    catch cause
        task_local_storage(:outrigger_cause, cause)
        return Int32(1)
    end
end

# Why the call that has failed was asked to end; nothing: it was not, or a function has answered so.
function take_cause!()
    storage = task_local_storage()
    cause = get(storage, :outrigger_cause, nothing)
    delete!(storage, :outrigger_cause)
    return cause
end

function interrupt_options(asked)
    key = asked === nothing ? UInt(0) : lock(ASKED_LOCK) do
        ASKED[length(ASKED) + 1] = asked
        UInt(length(ASKED))
    end
    return (interrupt_callback = @cfunction(asked_to_end, Int32, (Ptr{Cvoid},)), interrupt_user_data = Ptr{Cvoid}(key))
end
