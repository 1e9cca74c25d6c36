# SPDX-License-Identifier: Apache-2.0
# Checkpoints: of an engine, looked at without one, made without one.

# ---- Of an engine ----

"""
    save(engine, directory, tag; parts, keep_last, replace, asynchronous, when_busy)

Saves the training as `directory/tag`; the directory is made if it is not there. parts: pairs of a name and bytes of this rank's host that ride
along. When it returns, the checkpoint is durable and the file `latest` names it. keep_last: those of the most steps that stay; 0: all.
asynchronous: returns
before the values are written, and the training goes on meanwhile (`wait_save`). when_busy: while such a save
is under way, `:wait` for its end or `:refuse`. Between two windows. Collective.
"""
function save(engine::Engine, directory::AbstractString, tag::AbstractString; parts = (), keep_last = 0, replace = false,
              asynchronous = false, when_busy = :wait)
    when_busy in (:wait, :refuse) || throw(ArgumentError("when_busy = $when_busy; legal is :wait or :refuse"))
    mkpath(directory)
    with_parts(parts) do raw
        check(otr_engine_save(engine, directory, tag, Options(otr_save_options, otr_save_options_init;
            keep_last = Int32(keep_last), replace = Int32(replace), asynchronous = Int32(asynchronous),
            when_busy = Int32(when_busy === :wait ? OTR_SAVE_WAIT : OTR_SAVE_REFUSE), parts = pointer(raw), part_count = Int64(length(raw)))))
    end
end

# body(raw), with pairs of a name and bytes as the library takes them.
function with_parts(body, parts)
    names = String[name for (name, _) in parts]
    datas = [Vector{UInt8}(data) for (_, data) in parts]
    GC.@preserve names datas begin
        raw = [otr_part(Base.unsafe_convert(Cstring, name), pointer(data), length(data)) for (name, data) in zip(names, datas)]
        GC.@preserve raw body(raw)
    end
end

"""
How the last asynchronous save is getting on, once it is over or `timeout` seconds have passed; 0 only asks; negative: as long as it takes.
Its `state` is OTR_SAVE_NONE, OTR_SAVE_UNDER_WAY or OTR_SAVE_DONE; a save that failed throws, once. Local.
"""
function wait_save(engine::Engine; timeout = -1.0)
    status = sized(otr_save_status)
    check(otr_engine_wait_save(engine, timeout, status))
    return status[]
end

# One text or several, and what C takes for them; the texts have to be kept.
listed(given::AbstractString) = String[given]
listed(given) = String[text for text in given]
raw_texts(texts) = Cstring[Base.unsafe_convert(Cstring, text) for text in texts]
start_of(raw::Vector) = isempty(raw) ? C_NULL : pointer(raw)

"""
An empty snapshot: memory for a moment of a training, which outlives engines and communicators.
"""
Snapshot() = Snapshot(out(otr_snapshot_create, Ptr{otr_snapshot}))

"""
Fills a snapshot with this moment: masters and moments as stored, the progress, and parts, pairs of a name and bytes of this rank's host.
replicas: other ranks that keep a copy of each rank's. Between two windows. Collective.
"""
function snapshot!(engine::Engine, into::Snapshot; parts = (), replicas = 0)
    with_parts(parts) do raw
        check(otr_engine_snapshot(engine, into, Options(otr_snapshot_options, otr_snapshot_options_init;
            replicas = Int32(replicas), parts = pointer(raw), part_count = Int64(length(raw)))))
    end
end

"""
Goes back to the latest moment of which every rank's part is in some rank's snapshots. Every rank gives what it has, at most four; one without
its own part gives an empty one, which takes it. Between two windows. Collective.
"""
function restore!(engine::Engine, snapshots::Snapshot...)
    check(alone(pointers -> otr_engine_restore(engine, Ptr{otr_snapshot}[pointers...], length(pointers)), snapshots))
end

"""
rank (-1: it is empty), copies, world_size, micro_steps and bytes of a snapshot.
"""
function info(snapshot::Snapshot)
    filled = sized(otr_snapshot_info)
    check(otr_snapshot_get_info(snapshot, filled))
    return filled[]
end

"""
What this rank's host gave along.
"""
part(snapshot::Snapshot, name::AbstractString) = asked((buffer, size) -> otr_snapshot_part(snapshot, name, buffer, size))

"""
    load!(engine, directory, tag = nothing; weights_only, strict, include, exclude, renamed, resized)

Goes on from a checkpoint, whatever ranks, stage and formats it was made with; tag nothing: the latest. weights_only: neither moments nor
progress; with strict false, those that are both here and there.

include, exclude, resized, all with weights_only: patterns of names here, one or several, in which `*` is any characters and `?` is one.
include: these are loaded; nothing: all. exclude: these are not. resized: of these the first dimension may be another one in the checkpoint; the
rows that are in both are taken, the others stay. renamed: pairs of what names here are there, `"head" => "lm_head"`, or beginnings of names,
`"*" => "model.*"`; moments and progress come under them, too.

Between two windows. Collective. A failure leaves the engine as it was.
"""
function load!(engine::Engine, directory::AbstractString, tag = nothing; weights_only = false, strict = true, include = nothing, exclude = (),
               renamed = (), resized = ())
    chosen, left, grown = include === nothing ? String[] : listed(include), listed(exclude), listed(resized)
    include === nothing || !isempty(chosen) || throw(ArgumentError("include has no pattern, and would take nothing; nothing takes all parameters"))
    entries = [String(here) => String(there) for (here, there) in (renamed isa Pair ? (renamed,) : renamed)]
    GC.@preserve chosen left grown entries begin
        raw = map(raw_texts, (chosen, left, grown))
        renames = [otr_rename(Base.unsafe_convert(Cstring, entry.first), Base.unsafe_convert(Cstring, entry.second)) for entry in entries]
        GC.@preserve raw renames check(otr_engine_load(engine, directory, tag === nothing ? C_NULL : tag,
            Options(otr_load_options, otr_load_options_init; weights_only = Int32(weights_only), strict = Int32(strict),
                    include = start_of(raw[1]), include_count = length(raw[1]), exclude = start_of(raw[2]), exclude_count = length(raw[2]),
                    resized = start_of(raw[3]), resized_count = length(raw[3]), renamed = start_of(renames), renamed_count = length(renames))))
    end
end

"""
Goes on from the directory's latest checkpoint, if it has one: for a program that may be started again. Returns the parts that this rank's host
gave to the save, by name (rank 0's where it did not save); none where there is no checkpoint, and the training begins. Collective. A latest
checkpoint that is damaged or does not fit throws. rank: this one's.
"""
function resume!(engine::Engine, directory::AbstractString; rank = 0)
    try
        load!(engine, directory)
    catch error
        latest = joinpath(directory, "latest")
        error isa OutriggerError && error.code == OTR_E_NOT_FOUND && !ispath(latest) && !islink(latest) || rethrow()
        return Dict{String, Vector{UInt8}}()
    end
    parts(Checkpoint(directory); rank)
end

# ---- Of shards ----

"""
    save(optimizer, shards, directory, tag; parts, keep_last, replace)

Saves shards as the checkpoint `directory/tag` of this process, each as a parameter of its `name`: weights and moments as they are stored, updates, and
the optimizer's hyperparameters, but not its gradient_factor. The directory is made if it is not there; the rest as for an engine. `Checkpoint` reads
it, and so does `load!` of an engine with parameters of these names and shapes. Local.
"""
function save(optimizer::Optimizer, shards, directory::AbstractString, tag::AbstractString; parts = (), keep_last = 0, replace = false)
    mkpath(directory)
    with_parts(parts) do raw
        options = Options(otr_save_options, otr_save_options_init; keep_last = Int32(keep_last), replace = Int32(replace), parts = pointer(raw),
                          part_count = Int64(length(raw)))
        check(alone(pointers -> otr_optimizer_save(optimizer, shard_pointers(pointers), length(pointers), directory, tag, options), Tuple(shards)))
    end
end

"""
    load!(optimizer, shards, directory, tag = nothing; weights_only, strict)

Shards go on from a checkpoint, by their names: one of `save`, of an engine, or imported; tag nothing: the latest. weights_only: neither moments nor
progress; with strict false, those that are both here and there. Everything is read and checked before anything changes. Local.
"""
function load!(optimizer::Optimizer, shards, directory::AbstractString, tag = nothing; weights_only = false, strict = true)
    options = Options(otr_load_options, otr_load_options_init; weights_only = Int32(weights_only), strict = Int32(strict))
    named = tag === nothing ? C_NULL : tag
    check(alone(pointers -> otr_optimizer_load(optimizer, shard_pointers(pointers), length(pointers), directory, named, options), Tuple(shards)))
end

"""
    snapshot!(optimizer, shards, into; parts)

The same as a save, into memory, for `restore!`. Local.
"""
function snapshot!(optimizer::Optimizer, shards, into::Snapshot; parts = ())
    with_parts(parts) do raw
        options = Options(otr_snapshot_options, otr_snapshot_options_init; parts = pointer(raw), part_count = Int64(length(raw)))
        check(alone(pointers -> otr_optimizer_snapshot(optimizer, shard_pointers(pointers), length(pointers), into, options), Tuple(shards)))
    end
end

"""
    restore!(optimizer, shards, snapshot)

Back to a snapshot of these shards, or of others of their names, formats and counts. Local.
"""
restore!(optimizer::Optimizer, shards, snapshot::Snapshot) =
    check(alone(pointers -> otr_optimizer_restore(optimizer, shard_pointers(pointers), length(pointers), snapshot), Tuple(shards)))

# ---- Looked at ----

"""
A checkpoint that is looked at, without an engine; tag nothing: the latest. Local.
"""
Checkpoint(directory::AbstractString, tag = nothing) = Checkpoint(out(Ptr{otr_checkpoint}) do checkpoint
    otr_checkpoint_open(directory, tag === nothing ? C_NULL : tag, checkpoint)
end)

"""
What a checkpoint is of, as JSON.
"""
describe(checkpoint::Checkpoint) = text(asked((buffer, size) -> otr_checkpoint_describe(checkpoint, buffer, size)))

"""
The same as a dictionary: "tag", "ranks", "progress", "configuration", "parameters" and so on.
"""
description(checkpoint::Checkpoint) = parse_json(describe(checkpoint))

"""
The shapes of all parameters, by name.
"""
shapes(checkpoint::Checkpoint) =
    Dict{String, Tuple{Vararg{Int}}}(each["name"] => Tuple(Int.(each["shape"])) for each in description(checkpoint)["parameters"])

"""
Bytes that a rank's host gave to the save.
"""
part(checkpoint::Checkpoint, name::AbstractString; rank = 0) =
    asked((buffer, size) -> otr_checkpoint_part(checkpoint, rank, name, buffer, size))

"""
All of a rank's, by name; of a rank that did not save, those of rank 0.
"""
function parts(checkpoint::Checkpoint; rank = 0)
    names = description(checkpoint)["parts"]
    saved = rank < length(names) ? rank : 0
    Dict{String, Vector{UInt8}}(name => part(checkpoint, name; rank = saved) for name in names[saved + 1])
end

"""
    read(checkpoint, name; value = OTR_VALUE_MASTER)
    read(checkpoint, name, count; value, first = 0)

A value of a parameter as Float32, whatever it is stored as: whole, in the parameter's shape; or so many elements of it in row-major order, where first
counts from 0. value: OTR_VALUE_MASTER, OTR_VALUE_PUBLISHED, OTR_VALUE_EXP_AVG or OTR_VALUE_EXP_AVG_SQ. Compared with its checksums.
"""
function Base.read(checkpoint::Checkpoint, name::AbstractString, count::Integer; value = OTR_VALUE_MASTER, first = 0)
    values = Vector{Float32}(undef, count)
    check(otr_checkpoint_read(checkpoint, name, value_of(value), first, count, values))
    values
end
function Base.read(checkpoint::Checkpoint, name::AbstractString; value = OTR_VALUE_MASTER)
    shape = get(shapes(checkpoint), name, ())
    flat = read(checkpoint, name, reduce(*, shape; init = 1); value)
    permutedims(reshape(flat, reverse(shape)), ntuple(d -> length(shape) + 1 - d, length(shape)))
end

"""
Writes the weights as a safetensors file, or with max_shard_bytes as files of a Hugging Face model in the folder `path`, which is made if it is not
there. dtype: "float32", "bfloat16" or "float16".
"""
function export_weights(checkpoint::Checkpoint, path::AbstractString; dtype = "float32", max_shard_bytes = 0, replace = false)
    max_shard_bytes > 0 && mkpath(path)
    options = Options(otr_export_options, otr_export_options_init; dtype, max_shard_bytes = Int64(max_shard_bytes), replace = Int32(replace))
    check(otr_checkpoint_export(checkpoint, path, options))
end

"""
Reads every value and compares it with its checksum.
"""
verify(checkpoint::Checkpoint) = check(otr_checkpoint_verify(checkpoint))

"""
The complete checkpoints of a directory, sorted, and the latest one's tag, or nothing: `(; latest, tags)`.
"""
function list_checkpoints(directory::AbstractString)
    found = parse_json(text(asked((buffer, size) -> otr_checkpoint_list(directory, buffer, size))))
    (latest = found["latest"], tags = String[tag for tag in found["tags"]])
end

# ---- Made without an engine ----

"""
    CheckpointWriter(directory, tag; master, exp_avg, exp_avg_sq, applied_steps, replace) do writer … end

Makes the checkpoint directory/tag of what another program kept: declare all parameters (`add_parameter!`), write their values (`write!`). It appears
at the end of the block, as a whole; an exception in it leaves nothing. Without a block: `finish!`, or `close` to leave nothing.

master, exp_avg, exp_avg_sq: what weights and moments are kept as, "float32", "bfloat16" or "float16"; nothing: there is no such moment.
applied_steps: how many updates were made; nothing: not known, and `load!` takes weights only. Any thread.
"""
function CheckpointWriter(directory::AbstractString, tag::AbstractString; master = "float32", exp_avg = nothing, exp_avg_sq = nothing,
                          applied_steps = nothing, replace = false)
    given = Dict{Symbol, Any}(:master => master, :exp_avg => exp_avg, :exp_avg_sq => exp_avg_sq,
                              :applied_steps => applied_steps === nothing ? nothing : Int64(applied_steps))
    filter!(pair -> pair.second !== nothing, given)
    mkpath(directory)
    options = Options(otr_writer_options, otr_writer_options_init; replace = Int32(replace), given...)
    CheckpointWriter(out(reference -> otr_checkpoint_writer_create(directory, tag, options, reference), Ptr{otr_checkpoint_writer}))
end

function CheckpointWriter(body, directory::AbstractString, tag::AbstractString; options...)
    writer = CheckpointWriter(directory, tag; options...)
    try
        body(writer)
        finish!(writer)
    finally
        close(writer)
    end
end

"""
Declares a parameter, before the first write. trainable false: frozen, with a weight only. alias_of: the name of an earlier one that this name
shares; it is not written itself. updates: how many it had; nothing: applied_steps. exp_avg, exp_avg_sq false: it lacks that moment.
"""
function add_parameter!(writer::CheckpointWriter, name::AbstractString, shape; trainable = true, alias_of = nothing, group = nothing, updates = nothing,
                        exp_avg = true, exp_avg_sq = true)
    given = Dict{Symbol, Any}(:alias_of => alias_of, :group => group, :updates => updates === nothing ? nothing : Int64(updates))
    filter!(pair -> pair.second !== nothing, given)
    options = Options(otr_writer_param_options, otr_writer_param_options_init; trainable = Int32(trainable), exp_avg = Int32(exp_avg),
                      exp_avg_sq = Int32(exp_avg_sq), given...)
    extents = collect(Int64, shape)
    check(otr_checkpoint_writer_add_parameter(writer, name, extents, length(extents), options))
end

"""
Bytes that ride along, before the first write: `part` gives them back.
"""
function add_part!(writer::CheckpointWriter, name::AbstractString, data)
    bytes = Vector{UInt8}(data)
    check(otr_checkpoint_writer_add_part(writer, name, bytes, length(bytes)))
end

"""
Writes as many elements as the array has, from first (from 0) on in row-major order: any strided array, rounded to nearest even. value:
OTR_VALUE_MASTER (the weight), OTR_VALUE_EXP_AVG or OTR_VALUE_EXP_AVG_SQ. Any order, each element once.
"""
write!(writer::CheckpointWriter, name::AbstractString, values::AbstractArray; value = OTR_VALUE_MASTER, first = 0) =
    check(otr_checkpoint_writer_write(writer, name, value_of(value), first, values))

"""
Makes the checkpoint durable and names it the latest.
"""
finish!(writer::CheckpointWriter) = check(otr_checkpoint_writer_finish(writer))

"""
Makes the checkpoint directory/tag, of weights only, from a safetensors file or a folder of a Hugging Face model. `load!` takes it with weights_only.
skip_other_dtypes: leaves out tensors that are no floats.
"""
function import_weights(source::AbstractString, directory::AbstractString, tag::AbstractString; replace = false, skip_other_dtypes = false)
    mkpath(directory)
    options = Options(otr_import_options, otr_import_options_init; replace = Int32(replace), skip_other_dtypes = Int32(skip_other_dtypes))
    check(otr_checkpoint_import(source, directory, tag, options))
end
