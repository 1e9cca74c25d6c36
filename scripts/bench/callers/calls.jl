# SPDX-License-Identifier: Apache-2.0
# What a call costs in Julia: a gradient of 16 elements added to an open pass, or a pass without gradients and its step. It answers the
# lines that scripts/bench/peers/worker.py describes.
#
#     calls.jl OPERATION      add_grad, step

using Outrigger

const VALUES = 16

function add_grads(engine, id, gradient, times)
    pass = Pass(engine)
    begun = time_ns()
    for _ in 1:times
        add_grad!(pass, id, gradient)
    end
    taken = time_ns() - begun
    end!(pass)
    close(pass)
    step!(engine)
    return taken
end

function steps(engine, times)
    begun = time_ns()
    for _ in 1:times
        pass = Pass(engine)
        end!(pass)
        close(pass)
        step!(engine)
    end
    return time_ns() - begun
end

function main(operation)
    engine = Engine(self_group(Context(workers = 1)), """{"optimizer": {"type": "SGD", "params": {"lr": 0.0}}, "gradient_clipping": 0}""")
    gradient = ones(Float32, VALUES)
    id = add_parameter!(engine, "w", gradient)
    commit!(engine)
    run(times) = operation == "add_grad" ? add_grads(engine, id, gradient, times) : steps(engine, times)
    run(1)  # compiles
    println("""{"ready": {}}""")
    for line in eachline(stdin)
        command, argument = split(line * " ", ' ')
        command == "check" && println("""{"checked": {}}""")
        command == "run" && println("""{"run": [0, $(run(parse(Int, argument))), {}]}""")
    end
end

main(ARGS...)
