# SPDX-License-Identifier: Apache-2.0
# Parameters as nested named tuples, configurations as named tuples, values of every name.

@testset "nested parameters keep their nesting" begin
    shared = Float32[1, 2, 3]
    values = (embed = shared, layers = ((weight = [1.0 2; 3 4], bias = nothing), (weight = fill(Float16(2)), none = ())), head = (weight = shared,))
    engine = small_engine((optimizer = (type = "SGD", params = (lr = 1,)), gradient_clipping = 0))
    ids = add_parameters!(engine, values; trainable = name -> name != "layers.2.weight")
    @test ids === (embed = 0, layers = ((weight = 1, bias = nothing), (weight = 2, none = ())), head = (weight = 3,))
    @test [parameter_name(engine, id) for id in 0:3] == ["embed", "layers.1.weight", "layers.2.weight", "head.weight"]
    @test parameter_count(engine) == 4
    @test_throws ArgumentError add_parameters!(engine, (a = 1.0,))
    commit!(engine)
    acquire(engine, ids) do w
        @test keys(w) == keys(ids) && w.layers[1].bias === nothing && w.layers[2].none === ()
        @test (w.embed, w.layers[1].weight, w.layers[2].weight[], w.head.weight) == (shared, values.layers[1].weight, 2, shared)
    end
    prefetch(engine, ids)
    backward(engine) do pass
        add_grad!(pass, ids, (embed = ones(3), layers = ((weight = fill(0.5f0, 2, 2), bias = nothing), nothing), head = (weight = ones(3),)))
        add_grad!(pass, ids, (layers = nothing,))
        @test_throws ArgumentError add_grad!(pass, ids, (emded = ones(3),))
        @test_throws ArgumentError add_grad!(pass, ids, (layers = (nothing,),))
        @test_throws ArgumentError add_grad!(pass, ids, (layers = ((bias = ones(2),), nothing),))
        @test_throws ArgumentError add_grad!(pass, ids, (embed = "text",))
        @test refused(() -> pass["layers.2.weight"] = fill(1.0)) == Outrigger.OTR_E_STATE  # frozen
        pass["layers.1.weight"] = fill(0.5f0, 2, 2)  # added
    end
    report = step!(engine)
    @test (outcome(report), skip_reason(report)) == (:applied, :none) && occursin("step report(applied, grad_norm", sprint(show, report))
    @test refused(() -> read(engine, ids)) == Outrigger.OTR_E_NOT_FOUND  # a frozen one has no master
    found = read(engine, ids, :published)
    @test (found.embed, found.layers[1].weight, found.layers[1].bias, found.head.weight) == (shared .- 2, values.layers[1].weight .- 1, nothing, shared .- 2)
    @test managed((w, x, y) -> w.embed .* x .+ y, engine, ids, 2, 1) == (shared .- 2) .* 2 .+ 1
    again = small_engine()
    declared = (a = declare_parameter!(again, "a", (2,)), b = (declare_parameter!(again, "b", (2, 2)),))
    commit!(again)
    set_initial!(again, declared, (a = [1.0, 2.0], b = ([1.0f0 2; 3 4],)))
    @test read(again, declared) == (a = [1, 2], b = ([1 2; 3 4],))
end

@testset "configurations and what is asked of engines" begin
    @test Outrigger.json((a = (b = 1, c = 1.5), d = ["x\"\\\n", nothing, true], e = (), f = :g)) ==
          "{\"a\": {\"b\": 1, \"c\": 1.5}, \"d\": [\"x\\\"\\\\\\u000a\", null, true], \"e\": [], \"f\": \"g\"}"
    @test Outrigger.parse_json(Outrigger.json(Dict("a" => 1e-8))) == Dict("a" => 1e-8)
    @test_throws ArgumentError Outrigger.json((a = NaN,))
    config = (optimizer = (type = "AdamW", params = (lr = 1e-3, betas = (0.9, 0.95))), bf16 = (enabled = true,))
    engine, id = square_engine(config)
    @test get_group_value(engine, "lr") == 1e-3 && get_group_value(engine, "beta2") == 0.95
    for found in (configuration(engine), configuration(config; world_size = 1))
        @test found["bf16"]["enabled"] == Dict("value" => true, "origin" => "user")
    end
    @test refused(() -> configuration((optimiser = (),))) == Outrigger.OTR_E_CONFIG
    @test estimate(engine)[end][1:2] == memory(engine)[end][1:2]
    @test refused(() -> estimate(engine; world_size = 0)) == Outrigger.OTR_E_ARGUMENT
    @test failure(engine) === nothing
    abort!(engine, "why not")
    @test failure(engine).code == Outrigger.OTR_E_ABORTED && occursin("why not", failure(engine).text)
    @test library_version() == VersionNumber(Outrigger.OTR_VERSION_STRING)
    @test haskey(build_info(), "version") && machine_info() isa Dict
end

@testset "a window that the host updates" begin
    engine, id = square_engine((optimizer = (type = "Host",), gradient_clipping = 0))
    backward(pass -> pass[id] = Float32[1 2; 3 4], engine)
    report = reduce!(engine)
    @test outcome(report) === :reduced && has_grad(engine, id) && local_range(engine, id) == 1:4
    @test read_local(engine, id, :grad) == [1, 2, 3, 4]  # row-major
    write_local!(engine, id, read_local(engine, id) .- 2 .* read_local(engine, id, :grad))
    step!(engine)
    @test read(engine, id) == -Float32[1 2; 3 4]
    set_boundary!(engine, :no)
    @test !is_boundary(engine)
    set_boundary!(engine, :yes)
    fp16, _ = square_engine((fp16 = (enabled = true, loss_scale = 65504),))
    pass = Pass(fp16, (Float32[1],))
    @test seed_overflow(pass) === nothing
    abandon!(pass)
end

@testset "groups" begin
    context = Context(workers = 1)
    comm = shared_memory_group(context; rank = 0, world_size = 1, job = "julia$(getpid())", timeout = 5)
    @test (rank(comm), world_size(comm)) == (0, 1)
    @test split(comm, -1) === nothing
    @test world_size(split(comm, 3)) == world_size(duplicate(comm)) == 1
    @test_throws ArgumentError thread_groups(context, 0)
    @test world_size(hierarchical_group(comm, duplicate(comm), self_group(context))) == 1
    abort!(comm)
    @test refused(() -> barrier(comm)) == Outrigger.OTR_E_ABORTED
end

@testset "records and notes" begin
    engine, id = square_engine()
    @test refused(() -> record(engine)) == Outrigger.OTR_E_STATE
    seen = Any[]
    mktempdir() do folder
        watch!(engine; records = joinpath(folder, "records"), name = "toy") do record
            push!(seen, record)
            length(seen) == 3 && throw(KeyError(:three))
        end
        @test record(engine) === nothing
        for index in 1:2
            backward(pass -> pass[id] = ones(2, 2), engine)
            note!(engine, "loss", index / 4)
            index == 1 ? step!(engine) : (step_begin!(engine); Outrigger.report(engine); Outrigger.report(engine))
        end
        @test [each["applied_steps"] for each in seen] == [1, 2] && seen[2] == record(engine)
        @test occursin("0.5", Outrigger.record_text(engine))
        backward(pass -> pass[id] = ones(2, 2), engine)
        @test_throws KeyError step_many!([engine])
        @test record(engine)["applied_steps"] == 3
        close(engine)
        @test countlines(joinpath(folder, "records", "rank-0.jsonl")) >= 3
    end
end

@testset "log lines are Julia's" begin
    context = Context(workers = 1, log_level = Logging.Info)
    logger = Test.TestLogger()
    with_logger(logger) do
        engine = Engine(self_group(context))
        commit!(engine)
    end
    expected = Outrigger.compiles() ? 1 : 0  # else there is no callback
    @test length(logger.logs) == expected && all(line -> line.level == Logging.Info && occursin("an engine of", line.message), logger.logs)
    @test isempty(Outrigger.log_options(Logging.Error + 1))
end
