# SPDX-License-Identifier: Apache-2.0
# The extensions over stubs of their packages: here no registry can be reached, so the packages themselves are not verified.

push!(LOAD_PATH, joinpath(@__DIR__, "stubs"))
import BFloat16s, ChainRulesCore, LuxCore, Optimisers
for package in ("BFloat16s", "ChainRulesCore", "LuxCore", "Optimisers")
    include(joinpath(@__DIR__, "..", "ext", "Outrigger$(package)Ext.jl"))
end
pop!(LOAD_PATH)

@testset "BFloat16s' arrays go in" begin
    engine = small_engine()
    id = add_parameter!(engine, "w", BFloat16s.BFloat16.(Float32[1 2; -3 0.5]))
    commit!(engine)
    @test read(engine, id) == [1 2; -3 0.5]
    @test convert(BFloat16, BFloat16s.BFloat16(1.5f0)) == 1.5 && convert(BFloat16s.BFloat16, BFloat16(1.5f0)) === BFloat16s.BFloat16(1.5f0)
end

struct Tested <: ChainRulesCore.RuleConfig{ChainRulesCore.HasReverseMode} end
affine(w, x) = w.a.weight * x .+ w.bias
function ChainRulesCore.rrule(::Tested, ::typeof(affine), w, x)
    pull(ȳ) = (ChainRulesCore.NoTangent(),
               ChainRulesCore.Tangent{Any}(a = ChainRulesCore.Tangent{Any}(weight = ChainRulesCore.Thunk(() -> ȳ * x')), bias = ȳ),
               ChainRulesCore.Thunk(() -> w.a.weight' * ȳ))
    return affine(w, x), pull
end

@testset "what is managed has a derivative" begin
    sgd = (optimizer = (type = "SGD", params = (lr = 1,)), gradient_clipping = 0, fp16 = (enabled = true, loss_scale = 8))
    engine = small_engine(sgd)
    w = (a = (weight = Float32[1 2; 3 4], none = nothing), bias = Float32[1, 0])
    ids = add_parameters!(engine, w)
    commit!(engine)
    x = Float32[1, -1]
    y, pullback = ChainRulesCore.rrule(Tested(), managed, affine, engine, ids, x)
    @test y == [0, -1]
    found = pullback(Float32[1, 2])
    @test length(found) == 5 && all(each -> each isa ChainRulesCore.NoTangent, found[1:4])
    @test found[5] == w.a.weight' * [1, 2]  # without the loss scale
    step!(engine)
    @test read(engine, ids).a.weight == w.a.weight - [1, 2] * x' && read(engine, ids).bias == [0, -2]
    @test pullback(ChainRulesCore.ZeroTangent())[5] isa ChainRulesCore.NoTangent
    @test outcome(step!(engine)) === :applied
    @test_throws ArgumentError pullback("text")
    pass = Pass(engine)
    add_grad!(pass, ids, ChainRulesCore.Tangent{Any}(a = ChainRulesCore.Tangent{Any}(none = ChainRulesCore.NoTangent()), bias = ChainRulesCore.ZeroTangent()))
    @test_throws ArgumentError add_grad!(pass, ids, ChainRulesCore.Tangent{Any}(c = ones(2)))
    abandon!(pass)
end

@testset "a rule of the library's for Optimisers" begin
    rule = Outrigger.Rule((type = "SGD", params = (lr = 0.5,)))
    x = [1.0 2; 3 4]
    state = Optimisers.init(rule, x)
    Optimisers.adjust(rule, 0.25)
    for step in 1:3
        state, x̄ = Optimisers.apply!(rule, state, x, [1 1; 2 2])
        x .-= x̄
        @test x == [1 2; 3 4] .- 0.25 * step .* [1 1; 2 2]
    end
end

struct Layer <: LuxCore.AbstractLuxLayer end
LuxCore.initialparameters(rng, ::Layer) = (weight = fill(Float32(rng), 2, 2), inner = NamedTuple())

@testset "a model of Lux's is declared" begin
    engine = small_engine()
    ids, state = add_parameters!(engine, Layer(), 7; trainable = name -> false)
    @test ids == (weight = 0, inner = NamedTuple()) && state === NamedTuple() && parameter_name(engine, 0) == "weight"
    commit!(engine)
    @test read(engine, 0, :published) == fill(7, 2, 2)
end
