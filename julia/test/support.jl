# SPDX-License-Identifier: Apache-2.0

function small_engine(config = "{}")
    context = Context(workers = 1)
    comm = Comm(context; job = "julia")
    Engine(comm, config)  # context and comm may be collected: the engine holds them
end

"""What the library refuses: its status."""
function refused(call)
    try
        call()
    catch error
        error isa OutriggerError || rethrow()
        return error.code
    end
    nothing
end

"An engine of one trainable 2×2 parameter, committed, and its id."
function square_engine(config = "{}")
    engine = small_engine(config)
    id = add_parameter!(engine, "w", Float32[1 2; 3 4])
    commit!(engine)
    return engine, id
end

"A program of its own, under this Julia; its output. It has a minute."
function output_of(arguments; threads = 1, options = ``)
    command = `$(Base.julia_cmd()) $options --startup-file=no --project=$(dirname(dirname(pathof(Outrigger)))) $arguments`
    output, finished = IOBuffer(), Ref(false)
    child = run(pipeline(setenv(command, merge(Dict(ENV), Dict("JULIA_NUM_THREADS" => string(threads)))), stdout = output, stderr = output); wait = false)
    timer = Timer(_ -> kill(child), 120)
    wait(child)
    close(timer)
    return (success(child), String(take!(output)))
end
