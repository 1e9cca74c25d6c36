# SPDX-License-Identifier: Apache-2.0
# The library's update rules for Optimisers.setup and update. Tested with a stub of Optimisers only.
module OutriggerOptimisersExt

using Optimisers, Outrigger

struct Rule <: Optimisers.AbstractRule
    context::Context
    optimizer::Optimizer
end
Outrigger.Rule(config; context = Context()) = Rule(context, Optimizer(context, config))

# The master weights and the moments of one array.
struct State
    weights::Vector{Float32}
    gradients::Vector{Float32}
    shard::Shard
end

function Optimisers.init(rule::Rule, x::AbstractArray)
    weights = Vector{Float32}(vec(x))
    gradients = zero(weights)
    return State(weights, gradients, Shard(rule.context, weights, gradients))
end

function Optimisers.apply!(rule::Rule, state::State, x, x̄)
    copyto!(state.gradients, x̄)
    step!(rule.optimizer, state.shard)
    return state, x .- reshape(state.weights, size(x))
end

Optimisers.adjust(rule::Rule, rate::Real) = (Outrigger.set_value!(rule.optimizer, "lr", rate); rule)

end
