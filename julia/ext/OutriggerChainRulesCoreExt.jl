# SPDX-License-Identifier: Apache-2.0
# Gradients as automatic differentiation gives them, and the derivative of `managed`. Tested with a stub of ChainRulesCore only.
module OutriggerChainRulesCoreExt

using ChainRulesCore, Outrigger
using ChainRulesCore: AbstractThunk, AbstractZero, HasReverseMode, NoTangent, RuleConfig, Tangent, backing, rrule_via_ad, unthunk

Outrigger.gradient_of(::AbstractZero) = nothing
Outrigger.gradient_of(gradient::AbstractThunk) = unthunk(gradient)
Outrigger.gradient_of(gradient::Tangent) = backing(gradient)

function ChainRulesCore.rrule(config::RuleConfig{>:HasReverseMode}, ::typeof(managed), f, engine::Engine, ids, x...)
    y = managed(f, engine, ids, x...)
    pullback(ȳ) = (NoTangent(), NoTangent(), NoTangent(), NoTangent(), gradients_of_inputs(config, f, engine, ids, x, unthunk(ȳ))...)
    return y, pullback
end

# Every rank makes as many passes: one whose result has no gradient makes an empty one.
gradients_of_inputs(config, f, engine, ids, x, ::AbstractZero) = (backward(pass -> nothing, engine); map(_ -> NoTangent(), x))
function gradients_of_inputs(config, f, engine, ids, x, ȳ)
    seed = ȳ isa Number ? fill(ȳ) : ȳ
    seed isa AbstractArray || throw(ArgumentError("the result of what is managed is an array or a number; its gradient is a $(typeof(ȳ))"))
    return acquire(engine, ids) do weights  # weights are lent for a time, so f is computed once more
        _, pull = rrule_via_ad(config, f, weights, x...)
        backward(engine, seed) do pass, scaled
            found = pull(ȳ isa Number ? scaled[] : scaled)
            add_grad!(pass, ids, found[2])
            map(each -> unscaled(pass, unthunk(each)), found[3:end])
        end
    end
end

unscaled(pass, gradient::AbstractArray) = unscale(pass, gradient)
unscaled(pass, gradient::Number) = gradient / Outrigger.scale(pass)
unscaled(pass, gradient::AbstractZero) = gradient

end
