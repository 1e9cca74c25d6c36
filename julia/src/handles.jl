# SPDX-License-Identifier: Apache-2.0

# A handle is a mutable struct with the C pointer. close gives it back, any number of times; so does the finalizer,
# which only calls the local otr_<name>_destroy. `owner` is what must stay alive with it.
for (Name, raw) in ((:Context, :otr_context), (:Comm, :otr_comm), (:Engine, :otr_engine), (:Pass, :otr_pass),
                    (:Shard, :otr_shard), (:Optimizer, :otr_optimizer), (:Checkpoint, :otr_checkpoint),
                    (:CheckpointWriter, :otr_checkpoint_writer), (:Snapshot, :otr_snapshot),
                    (:Message, :otr_message))
    destroy = Symbol(raw, :_destroy)
    @eval begin
        mutable struct $Name
            ptr::Ptr{$raw}
            owner::Any
            $Name(ptr::Ptr{$raw}, owner = nothing) = finalizer(close, new(ptr, owner))
        end
        function Base.close(handle::$Name)
            ptr, handle.ptr = handle.ptr, C_NULL
            ptr == C_NULL || $destroy(ptr)
            nothing
        end
        Base.cconvert(::Type{Ptr{$raw}}, handle::$Name) = handle
        Base.unsafe_convert(::Type{Ptr{$raw}}, handle::$Name) = handle.ptr
    end
end

"""An option struct with its defaults, some fields set, and the texts that it points to."""
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
    keep(text::AbstractString) = Cstring(pointer(push!(texts, String(text))[end]))
    keep(value) = value
    values = (haskey(fields, f) ? keep(fields[f]) : getfield(defaults, f) for f in fieldnames(T))
    Options{T}(Ref(T(values...)), texts)
end
