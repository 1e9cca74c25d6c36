# SPDX-License-Identifier: Apache-2.0
# The scenario (tests/bindings/scenario/README.md) in Julia.
#
#     julia --project=julia julia/examples/scenario.jl CONFIG.json OUTPUT …      writes OUTPUT.<rank>, for each configuration

using Outrigger
using Outrigger: OTR_ACQUIRE_FLOAT32, OTR_E_NOT_FOUND, OTR_SKIP_NONFINITE, OTR_VALUE_EXP_AVG, OTR_VALUE_EXP_AVG_SQ

const EMBED, BIAS, EMPTY, FROZEN, HEAD, SCALE, WIDE, UNUSED = 0:7
const PARAMETERS = [("embed.weight", (5, 3)), ("linear.bias", (7,)), ("norm.empty", (0, 4)), ("frozen.table", (2, 3)),
                    ("head.weight", (5, 3)), ("scale", ()), ("wide.weight", (3, 101)), ("unused.gain", (4,))]
const OPTIONS = Dict(BIAS => (contributions = 2,), FROZEN => (trainable = 0,), HEAD => (alias_of = EMBED,))

# ---- Numbers as their exact bit patterns ----
hex(x::Float64) = string(reinterpret(UInt64, x); base = 16, pad = 16)
hex(x::Float32) = string(reinterpret(UInt32, x); base = 16, pad = 8)
hex(x::BFloat16) = string(x.bits; base = 16, pad = 4)
shape(extents) = "[" * join(extents, ",") * "]"
row_major(array) = ndims(array) < 2 ? vec(array) : vec(permutedims(array, ndims(array):-1:1))

line(out, words...) = println(out, join(words, " "))
tensor(out, array, words...) = line(out, words..., shape(size(array)), map(hex, row_major(array))...)

function report(out, r, words...)
    fields = (:outcome, :reason, :nonfinite_rank, :nonfinite_param, :nonfinite_count, :micro_steps, :applied_steps,
              :skipped_steps, :grad_norm, :clip_coefficient, :loss_scale, :lr, :updates, :vanished)
    text(value) = value isa Float64 ? hex(value) : string(value)
    line(out, words..., join(("$field $(text(getfield(r, field)))" for field in fields), " "))
end

"""An array whose element number i, counted row-major from 0, is f(i)."""
function filled(f, extents...)
    reversed = reshape([f(i) for i in 0:prod(extents)-1], reverse(extents))
    isempty(extents) ? reversed : permutedims(reversed, length(extents):-1:1)
end

# ---- The run ----
function collectives(comm, out)
    sums = all_reduce_sum!(comm, [rank(comm) + 0.5, 2.0])
    line(out, "all_reduce", map(hex, sums)...)
    line(out, "all_gather", all_gather(comm, [UInt8(10 + rank(comm))])...)
    last = world_size(comm) - 1
    token = broadcast!(comm, Float32[rank(comm) == last ? 1 : 0]; root = last)
    barrier(comm)
    line(out, "broadcast", hex(token[1]))
end

function add_parameters(engine, rank, out)
    for (d, (name, extents)) in zip(0:7, PARAMETERS)
        initial = filled(i -> Float32(((7i + 3d) % 33 - 16) / 16 + rank), extents...)
        id = add_parameter!(engine, name, d == HEAD ? nothing : initial; get(OPTIONS, d, NamedTuple())...)
        line(out, "parameter", id, name, shape(parameter_shape(engine, id)))
    end
end

function print_acquired(engine, out; float32 = false)
    ids = [EMBED, WIDE]
    prefetch(engine, ids; float32 = float32)
    acquire(engine, ids; float32 = float32) do weights
        for (id, weight) in zip(ids, weights)
            tensor(out, weight, "acquired", id)
        end
    end
end

function add_by_slot(pass, id, gradient)
    place = slot(pass, id)
    place .= gradient
    add_grad!(pass, id, place)
end

"""The toy model's backward: parameter gradients from the scaled gradients of the outputs."""
function gradients(pass, number, rank, world, dy0, dy1, dl)
    x = [Float32((row + 2column) % 5 - 2) / 2 for row in 0:3, column in 0:4]
    add_by_slot(pass, EMBED, x' * dy0 .+ 0.0f0)  # no -0.0
    add_grad!(pass, HEAD, dl[] * dy0[(0:4) .% 4 .+ 1, :])
    if rank == 0 || iseven(number)
        add_by_slot(pass, BIAS, dy1[1, :])
        add_grad!(pass, BIAS, view(dy1, 2, :))
    end
    iseven(number) && add_grad!(pass, EMPTY, zeros(Float32, 0, 4))
    add_grad!(pass, SCALE, fill(sum(dy0) + dl[]))
    wide = dl[] * permutedims(dy0)[:, (0:100) .% 4 .+ 1]
    if number == 3 && rank == world - 1
        wide[2, 8] = Inf32
    end
    iseven(number) ? add_by_slot(pass, WIDE, wide) : add_grad!(pass, WIDE, wide)
end

function run_pass(engine, number, rank, world, out)
    y0 = filled(i -> Float32((i + rank + number) % 8 - 3) / 4, 4, 3)
    y1 = filled(i -> ((3i + 2rank + number) % 8 - 4) / 4, 2, 7)
    backward(engine, y0, y1, fill(1.0f0)) do pass, dy0, dy1, dl
        line(out, "pass", number, "scale", hex(Outrigger.scale(pass)))
        for (i, dy) in zip(0:2, (dy0, dy1, dl))
            tensor(out, dy, "pass", number, "output", i)
        end
        gradients(pass, number, rank, world, dy0, dy1, dl)
    end
    if iseven(number)
        r = step!(engine)
    else
        step_begin!(engine)
        r = Outrigger.report(engine)
    end
    report(out, r, "step", number)
    if r.reason == OTR_SKIP_NONFINITE
        line(out, "skipped for", parameter_name(engine, r.nonfinite_param), "of rank", r.nonfinite_rank)
    end
end

function wrong_calls(engine, out)
    function attempt(call)
        try
            call()
            line(out, "no error")
        catch error
            error isa OutriggerError || rethrow()
            line(out, "error", Outrigger.name(error), error.text)
        end
    end
    value = zeros(Float32, 5, 3)
    attempt(() -> parameter_id(engine, "embed.wieght"))
    attempt(() -> add_parameter!(engine, "late", value))
    attempt(() -> set_group_value!(engine, "lr", -1.0))
    pass = Pass(engine)
    attempt(() -> add_grad!(pass, WIDE, value))
    close(pass)  # nothing was added: no trace
end

function print_values(engine, out)
    for d in 0:7, (value, name) in zip(0:3, ("master", "published", "exp_avg", "exp_avg_sq"))
        try
            tensor(out, read(engine, d, value), "value", d, name)
        catch error
            error isa OutriggerError && error.code == OTR_E_NOT_FOUND || rethrow()
            line(out, "value", d, name, "none")
        end
    end
end

# ---- Two engines in a chain: h = front(x), y = back(h) ----
const AUTOCAST = """{"torch_autocast": {"enabled": true, "dtype": "fp16"}, "gradient_clipping": 1, """
const CHAIN = [
    "front" => AUTOCAST * """"fp16": {"loss_scale": 4}, "optimizer": {"type": "AdamW", "params": {"lr": 0.25}}}""",
    "back" => AUTOCAST * """"fp16": {"loss_scale": 64}, "optimizer": {"type": "AdamW", "params": {"lr": 0.5}},
              "zero_optimization": {"stage": 2}}"""]

function make_engine(comm, config, name)
    engine = Engine(comm, config)
    declare_parameter!(engine, name, (2, 2))
    commit!(engine)
    set_initial!(engine, [0], [Float32[0.5 -1; 1 0.25]])
    engine
end

function chain(comm, out)
    names = first.(CHAIN)
    front, back = engines = [make_engine(comm, config, name) for (name, config) in CHAIN]
    for window in 0:1
        dy = Float32[1 -0.5; 0.25 2]
        if window == 1 && rank(comm) == world_size(comm) - 1
            dy[2, 1] = Inf32
        end
        backward(back, dy) do behind, at_back
            tensor(out, at_back, "chain back scaled")
            dh = 2 * at_back[[2, 1], :]  # the gradient of the input
            tensor(out, unscale(behind, dh), "chain input gradient")
            carried = tag(behind)
            line(out, "chain tag", hex(carried.loss_scale), carried.accumulation, carried.ranks)
            backward(front, dh; tag = carried) do before, at_front
                tensor(out, at_front, "chain front scaled")
                add_grad!(before, 0, at_front)
            end
            add_grad!(behind, 0, at_back)
        end
        for (name, r) in zip(names, step_many!(engines))
            report(out, r, "chain", name, "step")
        end
    end
    for (name, engine) in zip(names, engines)
        finish(engine, out, "chain", name)
    end
end

function finish(engine, out, words...)
    for value in 0:3
        tensor(out, read(engine, 0, value), words..., "value", value)
    end
    finalize!(engine)
    close(engine)
end

# ---- A training that is saved, and goes on at another stage and without offload ----
kept(zero) = """{"zero_optimization": $zero, "gradient_clipping": 0, "optimizer": {"type": "AdamW", "params": {"lr": 0.125}}}"""

"""With a gradient that differs between windows and ranks."""
function step_alone(engine, window, rank, out, name)
    backward(engine) do alone
        add_grad!(alone, 0, Float32[1 -0.5; 0.25 2] * (window + 1) * (2rank + 1))
    end
    report(out, step!(engine), name, "step", window)
end

function save_and_load(comm, directory, out)
    me = rank(comm)
    engine = make_engine(comm, kept("""{"stage": 2, "offload_optimizer": {"device": "cpu"}}"""), "w")
    for window in 0:1
        step_alone(engine, window, me, out, "saved")
    end
    save(engine, directory, "two")
    step_alone(engine, 2, me, out, "saved")
    finish(engine, out, "saved")
    engine = make_engine(comm, kept("""{"stage": 3}"""), "w")
    load!(engine, directory, "two")
    step_alone(engine, 2, me, out, "loaded")
    finish(engine, out, "loaded")
end

function shard_alone(context, out)
    weights, grads = Float32.(-2:2) / 4, Float32.(3:-1:-1) / 8
    published = Vector{BFloat16}(undef, 5)
    shard = Shard(context, weights, grads; published = published)
    optimizer = Optimizer(context, """{"type": "AdamW", "params": {"lr": 0.5}}""")
    Outrigger.set_value!(optimizer, "lr", 0.25)
    report(out, step!(optimizer, shard), "shard step")
    tensor(out, weights, "shard weights")
    tensor(out, published, "shard published")
    for value in (OTR_VALUE_EXP_AVG, OTR_VALUE_EXP_AVG_SQ)
        tensor(out, state(shard, value), "shard state", value)
    end
    line(out, "shard state_bytes", state_bytes(shard))
end

function run_scenario(context, comm, config, path)
    me, world = rank(comm), world_size(comm)
    open("$path.$me", "w") do out
        line(out, "rank", me, "of", world)
        collectives(comm, out)
        engine = Engine(comm, read(config, String))
        add_parameters(engine, me, out)
        commit!(engine)
        print_acquired(engine, out)
        for number in 0:5  # three windows of two passes
            number == 4 && set_group_value!(engine, "lr", 0.03125)
            run_pass(engine, number, me, world, out)
        end
        wrong_calls(engine, out)
        print_values(engine, out)
        print_acquired(engine, out)
        print_acquired(engine, out; float32 = true)
        for (purpose, resident, _) in memory(engine)
            line(out, "memory", resident, purpose)
        end
        line(out, "live_children", live_children(engine))
        finalize!(engine)
        chain(comm, out)
        save_and_load(comm, "$path.saved", out)
        shard_alone(context, out)
        close(engine)
        line(out, "done")
    end
end

# All in one process, which compiles them once.
context = Context()
comm = Comm(context)
for (config, path) in Iterators.partition(ARGS, 2)
    run_scenario(context, comm, config, path)
end
