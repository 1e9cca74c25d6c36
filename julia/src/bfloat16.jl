# SPDX-License-Identifier: Apache-2.0

"""
    BFloat16

A bfloat16: its bits, and conversions from and to `Float32`, to the nearest even. Arithmetic promotes to `Float32`.
"""
struct BFloat16 <: AbstractFloat
    bits::UInt16
    global from_bits(bits::UInt16) = new(bits)
end

Base.Float32(x::BFloat16) = reinterpret(Float32, UInt32(x.bits) << 16)
function BFloat16(x::Float32)
    isnan(x) && return from_bits(0x7fc0)
    bits = reinterpret(UInt32, x)
    return from_bits(((bits + 0x00007fff + ((bits >> 16) & 0x00000001)) >> 16) % UInt16)
end
BFloat16(x::BFloat16) = x
BFloat16(x::Real) = BFloat16(Float32(x))
(::Type{T})(x::BFloat16) where {T <: Union{Float64, Float16, BigFloat, Integer}} = T(Float32(x))
Base.Bool(x::BFloat16) = Bool(Float32(x))

Base.promote_rule(::Type{BFloat16}, ::Type{T}) where {T <: Union{Float32, Float64, BigFloat}} = T
Base.promote_rule(::Type{BFloat16}, ::Type{<:Union{Integer, Float16}}) = Float32
for f in (:+, :-, :*, :/, :^)
    @eval Base.$f(x::BFloat16, y::BFloat16) = $f(Float32(x), Float32(y))
end
for f in (:(==), :<, :<=, :isequal, :isless)
    @eval Base.$f(x::BFloat16, y::BFloat16) = $f(Float32(x), Float32(y))
end
Base.hash(x::BFloat16, seed::UInt) = hash(Float32(x), seed)
Base.:-(x::BFloat16) = from_bits(xor(x.bits, 0x8000))
for f in (:isnan, :isinf, :isfinite, :iszero, :signbit)
    @eval Base.$f(x::BFloat16) = $f(Float32(x))
end
Base.zero(::Type{BFloat16}) = from_bits(0x0000)
Base.one(::Type{BFloat16}) = from_bits(0x3f80)
Base.show(io::IO, x::BFloat16) = print(io, "BFloat16(", Float32(x), ")")
