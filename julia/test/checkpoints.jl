# SPDX-License-Identifier: Apache-2.0

const STATES = (Outrigger.OTR_VALUE_MASTER, Outrigger.OTR_VALUE_EXP_AVG, Outrigger.OTR_VALUE_EXP_AVG_SQ)

"""An engine of these arrays by name, each times a factor."""
function engine_of(arrays, factor = 1; config = "{}")
    engine = small_engine(config)
    for (name, array) in arrays
        add_parameter!(engine, name, Float32.(factor .* array))
    end
    commit!(engine)
    engine
end

@testset "JSON of the library" begin
    read_json = Outrigger.parse_json
    @test read_json("""{"a": [1, -2.5, 1e3, true, false, null], "b": {}, "c": []}""") ==
          Dict("a" => [1, -2.5, 1000.0, true, false, nothing], "b" => Dict(), "c" => [])
    @test read_json("7") === 7 && read_json("7.0") === 7.0
    @test read_json("\"\\\"\\\\\\n\\u00e9 ß \\ud83d\\ude00\"") == "\"\\\né ß 😀"
    for wrong in ("", "{", "[1,", "[1 2]", "tru", "{\"a\" 1}", "1 2", "\"a", "\"\\x\"", "-")
        @test_throws ArgumentError read_json(wrong)
    end
end

@testset "a checkpoint brings everything back" begin
    mktempdir() do folder
        config = """{"bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 0.1}}}"""
        train!(engine, steps) = for i in steps
            pass = Pass(engine)
            add_grad!(pass, 0, fill(Float32(i), 300))
            end!(pass)
            close(pass)
            step!(engine)
        end
        all_values(engine) = [read(engine, 0, value) for value in STATES]
        engine, again = [small_engine(config) for _ in 1:2]
        for each in (engine, again)
            add_parameter!(each, "w", fill(0.5f0, 300))
            commit!(each)
        end
        train!(engine, 1:3)
        @test_throws OutriggerError load!(again, folder)
        save(engine, folder, "a"; parts = ("place" => "3", "empty" => UInt8[]))
        @test_throws OutriggerError save(engine, folder, "a")
        load!(again, folder)
        @test all_values(engine) == all_values(again)
        checkpoint = Checkpoint(folder)
        @test String(part(checkpoint, "place")) == "3" && isempty(part(checkpoint, "empty"))
        @test occursin("\"tag\":\"a\"", describe(checkpoint))
        verify(checkpoint)
        @test read(checkpoint, "w", 300) == read(engine, 0)
        @test read(checkpoint, "w", 2; value = Outrigger.OTR_VALUE_EXP_AVG, first = 7) == read(engine, 0, Outrigger.OTR_VALUE_EXP_AVG)[8:9]
        export_weights(checkpoint, joinpath(folder, "w.safetensors"); dtype = "bfloat16")
        @test filesize(joinpath(folder, "w.safetensors")) > 600
        @test_throws OutriggerError export_weights(checkpoint, joinpath(folder, "w.safetensors"))
        train!(engine, 4:5)
        train!(again, 4:5)
        @test all_values(engine) == all_values(again)
        save(again, folder, "a"; keep_last = 1, replace = true)
        save(again, folder, "b"; asynchronous = true)
        @test wait_save(again).state == Outrigger.OTR_SAVE_DONE
        @test_throws ArgumentError save(again, folder, "c"; when_busy = :now)
        load!(engine, folder, "a"; weights_only = true)
    end
end

@testset "a part is loaded, under other names and with other rows" begin
    mktempdir() do folder
        there = ["model.enc.w" => reshape(1:35, 5, 7), "model.enc.b" => 1:7, "model.head.w" => reshape(1:28, 4, 7)]
        here = ["enc.w" => reshape(2:36, 5, 7), "enc.b" => 3:9, "head.w" => reshape(5:46, 6, 7)]
        save(engine_of(there, 0.5), folder, "a")
        function loaded(rows; options...)
            engine = engine_of(here, -0.25)
            load!(engine, folder; weights_only = true, renamed = "*" => "model.*", options...)
            for (id, count) in zip(0:2, rows)
                expected = Float32.(-0.25 .* here[id + 1].second)
                expected[1:count, ntuple(_ -> :, ndims(expected) - 1)...] .= 0.5 .* there[id + 1].second[1:count, ntuple(_ -> :, ndims(expected) - 1)...]
                @test read(engine, id) == expected
            end
        end
        loaded((5, 7, 0); include = "enc.*")
        loaded((5, 7, 0); exclude = ["head.?"])
        loaded((0, 7, 0); include = ["enc.*", "head.w"], exclude = "*.w")
        loaded((5, 7, 4); resized = ["head.w"])
        GC.gc()
        engine = engine_of(here, -0.25)
        @test refused(() -> load!(engine, folder; weights_only = true, include = "enk.*")) == Outrigger.OTR_E_NOT_FOUND
        @test refused(() -> load!(engine, folder; include = "enc.*")) == Outrigger.OTR_E_ARGUMENT
        @test refused(() -> load!(engine, folder; weights_only = true, renamed = ["*" => "model.*"])) == Outrigger.OTR_E_SHAPE
        @test_throws ArgumentError load!(engine, folder; weights_only = true, include = String[])
        @test_throws ArgumentError load!(engine, folder; weights_only = true, include = "a\0b")
        @test_throws MethodError load!(engine, folder; weights_only = true, include = [3])
        # A whole training, and a part of its names.
        same = engine_of([replace(name, "model." => "") => array for (name, array) in there], 7)
        load!(same, folder; renamed = Dict("enc.*" => "model.enc.*", "head.w" => "model.head.w"))
        @test [read(same, id) for id in 0:2] == [Float32.(0.5 .* array) for (_, array) in there]
    end
end

@testset "a program begins, or goes on" begin
    mktempdir() do folder
        folder = joinpath(folder, "made")
        engine = engine_of(["w" => 1:300], 0.5)
        @test isempty(resume!(engine, folder))
        save(engine, folder, "a"; parts = ("place" => "7", "empty" => UInt8[]))
        again = engine_of(["w" => 1:300], 2)
        found = resume!(again, folder)
        @test sort(collect(keys(found))) == ["empty", "place"] && found["place"] == UInt8['7']
        @test read(again, 0) == read(engine, 0)
        @test resume!(again, folder; rank = 3) == found  # of a rank that did not save
        @test list_checkpoints(folder) == (latest = "a", tags = ["a"])
        rm(joinpath(folder, "a", "manifest.json"))
        @test refused(() -> resume!(again, folder)) == Outrigger.OTR_E_CORRUPT  # it is not begun anew
    end
end

@testset "a checkpoint is looked at" begin
    mktempdir() do folder
        engine = engine_of(["w" => reshape(1:24, 2, 3, 4), "b" => 1:5], 0.5)
        for _ in 1:2
            backward(engine, ones(Float32, 1)) do pass, _
                add_grad!(pass, 0, Float32.(reshape(24:-1:1, 2, 3, 4)))
                add_grad!(pass, 1, Float32.(1:5))
            end
            step!(engine)
        end
        save(engine, folder, "a"; parts = ("x" => "1",))
        checkpoint = Checkpoint(folder)
        @test shapes(checkpoint) == Dict("w" => (2, 3, 4), "b" => (5,))
        about = description(checkpoint)
        @test (about["tag"], about["ranks"], about["progress"]["steps"]["applied"]) == ("a", 1, 2)
        @test parts(checkpoint) == parts(checkpoint; rank = 9) == Dict("x" => UInt8['1'])
        for (id, name) in ((0, "w"), (1, "b")), value in STATES
            @test read(checkpoint, name; value = value) == read(engine, id, value)
        end
        @test refused(() -> read(checkpoint, "v")) == Outrigger.OTR_E_NOT_FOUND
    end
end

@testset "a checkpoint is made without an engine" begin
    mktempdir() do folder
        weight, frozen = Float32.(reshape(1:12, 3, 4)) ./ 8, Float64[0.5, -1.5]
        function make(body, tag; options...)
            CheckpointWriter(joinpath(folder, "made"), tag; exp_avg = "float32", exp_avg_sq = "bfloat16", applied_steps = 6, options...) do writer
                add_parameter!(writer, "w", (3, 4); updates = 4)
                add_parameter!(writer, "tied", (3, 4); alias_of = "w")
                add_parameter!(writer, "frozen", (2,); trainable = false)
                add_part!(writer, "note", "made in Julia")
                body(writer)
            end
        end
        function values!(writer)
            write!(writer, "w", view(weight, 2:3, :); first = 4)
            write!(writer, "w", weight[1, :])
            write!(writer, "w", PermutedDimsArray(permutedims(weight .* 2), (2, 1)); value = Outrigger.OTR_VALUE_EXP_AVG)
            write!(writer, "w", weight .^ 2; value = Outrigger.OTR_VALUE_EXP_AVG_SQ)
            write!(writer, "frozen", frozen)
        end
        make(values!, "a")
        checkpoint = Checkpoint(joinpath(folder, "made"))
        @test read(checkpoint, "w") == read(checkpoint, "tied") == weight
        @test read(checkpoint, "w"; value = Outrigger.OTR_VALUE_EXP_AVG) == weight .* 2
        @test read(checkpoint, "w"; value = Outrigger.OTR_VALUE_EXP_AVG_SQ) == Float32.(BFloat16.(weight .^ 2))
        @test read(checkpoint, "frozen") == frozen
        @test String(part(checkpoint, "note")) == "made in Julia"
        @test description(checkpoint)["progress"]["imported"] == Dict("applied" => 6, "other_updates" => [["w", 4]])
        engine = small_engine()
        add_parameter!(engine, "w", zeros(Float32, 3, 4))
        add_parameter!(engine, "tied", zeros(Float32, 3, 4); alias_of = Int64(0))
        add_parameter!(engine, "frozen", zeros(Float32, 2); trainable = Int32(0))
        commit!(engine)
        load!(engine, joinpath(folder, "made"))
        @test read(engine, 0) == weight && read(engine, 0, Outrigger.OTR_VALUE_EXP_AVG) == weight .* 2
        @test occursin("\"applied\":6", get_progress(engine)) && occursin("\"updates\":4", get_progress(engine))
        # Nothing is left of one that is given up, or that lacks values.
        @test_throws DomainError make(_ -> throw(DomainError(0)), "b")
        @test refused(() -> make(writer -> write!(writer, "w", weight), "b")) == Outrigger.OTR_E_STATE
        @test refused(() -> make(values!, "a")) == Outrigger.OTR_E_DUPLICATE
        @test list_checkpoints(joinpath(folder, "made")).tags == ["a"]
        make(values!, "a"; replace = true, master = "float16")
        export_weights(Checkpoint(joinpath(folder, "made")), joinpath(folder, "model"); dtype = "float16", max_shard_bytes = 1 << 20)
        import_weights(joinpath(folder, "model"), joinpath(folder, "imported"), "c")
        imported = Checkpoint(joinpath(folder, "imported"))
        @test read(imported, "w") == weight && read(imported, "frozen") == frozen
        @test refused(() -> import_weights(joinpath(folder, "model"), joinpath(folder, "imported"), "c")) == Outrigger.OTR_E_DUPLICATE
        import_weights(joinpath(folder, "model"), joinpath(folder, "imported"), "c"; replace = true)
        @test refused(() -> load!(engine, joinpath(folder, "imported"))) == Outrigger.OTR_E_NOT_FOUND
        load!(engine, joinpath(folder, "imported"); weights_only = true)
        writer = CheckpointWriter(joinpath(folder, "made"), "d")
        close(writer)
        close(writer)
        @test_throws OutriggerError finish!(writer)
    end
end

@testset "a snapshot brings a moment back" begin
    engine = engine_of(["w" => collect(1:300)]; config = """{"bf16": {"enabled": true}}""")
    step_with(value) = begin
        pass = Pass(engine)
        add_grad!(pass, 0, fill(Float32(value), 300))
        end!(pass)
        close(pass)
        step!(engine)
    end
    all_values() = [read(engine, 0, value) for value in STATES]
    step_with(1)
    snapshot = Snapshot()
    @test Outrigger.info(snapshot).rank == -1
    @test refused(() -> restore!(engine, snapshot)) == Outrigger.OTR_E_NOT_FOUND
    snapshot!(engine, snapshot; parts = ("place" => "1",))
    then = all_values()
    step_with(-3)
    later = all_values()
    @test then != later
    restore!(engine, snapshot)
    @test all_values() == then
    step_with(-3)
    @test all_values() == later
    @test String(part(snapshot, "place")) == "1" && Outrigger.info(snapshot).micro_steps == 1
    @test refused(() -> snapshot!(engine, snapshot; replicas = 1)) == Outrigger.OTR_E_ARGUMENT
    close(snapshot)
    close(engine)
end
