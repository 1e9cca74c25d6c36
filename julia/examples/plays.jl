# SPDX-License-Identifier: Apache-2.0
# Learns to go on with a text, character by character: a model with a hand-written pullback, under ZeRO stage 2 with bfloat16 moments.
#
#     julia --project=julia julia/examples/plays.jl [STEPS [TEXT]]
#     outrigger run -n 2 -- julia --project=julia julia/examples/plays.jl
#
# Without a TEXT it is Shakespeare's works, which Python fetches once, as for `make demo`.

using Outrigger, Random

const CONTEXT, WIDTH, HIDDEN, ROWS = 8, 16, 128, 128
const CONFIG = (
    optimizer = (type = "AdamW", params = (lr = 0.003, weight_decay = 0)),
    gradient_clipping = 1.0,
    zero_optimization = (stage = 2,),
    outrigger = (states = (exp_avg = (format = "bfloat16",), exp_avg_sq = (format = "bfloat16",)),),
)

# ---- The model: an embedding, a hidden layer, a number for each letter that may come next ----

function initial_values(letters)
    random = MersenneTwister(0)
    layer(outputs, inputs) = (weight = randn(random, Float32, outputs, inputs) / sqrt(Float32(inputs)), bias = zeros(Float32, outputs))
    return (embedding = randn(random, Float32, WIDTH, letters), hidden = layer(HIDDEN, CONTEXT * WIDTH), output = layer(letters, HIDDEN))
end

"The scores of the letters, a column for each row of `context`, and the function from their gradient to that of the weights."
function forward(weights, context)
    x = reshape(weights.embedding[:, vec(context)], CONTEXT * WIDTH, :)
    h = tanh.(weights.hidden.weight * x .+ weights.hidden.bias)
    y = weights.output.weight * h .+ weights.output.bias
    function pullback(ȳ)
        ā = (weights.output.weight' * ȳ) .* (1 .- h .^ 2)
        x̄ = reshape(weights.hidden.weight' * ā, WIDTH, :)
        embedding = zeros(Float32, size(weights.embedding))
        for (column, letter) in enumerate(vec(context))
            @views embedding[:, letter] .+= x̄[:, column]
        end
        return (embedding = embedding, hidden = (weight = ā * x', bias = vec(sum(ā; dims = 2))),
                output = (weight = ȳ * h', bias = vec(sum(ȳ; dims = 2))))
    end
    return y, pullback
end

"The mean loss in nats, and its gradient by the scores, a column for each row."
function cross_entropy(y, next)
    p = exp.(y .- maximum(y; dims = 1))
    p ./= sum(p; dims = 1)
    chosen = CartesianIndex.(next, eachindex(next))
    loss = -sum(log, p[chosen]) / length(next)
    p[chosen] .-= 1
    return loss, p ./ length(next)
end

# ---- The text ----

"The path of Shakespeare's works, which the loader of the demo makes once."
function plays(root = joinpath(@__DIR__, "..", ".."))
    path = joinpath(root, "build", "julia_plays", "plays.txt")
    if !isfile(path)
        mkpath(dirname(path))
        code = "import sys; sys.path.insert(0, sys.argv[1]); import plays; plays.make_text(plays.download(sys.argv[2]), sys.argv[3])"
        unfinished = "$path.$(getpid())"
        run(`python3 -c $code $(joinpath(root, "scripts", "demo")) $(joinpath(dirname(path), "download")) $unfinished`)
        mv(unfinished, path; force = true)
    end
    return path
end

"`ROWS` pieces of the text: what stands before, a column each, and the letter that follows."
function batch(tokens, step, rank, world)
    random = MersenneTwister(step * world + rank)  # each rank has rows of its own
    starts = rand(random, 1:length(tokens) - CONTEXT, ROWS)
    return [tokens[start + place] for place in 0:CONTEXT-1, start in starts], tokens[starts .+ CONTEXT]
end

function main(steps = 500, path = plays())
    text = read(path)
    letters = sort(unique(text))
    tokens = map(byte -> searchsortedfirst(letters, byte), text)
    Comm(Context()) do comm
        loss = train(comm, tokens, length(letters), steps)
        at_random = log(length(letters))
        loss < 0.8 * at_random || error("it has learnt nothing: loss $loss")
        rank(comm) == 0 && println("loss $(round(loss; digits = 3)), of $(round(at_random; digits = 3)) for letters at random")
    end
end

function train(comm, tokens, letters, steps)
    Engine(comm, CONFIG) do engine
        ids = add_parameters!(engine, initial_values(letters))
        commit!(engine)
        losses = Float64[]
        recent() = sum(losses[max(1, end - 99):end]) / min(100, length(losses))
        for step in 1:steps
            context, next = batch(tokens, step, rank(comm), world_size(comm))
            loss = acquire(engine, ids) do weights
                y, pullback = forward(weights, context)
                loss, ȳ = cross_entropy(y, next)
                backward(engine, ȳ) do pass, ȳ
                    add_grad!(pass, ids, pullback(ȳ))
                end
                loss
            end
            report = step!(engine)
            push!(losses, all_reduce_sum!(comm, [Float64(loss)])[1] / world_size(comm))
            rank(comm) == 0 && step % 100 == 0 && println("step $step: loss $(round(recent(); digits = 3)), ", report)
        end
        recent()
    end
end

main(parse.(Int, ARGS[1:min(end, 1)])..., ARGS[2:end]...)
