# SPDX-License-Identifier: Apache-2.0

# The names of an enumeration of the header: OTR_STEP_APPLIED is :applied.
numbered(prefix) = Dict(getfield(@__MODULE__, each) => Symbol(lowercase(chop(String(each); head = length(prefix), tail = 0)))
                        for each in names(@__MODULE__; all = true) if startswith(String(each), prefix) && isdefined(@__MODULE__, each))
const OUTCOMES, REASONS = numbered("OTR_STEP_"), numbered("OTR_SKIP_")

"""
    outcome(report)

What a step did: `:accumulated`, `:applied`, `:skipped`, `:reduced` or `:pending`. The other fields of a report are those of `otr_step_report`: `grad_norm`,
`loss_scale`, `lr`, `applied_steps` and so on.
"""
outcome(report::otr_step_report) = get(OUTCOMES, report.outcome, :unknown)

"""
    skip_reason(report)

Why a window was skipped: `:nonfinite`, `:abandoned`, `:seed_overflow`, `:joint` or `:outlier`; else `:none`.
"""
skip_reason(report::otr_step_report) = get(REASONS, report.reason, :unknown)

function Base.show(io::IO, report::otr_step_report)
    print(io, "step report(", outcome(report))
    report.reason == OTR_SKIP_NONE || print(io, ": ", skip_reason(report))
    print(io, ", grad_norm = ", report.grad_norm, ", loss_scale = ", report.loss_scale, ", lr = ", report.lr, ", applied_steps = ",
          report.applied_steps, ", skipped_steps = ", report.skipped_steps, ")")
end

"""
    step!(engine)

Ends a micro-batch; the last one of a window makes the update. Gives the report: see [`outcome`](@ref). A skipped step is a success. At the end of a window
acquired arrays are over. Collective.
"""
function step!(engine::Engine)
    report = sized(otr_step_report)
    check(otr_engine_step(engine, report))
    return stepped(engine, report[])
end

function stepped(engine, report)
    report.outcome == OTR_STEP_ACCUMULATED || return_lent!(engine)
    tell_watches(engine)
    return report
end

"""
    step_begin!(engine)

Begins the step on a thread of the library and returns at once; `Outrigger.report` tells how it ended. Until then parameters can be
acquired, each once the step has updated it, and most other calls are errors.
"""
function step_begin!(engine::Engine)
    boundary = is_boundary(engine)
    check(otr_engine_step_begin(engine))
    boundary && return_lent!(engine)
    return nothing
end

"""
    Outrigger.report(engine, timeout = -1.0)

The report of the step that was begun last; its outcome is `:pending` if that is not over within `timeout` seconds. 0 only asks, a negative one waits for
the end. May wait.
"""
function report(engine::Engine, timeout = -1.0)
    found = sized(otr_step_report)
    check(otr_engine_report(engine, timeout, found))
    tell_watches(engine)  # step_begin! has ended what was acquired before it
    return found[]
end

"""
    step_many!(engines; joint = nothing)

One step of several engines, all or none. `joint`: a group of the ranks of all, where they have different engines. Gives their reports. Collective.
"""
function step_many!(engines; joint = nothing)
    reports = [sized(otr_step_report)[] for _ in engines]
    check(alone(pointers -> otr_step_many(pointers, length(pointers), joint === nothing ? C_NULL : joint, reports), engines))
    foreach(stepped, engines, reports)
    return reports
end

"""
    reduce!(engine)

The first half of a step that ends a window: until the step, `:grad` can be read and written. Gives a report of what the step would do. Collective.
"""
function reduce!(engine::Engine)
    report = sized(otr_step_report)
    check(otr_engine_reduce(engine, report))
    return report[]
end

"""
    has_grad(engine, id)

Whether the step would update this parameter; between `reduce!` and the step.
"""
has_grad(engine::Engine, id) = out(reference -> otr_engine_has_grad(engine, id, reference), Int32) != 0

"""
    discard!(engine)

Drops the gradients of the window, summed or not. Collective.
"""
discard!(engine::Engine) = check(otr_engine_discard(engine))

const BOUNDARIES = (configured = OTR_BOUNDARY_CONFIGURED, no = OTR_BOUNDARY_NO, yes = OTR_BOUNDARY_YES)

"""
    set_boundary!(engine, boundary)

Who ends windows: `:configured`, or every step does (`:yes`) or none (`:no`). Every rank makes the same call.
"""
set_boundary!(engine::Engine, boundary::Integer) = check(otr_engine_set_boundary(engine, boundary))
set_boundary!(engine::Engine, boundary::Symbol) = haskey(BOUNDARIES, boundary) ? set_boundary!(engine, BOUNDARIES[boundary]) :
    throw(ArgumentError("no boundary :$boundary; there are :$(join(keys(BOUNDARIES), ", :"))"))

"""
    is_boundary(engine)

Whether the next step ends the window.
"""
is_boundary(engine::Engine) = out(reference -> otr_engine_get_boundary(engine, reference), Int32) != 0

"""
    loss_scale(engine)

The loss scale of this window's passes; 1 without loss scaling.
"""
loss_scale(engine::Engine) = out(reference -> otr_engine_get_loss_scale(engine, reference), Float64)

# ---- Watching ----

# Functions that take records, and the record that they had last.
mutable struct Watches
    functions::Vector{Any}
    last::String
end

"""
    watch!(engine; name, records, trace)
    watch!(engine; …) do record … end

Begins to make records of this rank's steps (docs/watching.md). `records`, `trace`: folders for files of records as JSON lines and of traces. The block gets
each record as a dictionary, on the thread that calls `step!`, `step_many!` or `Outrigger.report`, before that returns; what it throws comes from there,
though the step was made.
"""
function watch!(engine::Engine; name = nothing, records = nothing, trace = nothing)
    given = filter(pair -> pair.second !== nothing, [:name => name, :records => records, :trace => trace])
    return check(otr_engine_watch(engine, Options(otr_watch_options, otr_watch_options_init; given...)))
end
function watch!(body::Function, engine::Engine; options...)
    watch!(engine; options...)
    push!(watches(engine).functions, body)
    return nothing
end
watches(engine) = engine.owner::Watches

function tell_watches(engine)
    of = watches(engine)
    isempty(of.functions) && return
    line = record_text(engine)
    (line === nothing || line == of.last) && return
    of.last = line
    record = parse_json(line)
    foreach(each -> each(record), of.functions)
end

function record_text(engine)
    try
        return text(asked((buffer, size) -> otr_engine_get_record(engine, buffer, size)))
    catch error
        error isa OutriggerError && error.code == OTR_E_NOT_FOUND || rethrow()
        return nothing
    end
end

"""
    note!(engine, name, value)

Gives the next record a number, such as "loss". Any thread.
"""
note!(engine::Engine, name::AbstractString, value) = check(otr_engine_note(engine, name, value))

"""
    record(engine)

The record of the last step whose outcome is known, as a dictionary; `nothing`: there is none yet. After `watch!`. Any thread.
"""
function record(engine::Engine)
    line = record_text(engine)
    return line === nothing ? nothing : parse_json(line)
end
