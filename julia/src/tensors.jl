# SPDX-License-Identifier: Apache-2.0
# Arrays as the library sees them, and the library's memory as arrays.

const ELEMENTS = (BFloat16, Bool, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Float16, Float32, Float64)

"The element types that messages take; everything else takes the floats among them, and UInt16 as the remainder of a split master."
const Element = Union{ELEMENTS...}

code_of(::Type{BFloat16}) = OTR_DTYPE_BFLOAT
code_of(::Type{Bool}) = OTR_DTYPE_BOOL
code_of(::Type{<:Signed}) = OTR_DTYPE_INT
code_of(::Type{<:Unsigned}) = OTR_DTYPE_UINT
code_of(::Type{<:AbstractFloat}) = OTR_DTYPE_FLOAT
dtype_of(::Type{T}) where {T <: Element} = otr_dtype(code_of(T), 8 * sizeof(T), 1)
# An extension adds another package's bfloat16.
@noinline dtype_of(::Type{T}) where {T} =
    throw(ArgumentError("the library has no elements of type $T; it takes $(join(ELEMENTS, ", ", " and "))"))

const TYPES = Dict(dtype_of(T) => T for T in ELEMENTS)

# ---- Arrays that go in ----

"The array itself if it has memory with strides, else a copy that has."
in_memory(array::StridedArray) = array
in_memory(array::Union{Transpose, Adjoint{<:Real}, PermutedDimsArray}) = in_memory(parent(array)) === parent(array) ? array : collect(array)
in_memory(array::AbstractArray) = collect(array)

"An array that the library writes into, or goes on to use."
function own_memory(array::AbstractArray)
    in_memory(array) === array && return array
    throw(ArgumentError("the library needs the memory of this array, and a $(typeof(array)) has none: give a strided array"))
end

steps_of(array::AbstractArray) = strides(array)
steps_of(array::Union{Transpose{<:Any, <:AbstractVector}, Adjoint{<:Any, <:AbstractVector}}) = (1, stride(parent(array), 1))

"What a ccall keeps alive while the library looks at an array through an otr_tensor, which points into it."
mutable struct TensorArgument{N, A <: AbstractArray}
    tensor::otr_tensor
    extents::NTuple{N, Int64}
    steps::NTuple{N, Int64}
    array::A
    function TensorArgument(given::AbstractArray{T, N}) where {T, N}
        dtype = dtype_of(T)
        array = in_memory(given)
        nothing_yet = otr_tensor(C_NULL, otr_device(OTR_DEVICE_CPU, 0), N, dtype, C_NULL, C_NULL, 0)
        argument = new{N, typeof(array)}(nothing_yet, size(array), steps_of(array), array)
        place = pointer_from_objref(argument)
        extents, steps = fieldoffset(typeof(argument), 2), fieldoffset(typeof(argument), 3)
        argument.tensor = otr_tensor(pointer(array), nothing_yet.device, N, dtype, place + extents, place + steps, 0)
        return argument
    end
end
Base.cconvert(::Type{Ptr{otr_tensor}}, argument::TensorArgument) = argument
Base.unsafe_convert(::Type{Ptr{otr_tensor}}, argument::TensorArgument) = Ptr{otr_tensor}(pointer_from_objref(argument))

# Any array can stand where a function takes a tensor; arrays of tensors stay what they are.
Base.cconvert(::Type{Ptr{otr_tensor}}, array::AbstractArray) = TensorArgument(array)
Base.cconvert(::Type{Ptr{otr_tensor}}, tensors::Vector{otr_tensor}) = tensors

tensor_arguments(arrays) = TensorArgument[TensorArgument(array) for array in arrays]

# ---- Arrays that come out ----

"""
An array in the library's memory, which is there for a time: afterwards each use of it is an error. `copy` keeps the values. It is a `DenseArray` with
strides, so that products are BLAS's; broadcasts look at the time once.
"""
struct Lent{T, N} <: DenseArray{T, N}
    data::Array{T, N}
    loan::Loan
end
usable(array::Lent) = is_valid(array.loan) ? array.data : throw(is_over())
writable(array::Lent) = array.loan.writable ? usable(array) : throw(is_read_only())
@noinline is_over() = OutriggerError(OTR_E_STATE, "this array lies in memory that the library has taken back: the block, pass or window that it " *
                                     "was lent for is over. Copy what has to stay")
@noinline is_read_only() = OutriggerError(OTR_E_STATE, "parameters are read-only: the optimizer writes them, or write!")

Base.size(array::Lent) = size(array.data)
Base.strides(array::Lent) = strides(array.data)
Base.IndexStyle(::Type{<:Lent}) = IndexLinear()
Base.elsize(::Type{<:Lent{T}}) where {T} = sizeof(T)
Base.unsafe_convert(::Type{Ptr{T}}, array::Lent{T}) where {T} = Base.unsafe_convert(Ptr{T}, usable(array))
Base.@propagate_inbounds Base.getindex(array::Lent, index::Int) = usable(array)[index]
Base.@propagate_inbounds Base.setindex!(array::Lent, value, index::Int) = (writable(array)[index] = value; array)
Base.copy(array::Lent) = copy(usable(array))

# The library is row-major: its matrix is the transpose of Julia's, and further dimensions come in reversed order.
const AnyLent = Union{Lent, Transpose{T, Lent{T, 2}} where T, PermutedDimsArray{T, N, P, I, Lent{T, N}} where {T, N, P, I}}
turned(array::AbstractArray, ::Val) = array
turned(array::AbstractMatrix, ::Val{2}) = transpose(array)
turned(array::AbstractArray{T, N}, ::Val{N}) where {T, N} = N < 2 ? array : PermutedDimsArray(array, ntuple(d -> N + 1 - d, N))
for kind in (:usable, :writable)
    @eval $kind(array::Transpose{T, Lent{T, 2}}) where {T} = transpose($kind(parent(array)))
    @eval $kind(array::PermutedDimsArray{T, N, P, I, Lent{T, N}}) where {T, N, P, I} =
        PermutedDimsArray{T, N, P, I, Array{T, N}}($kind(parent(array)))
end
Base.broadcastable(array::AnyLent) = usable(array)
Base.Broadcast.materialize!(to::AnyLent, from) = (Base.Broadcast.materialize!(writable(to), from); to)
Base.Broadcast.materialize!(to::AnyLent, from::Base.Broadcast.Broadcasted{S}) where {S} = (Base.Broadcast.materialize!(writable(to), from); to)

for f in (:permutedims, :collect)
    @eval Base.$f(array::AnyLent) = $f(usable(array))
end
Base.permutedims(array::AnyLent, order) = permutedims(usable(array), order)

loan_of(array::Lent) = array.loan
loan_of(array::Union{Transpose, PermutedDimsArray}) = loan_of(parent(array))
loan_of(::AbstractArray) = nothing

"The library's memory as an array with the tensor's extents."
wrap(tensor::otr_tensor, loan::Loan) = wrap(tensor, loan, TYPES[tensor.dtype], Val(Int(tensor.ndim)))
function wrap(tensor::otr_tensor, loan::Loan, ::Type{T}, ::Val{N}) where {T, N}
    extents = ntuple(d -> Int(unsafe_load(tensor.shape, N + 1 - d)), N)
    data = prod(extents) == 0 ? Array{T, N}(undef, extents) : unsafe_wrap(Array, Ptr{T}(tensor.data + tensor.byte_offset), extents)
    return turned(Lent{T, N}(data, loan), Val(N))
end
