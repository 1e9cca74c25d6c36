# SPDX-License-Identifier: Apache-2.0

# Whether arrays of the library's memory may be used; ended by whatever makes that memory invalid.
mutable struct Loan
    valid::Bool
    writable::Bool
    of::Union{Loan, Nothing}  # valid no longer than this one
    owner::Any                # keeps the memory
end
is_valid(loan::Loan) = loan.valid && (loan.of === nothing || loan.of.valid)

for (Name, raw) in ((:Context, :otr_context), (:Comm, :otr_comm), (:Engine, :otr_engine), (:Pass, :otr_pass),
                    (:Shard, :otr_shard), (:Optimizer, :otr_optimizer), (:Checkpoint, :otr_checkpoint),
                    (:CheckpointWriter, :otr_checkpoint_writer), (:Snapshot, :otr_snapshot),
                    (:Message, :otr_message))
    @eval begin
        mutable struct $Name <: Handle
            ptr::Ptr{$raw}
            owner::Any
            loan::Loan
            calls::Threads.Atomic{Int}
            function $Name(ptr::Ptr{$raw}, owner = nothing)
                handle = new(ptr, owner, Loan(true, false, nothing, nothing), Threads.Atomic{Int}(0))
                handle.loan.owner = handle
                return finalizer(close, handle)
            end
        end
        destroy(::Type{$Name}, ptr) = $(Symbol(raw, :_destroy))(ptr)
        Base.cconvert(::Type{Ptr{$raw}}, handle::$Name) = handle
        Base.unsafe_convert(::Type{Ptr{$raw}}, handle::$Name) = isopen(handle) ? handle.ptr : throw(is_closed(handle))
    end
end

Base.isopen(handle::Handle) = handle.calls[] >= 0
Base.show(io::IO, handle::Handle) = print(io, nameof(typeof(handle)), isopen(handle) ? "(open)" : "(closed)")

function Base.close(handle::T) where {T <: Handle}
    before = Threads.atomic_cas!(handle.calls, 0, CLOSED)
    before < 0 && return nothing
    before == 0 || throw(in_use(handle))
    handle.loan.valid = false
    ptr, handle.ptr = handle.ptr, C_NULL
    destroy(T, ptr)
    return nothing
end

# Handle(arguments...) do handle … end closes it at the end.
for Name in (:Context, :Comm, :Shard, :Optimizer, :Checkpoint, :Snapshot, :Message)
    @eval function $Name(body::Function, arguments...; options...)
        handle = $Name(arguments...; options...)
        try
            return body(handle)
        finally
            close(handle)
        end
    end
end

"An option struct with its defaults, some fields set, and the texts that it points to."
struct Options{T}
    value::Base.RefValue{T}
    texts::Vector{String}
end
Base.cconvert(::Type{Ptr{T}}, options::Options{T}) where {T} = options
Base.unsafe_convert(::Type{Ptr{T}}, options::Options{T}) where {T} = Base.unsafe_convert(Ptr{T}, options.value)

function Options(::Type{T}, init; fields...) where {T}
    defaults = out(reference -> init(reference, sizeof(T)), T)
    for field in keys(fields)
        field in fieldnames(T) || throw(ArgumentError("$T has no field $field"))
    end
    texts = String[]
    function keep(text::AbstractString)
        '\0' in text && throw(ArgumentError("a text of the library ends at its first NUL: $(repr(text))"))
        return Cstring(pointer(push!(texts, String(text))[end]))
    end
    keep(value) = value
    values = (haskey(fields, f) ? keep(fields[f]) : getfield(defaults, f) for f in fieldnames(T))
    return Options{T}(Ref(T(values...)), texts)
end

# A struct that the library fills: its size and zeros.
function sized(::Type{T}) where {T}
    blank = Ref{T}()
    GC.@preserve blank begin
        place = Ptr{UInt8}(Base.unsafe_convert(Ptr{T}, blank))
        ccall(:memset, Ptr{Cvoid}, (Ptr{UInt8}, Cint, Csize_t), place, 0, sizeof(T))
        unsafe_store!(Ptr{UInt32}(place), sizeof(T))
    end
    return blank
end
