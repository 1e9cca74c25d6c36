# SPDX-License-Identifier: Apache-2.0
# Arrays of BFloat16s. Tested with a stub of BFloat16s only.
module OutriggerBFloat16sExt

import BFloat16s
using Outrigger

Outrigger.dtype_of(::Type{BFloat16s.BFloat16}) = Outrigger.dtype_of(Outrigger.BFloat16)
Base.convert(::Type{BFloat16s.BFloat16}, x::Outrigger.BFloat16) = BFloat16s.BFloat16(Float32(x))
Base.convert(::Type{Outrigger.BFloat16}, x::BFloat16s.BFloat16) = Outrigger.BFloat16(Float32(x))

end
