# SPDX-License-Identifier: Apache-2.0
# Messages: tensors of one micro-batch in one buffer, for any transport.

# What holds a vector's memory; 8 divides its place.
const MessageBytes = Vector{UInt8}

"""
    pack(tensors...; micro_batch = 0, tag = nothing, attributes = ())

The bytes of a message, a `Vector{UInt8}`. tensors: pairs of a name and a strided array of Bool, integers, floats or BFloat16, which come out
row-major with the same extents. tag: of gradients, as `tag(pass)` gives it. attributes: pairs of a name and a text. Any thread.
"""
function pack(tensors::Pair{<:AbstractString, <:AbstractArray{<:Element}}...; micro_batch = 0, tag = nothing, attributes = ())
    names = String[name for (name, _) in tensors]
    arguments = tensor_arguments(last.(tensors))
    texts = [String(name) => String(text) for (name, text) in attributes]
    carried = tag === nothing ? nothing : Ref(tag)
    GC.@preserve names arguments texts carried begin
        raw_names, raw = raw_texts(names), otr_tensor[argument.tensor for argument in arguments]
        notes = [otr_message_attribute(Base.unsafe_convert(Cstring, text.first), Base.unsafe_convert(Cstring, text.second)) for text in texts]
        GC.@preserve notes begin
            options = Options(otr_message_options, otr_message_options_init; micro_batch = Int64(micro_batch),
                tag = carried === nothing ? Ptr{otr_call_info}(C_NULL) : Base.unsafe_convert(Ptr{otr_call_info}, carried),
                attributes = isempty(notes) ? Ptr{otr_message_attribute}(C_NULL) : pointer(notes), attribute_count = Int64(length(notes)))
            size = Ref{Csize_t}(0)
            check(otr_message_pack(raw_names, raw, length(raw), options, C_NULL, size))
            bytes = MessageBytes(undef, size[])
            check(otr_message_pack(raw_names, raw, length(raw), options, bytes, size))
            return bytes
        end
    end
end

"""
    Message(bytes; checked = true)

What somebody packed, from anybody. `message["name"]` is a copy of a tensor; `keys(message)` are the names. checked: the checksum has to be
right. Do not resize the bytes while the message is in use. Any thread.
"""
function Message(bytes::MessageBytes; checked = true)
    flags = checked ? UInt32(0) : UInt32(OTR_MESSAGE_UNCHECKED)
    GC.@preserve bytes Message(out(made -> otr_message_unpack(bytes, length(bytes), flags, made), Ptr{otr_message}), bytes)
end

"""
micro_batch, tensor_count, attribute_count and bytes of a message.
"""
function info(message::Message)
    filled = sized(otr_message_info)
    check(otr_message_get_info(message, filled))
    return filled[]
end

text_at(call, count) = String[unsafe_string(out(name -> call(index - 1, name), Cstring)) for index in 1:count]

Base.keys(message::Message) = text_at((index, name) -> otr_message_tensor_name(message, index, name), info(message).tensor_count)
Base.length(message::Message) = Int(info(message).tensor_count)
Base.getindex(message::Message, name::AbstractString) =
    GC.@preserve message copy(wrap(out(part -> otr_message_get_tensor(message, name, part), otr_tensor), message.loan))

"""
Texts of the sender's, by name.
"""
function attributes(message::Message)
    names = text_at((index, name) -> otr_message_attribute_name(message, index, name), info(message).attribute_count)
    return Dict(name => unsafe_string(out(text -> otr_message_get_attribute(message, name, text), Cstring)) for name in names)
end

"""
What was applied to gradients, for `backward` of the engine that made what they are of; nothing: the message says nothing.
"""
function tag(message::Message)
    carried = sized(otr_call_info)
    check(otr_message_get_tag(message, carried))
    return carried[].loss_scale == 0 ? nothing : carried[]
end

"""
    routes(source_rows, target_rows)

Who sends which rows between two groups of any widths, from the rows of each rank: source, target, source_row, target_row (all from 0), rows.
"""
function routes(source_rows, target_rows)
    from, to = collect(Int64, source_rows), collect(Int64, target_rows)
    found = Vector{otr_message_route}(undef, length(from) + length(to))
    count = Ref{Int64}(length(found))
    check(otr_message_routes(from, length(from), to, length(to), found, count))
    return resize!(found, count[])
end
