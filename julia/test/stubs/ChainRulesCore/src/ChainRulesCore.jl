# SPDX-License-Identifier: Apache-2.0
# The names of ChainRulesCore that the extension uses, with as much behind them as its test needs.
module ChainRulesCore

export NoTangent, Tangent, ZeroTangent, rrule, unthunk

abstract type AbstractTangent end
abstract type AbstractZero <: AbstractTangent end
abstract type AbstractThunk <: AbstractTangent end
struct NoTangent <: AbstractZero end
struct ZeroTangent <: AbstractZero end
struct Thunk{F} <: AbstractThunk
    f::F
end
struct Tangent{P, T} <: AbstractTangent
    backing::T
end
Tangent{P}(; fields...) where {P} = (given = (; fields...); Tangent{P, typeof(given)}(given))
backing(tangent::Tangent) = tangent.backing
unthunk(x) = x
unthunk(thunk::Thunk) = thunk.f()

abstract type HasReverseMode end
abstract type RuleConfig{T} end
function rrule end
rrule_via_ad(config::RuleConfig, f, arguments...) = rrule(config, f, arguments...)

end
