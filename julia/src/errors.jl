# SPDX-License-Identifier: Apache-2.0

"""A call failed: the negative status, and the library's explanation."""
struct OutriggerError <: Exception
    code::Int32
    text::String
end

name(error::OutriggerError) = unsafe_string(otr_status_name(error.code))
Base.showerror(io::IO, error::OutriggerError) = print(io, "OutriggerError: ", name(error), ": ", error.text)

"""Throws unless a call succeeded. The text belongs to the thread that called, so nothing may come between."""
check(code::Int32) =
    code == OTR_OK ? nothing : throw(OutriggerError(code, unsafe_string(otr_last_error_message())))

"""The out parameter of a call: `out(Int64) do reference … end`."""
function out(call, T::Type)
    reference = Ref{T}()
    check(call(reference))
    reference[]
end
