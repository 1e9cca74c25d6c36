# SPDX-License-Identifier: Apache-2.0

@testset "a message brings every dtype, in any strides" begin
    for T in (Bool, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Float16, Float32, Float64, BFloat16)
        x = T[T(i % 2 + j % 2 == 1) for i in 1:3, j in 1:4]
        message = Message(pack("x" => x, "turned" => PermutedDimsArray(x, (2, 1))))
        @test eltype(message["x"]) == T && message["x"] == x && message["turned"] == permutedims(x)
        @test sort(keys(message)) == ["turned", "x"] && length(message) == 2
    end
    base = reshape(collect(1.0:24.0), 4, 6)
    message = Message(pack("part" => view(base, 4:-2:1, 1:3:6), "none" => zeros(Int64, 0, 3), "one" => fill(7.0f0)))
    @test message["part"] == base[4:-2:1, 1:3:6] && size(message["none"]) == (0, 3) && message["one"][] == 7
end

@testset "what goes along with a message" begin
    engine = small_engine("""{"fp16": {"enabled": true, "loss_scale": 64}}""")
    commit!(engine)
    pass = Pass(engine)
    bytes = pack("x" => Float32[1]; micro_batch = 5, tag = tag(pass), attributes = ("split" => "train ß",))
    end!(pass)
    close(pass)
    message = Message(bytes)
    @test Outrigger.info(message).micro_batch == 5 && attributes(message) == Dict("split" => "train ß")
    @test tag(message).loss_scale == 64
    @test tag(Message(pack())) === nothing && isempty(keys(Message(pack())))
    # With collections in between, as the bytes are the message's.
    messages = [Message(pack("x" => fill(Float32(i), 1000))) for i in 1:50]
    GC.gc()
    @test all(messages[i]["x"] == fill(Float32(i), 1000) for i in 1:50)
end

@testset "what is no message is refused" begin
    bytes = pack("embedding" => Float32[1, 2, 3])
    @test refused(() -> Message(UInt8[])) in (Outrigger.OTR_E_CORRUPT, Outrigger.OTR_E_ARGUMENT)
    @test refused(() -> Message(bytes[1:end-1])) == Outrigger.OTR_E_CORRUPT
    bytes[end] ⊻= 0x01
    @test refused(() -> Message(bytes)) == Outrigger.OTR_E_CORRUPT
    message = Message(bytes; checked = false)
    @test refused(() -> message["embeding"]) == Outrigger.OTR_E_NOT_FOUND
    close(message)
    @test refused(() -> message["embedding"]) == Outrigger.OTR_E_STATE
    @test refused(() -> pack("x" => [1.0], "x" => [2.0])) == Outrigger.OTR_E_ARGUMENT
    @test_throws MethodError pack("x" => [1.0im])
end

@testset "routes between two groups" begin
    @test [(r.source, r.target, r.source_row, r.target_row, r.rows) for r in routes([6, 6], [4, 4, 4])] ==
          [(0, 0, 0, 0, 4), (0, 1, 4, 0, 2), (1, 1, 0, 2, 2), (1, 2, 2, 0, 4)]
    @test refused(() -> routes([3], [4])) == Outrigger.OTR_E_ARGUMENT
    @test isempty(routes(Int[], Int[]))
end

@testset "a part for every rank" begin
    context = Context(workers = 1)
    comm = Comm(context)
    @test all_to_all(comm, [Float32[1, 2, 3]], [3]) == [Float32[1, 2, 3]]
    @test refused(() -> all_to_all(comm, [Float32[1, 2, 3]], [2])) == Outrigger.OTR_E_MISMATCH
    @test_throws ArgumentError all_to_all(comm, Vector{Float32}[], [1])
end
