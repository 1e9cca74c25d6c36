# SPDX-License-Identifier: Apache-2.0

"""
    OutriggerError

A call failed. `code` is the negative status, such as `Outrigger.OTR_E_TIMEOUT`; `Outrigger.name(error)` is its name; `text` says what the value, the
rule and the way out are.
"""
struct OutriggerError <: Exception
    code::Int32
    text::String
end

"The name of an error's status, such as \"OTR_E_TIMEOUT\"."
name(error::OutriggerError) = unsafe_string(otr_status_name(error.code))
Base.showerror(io::IO, error::OutriggerError) = print(io, "OutriggerError: ", name(error), ": ", error.text)

"Throws unless a call succeeded. The text belongs to the thread that called, so nothing may come between."
check(code::Int32) = code == OTR_OK ? nothing : failed(code)

@noinline function failed(code)
    text = unsafe_string(otr_last_error_message())
    deliver_log()
    cause = take_cause!()
    code == OTR_E_INTERRUPTED && cause !== nothing && throw(cause)
    throw(OutriggerError(code, text))
end

"The out parameter of a call: `out(Int64) do reference … end`."
function out(call, T::Type)
    reference = Ref{T}()
    check(call(reference))
    return reference[]
end

# Asks in two calls: for the size, then for the bytes, of which there may be more by then.
function asked(ask)
    size = Ref{Csize_t}(0)
    check(ask(C_NULL, size))
    while true
        buffer = Vector{UInt8}(undef, size[])
        code = ask(buffer, size)
        code == OTR_E_BUFFER_SIZE && size[] > length(buffer) && continue
        check(code)
        return resize!(buffer, size[])
    end
end
text(bytes) = String(bytes[1:end-1])  # without its NUL
