# SPDX-License-Identifier: Apache-2.0
# What needs threads of Julia's own: run with JULIA_NUM_THREADS=2. Says "done" at its end.
#
#     julia threads.jl SECONDS      how long ranks train and collect

using Outrigger, Test, Logging

const SECONDS = parse(Float64, get(ARGS, 1, "1"))

# By one thread for each of these functions, whatever Threads.@spawn would do; `fetch` gives what they gave or threw.
function on_threads(functions...)
    results = Vector{Any}(undef, length(functions))
    Threads.@threads :static for index in 1:Threads.nthreads()
        index <= length(functions) || continue
        results[index] = try functions[index]() catch cause; cause end
    end
    return results
end
spin_until(condition) = (deadline = time() + 30; while !condition() && time() < deadline; GC.safepoint(); end)
with_code(code) = caught -> caught isa OutriggerError && caught.code == code

# A call that never asks anything.
read_byte(descriptor, byte) = Outrigger.@call waits ccall((:read, "libc.so.6"), Cssize_t, (Cint, Ptr{UInt8}, Csize_t), descriptor, byte, 1)

@testset "a call marked waits holds up no collection" begin
    pipe, byte = zeros(Cint, 2), UInt8[0]
    @test ccall(:pipe, Cint, (Ptr{Cint},), pipe) == 0
    on_threads(() -> read_byte(pipe[1], byte), () -> begin
        begun = time()
        spin_until(() -> time() > begun + 0.3)
        GC.gc()
        ccall(:write, Cssize_t, (Cint, Ptr{UInt8}, Csize_t), pipe[2], UInt8[7], 1)
    end)
    @test byte == [7]
end

@testset "a wait lets other threads collect, and is not taken by a second call, nor closed beside it" begin
    context = Context(workers = 1)
    one, other = thread_groups(context, 2; timeout = 60)
    begun = Threads.Atomic{Bool}(false)
    waited, rest = on_threads(() -> (begun[] = true; barrier(one); :met), () -> begin
        spin_until(() -> begun[] && one.calls[] > 0)
        GC.gc()
        second = try barrier(one) catch cause; cause end
        closing = try close(one) catch cause; cause end
        barrier(other)
        (second, closing)
    end)
    @test waited === :met
    @test all(caught -> with_code(Outrigger.OTR_E_STATE)(caught) && occursin("another thread", caught.text), rest)
    close(one)
    @test with_code(Outrigger.OTR_E_STATE)(try barrier(one) catch cause; cause end)
end

@testset "a wait is ended by another thread's abort, by the context's function and by Ctrl-C" begin
    one, _ = groups = thread_groups(Context(workers = 1), 2; timeout = 60)
    waited, = on_threads(() -> barrier(one), () -> (spin_until(() -> one.calls[] > 0); abort!(groups[2], "enough")))
    @test with_code(Outrigger.OTR_E_ABORTED)(waited) && occursin("enough", waited.text)

    asked = Ref(0)
    context = Context(workers = 1, interrupt = () -> (asked[] += 1) > 2)
    one, _ = groups = thread_groups(context, 2; timeout = 60)
    caught = try barrier(one) catch cause; cause end
    @test with_code(Outrigger.OTR_E_INTERRUPTED)(caught) && asked[] == 3
    throwing = thread_groups(Context(workers = 1, interrupt = () -> throw(DomainError(asked[]))), 2; timeout = 60)
    @test_throws DomainError barrier(throwing[1])

    Base.exit_on_sigint(false)
    one, _ = groups = thread_groups(Context(workers = 1), 2; timeout = 60)
    press_ctrl_c() = ccall(:kill, Cint, (Cint, Cint), getpid(), 2)
    caught, = on_threads(() -> barrier(one), () -> (spin_until(() -> one.calls[] > 0); press_ctrl_c()))
    @test caught isa InterruptException
    # Nothing is lost: the same call goes on.
    @test on_threads(() -> barrier(one), () -> barrier(groups[2])) == [nothing, nothing]
end
@testset "an engine's block that throws ends the other rank's wait" begin
    groups = thread_groups(Context(workers = 1), 2; timeout = 60)
    step_of(rank, fails) = () -> Engine(groups[rank]) do engine
        id = add_parameter!(engine, "w", ones(Float32, 4))
        commit!(engine)
        fails && throw(DomainError(rank, "mine"))
        backward(pass -> pass[id] = ones(4), engine)
        step!(engine)
    end
    waited, threw = on_threads(step_of(1, false), step_of(2, true))
    @test with_code(Outrigger.OTR_E_ABORTED)(waited) && occursin("mine", waited.text)
    @test threw isa DomainError
end

# One rank: arrays that nothing but the call holds, slots, exceptions in blocks, handles that are dropped.
function train(comm)
    engine = Engine(comm, (optimizer = (type = "SGD", params = (lr = 0.5,)), gradient_clipping = 0, zero_optimization = (stage = 2,)))
    ids = add_parameters!(engine, (layer = (weight = fill(1.0f0, 7, 5), bias = fill(2.0, 3)),))
    commit!(engine)
    random = 1 + rank(comm)
    collect_at_times() = (random = random * 1103515245 % 2147483647; random % 5 == 0 && GC.gc(random % 40 == 0))
    steps, deadline = 0, Inf  # from the second step on, when all is compiled
    while all_reduce_sum!(comm, [Float64(time() > deadline)])[1] == 0  # all ranks end after the same step
        collect_at_times()
        sums = acquire(engine, ids) do weights
            try
                acquire(lent -> throw(KeyError(sum(lent.layer.bias))), engine, ids; float32 = true)
            catch cause
                cause isa KeyError || rethrow()
            end
            backward(engine, fill(2.0, 4), fill(Float16(1), 2, 3)) do pass, one, two
                place = slot(pass, ids.layer.weight)
                collect_at_times()
                place .= sum(one) / 8
                pass[ids.layer.weight] = place
                collect_at_times()
                pass["layer.bias"] = Float64.(vec(sum(two; dims = 1)))
            end
            Snapshot()
            Message(pack("x" => fill(Float32(steps), 100)))["x"][1] == steps || error("a message has changed")
            (sum(weights.layer.weight), sum(weights.layer.bias))
        end
        sums == (35 * (1 - steps / 2), 3 * (2 - steps)) || error("$sums after $steps steps")
        outcome(step!(engine)) === :applied || error("no step")
        steps += 1
        steps == 1 && (deadline = time() + SECONDS)
    end
    finalize!(engine)
    return steps
end

@testset "two ranks train and collect" begin
    groups = thread_groups(Context(workers = 1), 2; timeout = 60)
    steps, same = on_threads(() -> train(groups[1]), () -> train(groups[2]))
    @test steps isa Int && steps == same && steps > 0
    println(steps, " steps")
end

# Its lines come from a thread that Julia does not know, and the pipe takes them while others collect.
@testset "a step in the background logs" begin
    logger = Test.TestLogger(min_level = Logging.Debug)
    before = global_logger(logger)
    engine = Engine(self_group(Context(workers = 1, log_level = Logging.Debug)))
    id = add_parameter!(engine, "w", ones(Float32, 4))
    commit!(engine)
    over = Threads.Atomic{Bool}(false)
    step_behind() = (backward(pass -> pass[id] = ones(4), engine); step_begin!(engine); Outrigger.report(engine))
    step_behind()  # compiles it, which would take long under a collector that never rests
    collecting() = while !over[]
        GC.gc(false)
        rests = time() + 0.001
        spin_until(() -> over[] || time() > rests)
    end
    on_threads(() -> (foreach(_ -> step_behind(), 2:20); over[] = true), collecting)
    Outrigger.deliver_log()
    global_logger(before)
    updates = filter(line -> line.level == Logging.Debug && line.group === :outrigger, logger.logs)
    @test length(updates) == (Outrigger.compiles() ? 20 : 0) && all(line -> startswith(line.message, "step "), updates)
end
println("done")
