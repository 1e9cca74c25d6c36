# SPDX-License-Identifier: Apache-2.0
# A bfloat16 as the package has it, as far as the extension uses it.
module BFloat16s

primitive type BFloat16 <: AbstractFloat 16 end
BFloat16(x::Float32) = reinterpret(BFloat16, (reinterpret(UInt32, x) >> 16) % UInt16)
Base.Float32(x::BFloat16) = reinterpret(Float32, UInt32(reinterpret(UInt16, x)) << 16)

end
