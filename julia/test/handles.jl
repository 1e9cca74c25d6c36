# SPDX-License-Identifier: Apache-2.0

@testset "errors" begin
    error = try Engine(Comm(Context()), "{\"optimiser\": {}}") catch caught; caught end
    @test error isa OutriggerError
    @test error.code == Outrigger.OTR_E_CONFIG
    @test occursin("optimizer", error.text)
    @test startswith(sprint(showerror, error), "OutriggerError: OTR_E_CONFIG: ")
    @test_throws MethodError Context(worker = 1)
    engine = small_engine()
    close(engine)
    close(engine)  # any number of times
    @test_throws OutriggerError commit!(engine)
end

@testset "arrays in Julia's order, or any strided view" begin
    engine = small_engine()
    w = reshape(Float32.(1:6), 2, 3)
    ids = [add_parameter!(engine, "array", w), add_parameter!(engine, "turned", PermutedDimsArray(w, (2, 1))),
           add_parameter!(engine, "view", view(w, :, 2:3)), add_parameter!(engine, "double", Float64.(w)),
           add_parameter!(engine, "half", Float16.(w)), add_parameter!(engine, "bfloat16", BFloat16.(w))]
    commit!(engine)
    GC.gc()
    @test parameter_shape(engine, ids[2]) == (3, 2)
    @test [read(engine, id) for id in ids] == [w, permutedims(w), w[:, 2:3], w, w, w]
    turned = PermutedDimsArray(zeros(Float32, 3, 2), (2, 1))
    @test read!(engine, ids[1], Outrigger.OTR_VALUE_MASTER, turned) == w
    acquire(engine, ids[1:2]) do (a, b)
        @test a == w && b == permutedims(w)
    end
    offload_states!(engine; states = Outrigger.OTR_STATES_MASTER | Outrigger.OTR_STATES_MOMENTS)
    @test_throws OutriggerError read(engine, ids[1])
    reload_states!(engine)
    @test read(engine, ids[1]) == w
    @test host_memory(engine)["pin"]["policy"] == "prefer"
    @test sum(resident for (purpose, resident, _) in memory(engine) if purpose != "total") ==
          only(resident for (purpose, resident, _) in memory(engine) if purpose == "total")
    finalize!(engine)
end

@testset "a shard is saved and goes on" begin
    context = Context()
    optimizer = Optimizer(context, """{"states": {"master": {"format": "split"}}}""")
    arrays() = (fill(BFloat16(1.0f0), 300), fill(0.5f0, 300))
    shard, again = [Shard(context, arrays()...; remainder = zeros(UInt16, 300)) for _ in 1:2]
    step!(optimizer, shard)
    prepare!(optimizer, again)
    for value in (Outrigger.OTR_VALUE_MASTER, Outrigger.OTR_VALUE_EXP_AVG, Outrigger.OTR_VALUE_EXP_AVG_SQ)
        write!(again, value, read!(shard, value, zeros(Float32, 300)))
    end
    set_step!(again, get_step(shard))
    step!(optimizer, shard, again)
    master(shard) = read!(shard, Outrigger.OTR_VALUE_MASTER, zeros(Float32, 300))
    @test get_step(again) == 2
    @test master(shard) == master(again) != fill(1.0f0, 300)
    @test_throws OutriggerError Shard(context, fill(1.0f0, 4), fill(1.0f0, 4); remainder = zeros(UInt16, 4))
end

@testset "shards have checkpoints and snapshots" begin
    context = Context()
    optimizer = Optimizer(context, (params = (lr = 0.1,),))
    shards() = [Shard(context, fill(Float32(i), 10i), fill(0.5f0, 10i); name = "s$i") for i in 1:2]
    run, again, moment = shards(), shards(), Snapshot()
    master(shard) = read!(shard, :master, zeros(Float32, 20))
    step!(optimizer, run...)
    mktempdir() do folder
        save(optimizer, run, joinpath(folder, "new"), "one"; parts = ("place" => [0x07],))
        snapshot!(optimizer, run, moment; parts = ("place" => [0x08],))
        step!(optimizer, run...)
        then = master(run[2])
        load!(optimizer, again, joinpath(folder, "new"))
        @test get_step(again[1]) == 1
        step!(optimizer, again...)
        @test master(again[2]) == then
        restore!(optimizer, run, moment)
        step!(optimizer, run...)
        @test master(run[2]) == then
        @test Outrigger.part(moment, "place") == [0x08]
        @test Outrigger.part(Checkpoint(joinpath(folder, "new")), "place") == [0x07]
        @test_throws OutriggerError load!(optimizer, again[1:1], joinpath(folder, "new"))
        load!(optimizer, again[1:1], joinpath(folder, "new"); weights_only = true, strict = false)
        @test_throws OutriggerError save(optimizer, run, joinpath(folder, "new"), "one")
    end
end

@testset "a shard's gradients are given later, in another place, times a factor" begin
    context = Context()
    optimizer = Optimizer(context, """{"type": "SGD", "params": {"lr": 0.5}}""")
    weights = zeros(Float32, 300)
    shard = Shard(context, weights, zeros(Float32, 300))
    set_grads!(shard, nothing)
    @test_throws OutriggerError step!(optimizer, shard)
    set_grads!(shard, fill(3.0f0, 300))
    GC.gc()  # the shard holds them
    Outrigger.set_value!(optimizer, "gradient_factor", 0.25)
    @test Outrigger.norm(optimizer, shard) ≈ 0.75 * sqrt(300)
    step!(optimizer, shard)
    @test weights == fill(-0.375f0, 300)
    @test_throws OutriggerError set_grads!(shard, zeros(Float32, 4))
    @test_throws OutriggerError Outrigger.set_value!(optimizer, "gradient_factor", 0.0)
end

@testset "a shard with rows is a matrix to Muon" begin
    context = Context()
    optimizer = Optimizer(context, """{"type": "Muon", "params": {"lr": 0.5, "nesterov": false}}""")
    w = Float32[3 0 0; 0 -4 0]
    rows = vec(permutedims(w))
    matrix, other = [Shard(context, array, copy(rows); rows = rows_of) for (array, rows_of) in ((zeros(Float32, 6), 2), (zeros(Float32, 6), 0))]
    Outrigger.set_value!(optimizer, "adam_lr", 0.25)
    step!(optimizer, matrix, other)
    master(shard) = read!(shard, Outrigger.OTR_VALUE_MASTER, zeros(Float32, 6))
    found = permutedims(reshape(master(matrix), 3, 2))
    @test all(iszero, found[w .== 0])
    singular(x) = foldl((x, _) -> 3.4445x - 4.7750x^3 + 2.0315x^5, 1:5; init = x)  # Newton-Schulz of a diagonal matrix
    @test [found[1, 1], found[2, 2]] ≈ 0.5 .* [-singular(0.6), singular(0.8)] rtol = 1e-5
    @test master(other) ≈ -0.25f0 .* sign.(rows)
    @test (state_bytes(matrix), state_bytes(other)) == (24, 48)
    @test_throws OutriggerError read!(matrix, Outrigger.OTR_VALUE_EXP_AVG_SQ, zeros(Float32, 6))
    @test_throws OutriggerError Shard(context, zeros(Float32, 6), zeros(Float32, 6); rows = 4)
end

@testset "a pass is abandoned when its block throws" begin
    engine = small_engine()
    id = add_parameter!(engine, "w", ones(Float32, 4))
    commit!(engine)
    @test_throws DomainError backward(engine, ones(Float32, 2, 2)) do pass, dy
        add_grad!(pass, id, fill(sum(dy), 4))
        throw(DomainError(0))
    end
    @test live_children(engine) == 0
    report = step!(engine)
    @test (report.outcome, report.reason) == (Outrigger.OTR_STEP_SKIPPED, Outrigger.OTR_SKIP_ABANDONED)
    backward(engine, ones(Float32, 2, 2)) do pass, dy
        add_grad!(pass, id, fill(sum(dy), 4))
    end
    @test step!(engine).outcome == Outrigger.OTR_STEP_APPLIED
    finalize!(engine)
end
