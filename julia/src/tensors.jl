# SPDX-License-Identifier: Apache-2.0

"""The bits of a bfloat16; converts from and to Float32, to the nearest even."""
struct BFloat16
    bits::UInt16
end
Base.Float32(x::BFloat16) = reinterpret(Float32, UInt32(x.bits) << 16)
function BFloat16(x::Float32)
    isnan(x) && return BFloat16(0x7fc0)
    bits = reinterpret(UInt32, x)
    BFloat16(((bits + 0x00007fff + ((bits >> 16) & 0x00000001)) >> 16) % UInt16)
end
Base.convert(::Type{Float32}, x::BFloat16) = Float32(x)
Base.convert(::Type{BFloat16}, x::Real) = BFloat16(Float32(x))

const Element = Union{Float32, Float64, Float16, BFloat16, UInt16}  # UInt16: the remainders of split masters

code_of(::Type{BFloat16}) = OTR_DTYPE_BFLOAT
code_of(::Type{Bool}) = OTR_DTYPE_BOOL
code_of(::Type{<:Signed}) = OTR_DTYPE_INT
code_of(::Type{<:Unsigned}) = OTR_DTYPE_UINT
code_of(::Type{<:AbstractFloat}) = OTR_DTYPE_FLOAT
dtype_of(::Type{T}) where {T} = otr_dtype(code_of(T), 8 * sizeof(T), 1)

function element_type(dtype::otr_dtype)
    types = (BFloat16, Bool, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Float16, Float32, Float64)
    return types[findfirst(T -> dtype_of(T) == dtype, collect(types))]
end

"""What a ccall keeps alive while the library looks at an array through an otr_tensor."""
struct TensorArgument
    array::AbstractArray
    extents::Vector{Int64}
    steps::Vector{Int64}
    tensor::Base.RefValue{otr_tensor}
end

function TensorArgument(array::AbstractArray{T}) where {T}
    extents, steps = collect(Int64, size(array)), collect(Int64, strides(array))
    cpu = otr_device(OTR_DEVICE_CPU, 0)
    tensor = otr_tensor(pointer(array), cpu, ndims(array), dtype_of(T), pointer(extents), pointer(steps), 0)
    TensorArgument(array, extents, steps, Ref(tensor))
end

# Any strided array can stand where a function takes a tensor; arrays of tensors stay what they are.
Base.cconvert(::Type{Ptr{otr_tensor}}, array::AbstractArray{<:Element}) = TensorArgument(array)
Base.unsafe_convert(::Type{Ptr{otr_tensor}}, argument::TensorArgument) =
    Base.unsafe_convert(Ptr{otr_tensor}, argument.tensor)

"""The library's memory as an array with the tensor's extents; row-major, so beneath it lies a reversed Array."""
function wrap(tensor::otr_tensor)
    T = element_type(tensor.dtype)
    extents = Tuple(Int(unsafe_load(tensor.shape, d)) for d in 1:tensor.ndim)
    prod(extents) == 0 && return Array{T}(undef, extents)
    data = unsafe_wrap(Array, Ptr{T}(tensor.data + tensor.byte_offset), reverse(extents))
    tensor.ndim < 2 ? data : PermutedDimsArray(data, Tuple(Int(tensor.ndim):-1:1))
end
