# SPDX-License-Identifier: Apache-2.0
# The JSON that the library writes, as dictionaries with text keys, vectors, texts, numbers, Bool and nothing; and the JSON that it reads.

json(value) = sprint(write_json, value)

write_json(io, value::Union{NamedTuple, AbstractDict}) = write_items(io, '{', '}', pairs(value)) do (key, item)
    write_json(io, string(key))
    print(io, ": ")
    write_json(io, item)
end
write_json(io, value::Union{AbstractVector, Tuple}) = write_items(item -> write_json(io, item), io, '[', ']', value)
write_json(io, value::Union{Bool, Integer}) = print(io, value)
write_json(io, value::Real) = isfinite(value) ? print(io, Float64(value)) : throw(ArgumentError("JSON has no $value"))
write_json(io, ::Nothing) = print(io, "null")
write_json(io, value::Symbol) = write_json(io, string(value))
write_json(io, value) = throw(ArgumentError("a configuration has texts, numbers, Bool, vectors and named tuples; this is a $(typeof(value))"))
function write_json(io, value::AbstractString)
    print(io, '"')
    for letter in value
        letter in ('"', '\\') ? print(io, '\\', letter) : iscntrl(letter) ? print(io, "\\u", string(UInt16(letter); base = 16, pad = 4)) : print(io, letter)
    end
    print(io, '"')
end

function write_items(write_item, io, open, close, items)
    print(io, open)
    for (index, item) in enumerate(items)
        index == 1 || print(io, ", ")
        write_item(item)
    end
    print(io, close)
end

mutable struct JSONText
    text::String
    at::Int
end

parse_json(text::AbstractString) = (source = JSONText(String(text), 1); value = json_value(source);
                                    skip_space(source); source.at > ncodeunits(source.text) ? value : json_error(source))

json_error(source) = throw(ArgumentError("no JSON at byte $(source.at)"))
peek_byte(source) = source.at <= ncodeunits(source.text) ? codeunit(source.text, source.at) : json_error(source)
function skip_space(source)
    while source.at <= ncodeunits(source.text) && codeunit(source.text, source.at) in (0x20, 0x09, 0x0a, 0x0d)
        source.at += 1
    end
end
function expect(source, word)
    startswith(SubString(source.text, source.at), word) || json_error(source)
    source.at += ncodeunits(word)
end

function json_value(source)
    skip_space(source)
    byte = peek_byte(source)
    byte == UInt8('{') && return json_object(source)
    byte == UInt8('[') && return json_list(source)
    byte == UInt8('"') && return json_text(source)
    for (word, value) in (("true", true), ("false", false), ("null", nothing))
        byte == UInt8(word[1]) && (expect(source, word); return value)
    end
    number = match(r"\G-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?", source.text, source.at)
    number === nothing && json_error(source)
    source.at += ncodeunits(number.match)
    number[1] === nothing && number[2] === nothing ? parse(Int, number.match) : parse(Float64, number.match)
end

# What is between the brackets, one at a time.
function json_items(item, source, close)
    source.at += 1
    skip_space(source)
    peek_byte(source) == UInt8(close) && (source.at += 1; return)
    while true
        item()
        skip_space(source)
        byte = peek_byte(source)
        source.at += 1
        byte == UInt8(close) && return
        byte == UInt8(',') || json_error(source)
    end
end

function json_list(source)
    list = Any[]
    json_items(() -> push!(list, json_value(source)), source, ']')
    list
end

function json_object(source)
    object = Dict{String, Any}()
    json_items(source, '}') do
        skip_space(source)
        key = json_text(source)
        skip_space(source)
        expect(source, ":")
        object[key] = json_value(source)
    end
    object
end

const JSON_ESCAPES = Dict('"' => '"', '\\' => '\\', '/' => '/', 'b' => '\b', 'f' => '\f', 'n' => '\n', 'r' => '\r', 't' => '\t')

function json_text(source)
    peek_byte(source) == UInt8('"') || json_error(source)
    source.at += 1
    out = IOBuffer()
    while true
        byte = peek_byte(source)
        source.at += 1
        byte == UInt8('"') && return String(take!(out))
        byte == UInt8('\\') || (write(out, byte); continue)
        letter = Char(peek_byte(source))
        source.at += 1
        letter == 'u' ? print(out, json_character(source)) : haskey(JSON_ESCAPES, letter) ? print(out, JSON_ESCAPES[letter]) : json_error(source)
    end
end

function json_unit(source)
    source.at + 3 <= ncodeunits(source.text) || json_error(source)
    unit = tryparse(UInt32, String(codeunits(source.text)[source.at:source.at+3]); base = 16)
    unit === nothing && json_error(source)
    source.at += 4
    unit
end

# A character beyond 16 bits is written as two units.
function json_character(source)
    unit = json_unit(source)
    0xd800 <= unit < 0xdc00 || return Char(unit)
    expect(source, "\\u")
    Char(0x10000 + ((unit - 0xd800) << 10) + (json_unit(source) - 0xdc00))
end
