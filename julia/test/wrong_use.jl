# SPDX-License-Identifier: Apache-2.0
# Wrong use is an error that says what to do, never a crash.

is_over(call) = try call() catch caught; caught isa OutriggerError && occursin("taken back", caught.text) end

@testset "a closed handle" begin
    engine, id = square_engine()
    context = Context(workers = 1)
    handles = [context => () -> self_group(context), self_group(context) => barrier, engine => commit!, Pass(engine) => end!,
               Shard(context, zeros(Float32, 4), zeros(Float32, 4)) => get_step, Optimizer(context, "{}") => step!, Snapshot() => Outrigger.info,
               Message(pack()) => keys]
    for (handle, call) in handles
        @test isopen(handle) && sprint(show, handle) == "$(nameof(typeof(handle)))(open)"
        close(handle)
        close(handle)
        @test !isopen(handle)
        @test refused(applicable(call, handle) ? () -> call(handle) : call) == Outrigger.OTR_E_STATE
    end
    other, _ = square_engine()
    for closed in (() -> restore!(other, handles[7].first), () -> snapshot!(other, handles[7].first),
                   () -> step_many!([other, engine]), () -> step!(Optimizer(Context(), "{}"), handles[5].first))
        @test refused(closed) == Outrigger.OTR_E_STATE
    end
end

@testset "arrays that the library does not take" begin
    engine, id = square_engine()
    pass = Pass(engine, (1:3.0,))  # no memory: copied
    @test output_grad(pass) == 1:3
    @test_throws ArgumentError pass[id] = ComplexF32[1 2; 3 4]
    @test_throws ArgumentError pass[id] = Any[1 2; 3 4]
    @test refused(() -> pass[id] = [1 2; 3 4]) == Outrigger.OTR_E_DTYPE
    @test refused(() -> pass[id] = zeros(Float32, 3)) == Outrigger.OTR_E_SHAPE
    @test refused(() -> pass["v"] = zeros(Float32, 2, 2)) == Outrigger.OTR_E_NOT_FOUND
    @test_throws ArgumentError pass[id] = 1.0
    @test_throws ArgumentError read!(engine, id, :master, 1.0f0:4.0f0)
    @test_throws ArgumentError read(engine, id, :masters)
    @test_throws ArgumentError Shard(Context(), 1.0f0:4.0f0, nothing)
    @test_throws ArgumentError set_boundary!(engine, :never)
    @test_throws ArgumentError broadcast!(self_group(Context()), ["text"])
    @test_throws ArgumentError Engine(self_group(Context()), (optimizer = (type = sin,),))
    abandon!(pass)
end

@testset "arrays whose time is over" begin
    engine, id = square_engine((optimizer = (type = "SGD", params = (lr = 0.5,)), gradient_clipping = 0))
    kept = acquire(engine, [id]) do (w,)
        @test w * [1, 1] == [3, 7] && w .+ 1 == [2 3; 4 5] && sum(w) == 10 && w' == [1 3; 2 4]
        @test refused(() -> w[1] = 5) == refused(() -> w .= 5) == Outrigger.OTR_E_STATE
        [w, view(w, :, 1), copy(w)]
    end
    @test all(is_over, [() -> kept[1][1], () -> kept[2][1], () -> kept[1] .+ 1, () -> kept[1] * kept[3], () -> pointer(parent(kept[1]))])
    @test kept[3] == [1 2; 3 4]
    acquire(engine, [id]) do (w,)
        backward(engine, ones(3)) do pass, dy
            place = slot(pass, id)
            place .= 1
            pass[id] = place
            @test is_over(() -> place[1]) && is_over(() -> place .= 7)
            again = slot(pass, id)
            again .= 2
            pass[id] = again
            kept = [dy, slot(pass, id)]
        end
        @test all(array -> is_over(() -> array[1]) && is_over(() -> array .= 1), kept)
        @test w == [1 2; 3 4]
        @test outcome(step!(engine)) === :applied
        @test is_over(() -> w[1])
    end
    @test read(engine, id) == Float32[1 2; 3 4] .- 1.5f0
    backward(pass -> pass[id] = ones(2, 2), engine)
    step_begin!(engine)
    acquire(engine, [id]) do (w,)  # beside the step, whose report ends nothing
        @test w == Float32[1 2; 3 4] .- 2
        @test outcome(Outrigger.report(engine)) === :applied
        @test w == Float32[1 2; 3 4] .- 2
    end
    acquire(engine, [id]) do (w,)
        close(engine)
        @test is_over(() -> w[1])
    end
    optimizer, shard = Optimizer(Context(), "{}"), Shard(Context(), zeros(Float32, 4), ones(Float32, 4))
    step!(optimizer, shard)
    moment = state(shard, :exp_avg)
    @test moment ≈ fill(0.1, 4)
    close(shard)
    @test is_over(() -> moment[1])
end

@testset "an exception leaves nothing open" begin
    engine, id = square_engine()
    @test_throws KeyError acquire(w -> throw(KeyError(1)), engine, [id]; float32 = true)
    @test_throws KeyError backward(pass -> throw(KeyError(1)), engine)
    @test live_children(engine) == 0
    release = () -> Outrigger.check(Outrigger.otr_engine_release(engine, [id], 1, C_NULL))
    @test refused(release) == Outrigger.OTR_E_STATE  # nothing is acquired
    # The block of an engine ends it, or tells the others why it cannot.
    one, other = thread_groups(Context(workers = 1), 2)
    kept = Ref{Any}()
    @test_throws DomainError Engine(e -> (kept[] = e; throw(DomainError(3))), one)
    @test !isopen(kept[])
    result = Engine(self_group(Context(workers = 1))) do engine
        add_parameter!(engine, "w", ones(Float32, 2))
        commit!(engine)
        backward(pass -> (pass[0] = ones(2); 7), engine)
    end
    @test result == 7
    @test Context(context -> Comm(comm -> world_size(comm), context)) == 1
end

@testset "arrays of every kind that has memory" begin
    engine = small_engine()
    w = Float32[1 2 3; 4 5 6]
    arrays = ["transpose" => transpose(w), "adjoint" => w', "row" => transpose(w[1, :]), "column" => view(w, :, 2), "steps" => view(w, 1:2, 1:2:3),
              "reinterpreted" => reinterpret(Float32, reinterpret(UInt32, w)), "turned" => PermutedDimsArray(reshape(w, 1, 2, 3), (3, 1, 2)),
              "gathered" => view(w, [2, 1], :), "range" => 1.0f0:3.0f0, "number" => fill(2.0f0), "empty" => zeros(Float32, 0, 3)]
    ids = [add_parameter!(engine, name, array) for (name, array) in arrays]
    commit!(engine)
    acquire(engine, ids) do weights
        for ((name, array), id, weight) in zip(arrays, ids, weights)
            @test (name, size(weight), weight) == (name, size(array), array)
            @test read(engine, id) == array == copy(weight) == collect(weight)
        end
        @test permutedims(weights[7], (2, 1, 3)) == permutedims(arrays[7].second, (2, 1, 3))
        @test weights[1] * w == transpose(w) * w
    end
end
