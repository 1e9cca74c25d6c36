# SPDX-License-Identifier: Apache-2.0

const KINDS = Dict(Int32 => "i32", UInt32 => "u32", Int64 => "i64", UInt64 => "u64", Float64 => "f64",
                   Cvoid => "void", Cstring => "p")
kind(type) = type <: Ptr ? "p" : KINDS[type]

"""name => "i32 p -> i32" for each ccall below an expression."""
function signatures(node, found = Dict{String, String}())
    node isa Expr || return found
    if node.head == :call && node.args[1] == :ccall
        name = string(node.args[2].args[1].value)
        types = Core.eval(Outrigger, node.args[4])
        result = Core.eval(Outrigger, node.args[3])
        found[name] = join([map(kind, types)..., "->", kind(result)], " ")
    end
    foreach(argument -> signatures(argument, found), node.args)
    found
end

@testset "declarations agree with the header" begin
    source = read(joinpath(dirname(pathof(Outrigger)), "liboutrigger.jl"), String)
    declared = signatures(Meta.parse("begin\n$source\nend"))
    seen = 0
    for line in eachline(`$(ARGS[1])`)
        words = split(line)
        what, name, rest = words[1], words[2], words[3:end]
        if what == "signature"
            @test (name, pop!(declared, name, "none")) == (name, join(rest, " "))
        else
            value = getfield(Outrigger, Symbol(name))
            if what == "constant"
                @test (name, value) == (name, parse(Int64, rest[1]))
            elseif what == "size"
                @test (name, sizeof(value)) == (name, parse(Int, rest[1]))
            else
                field = findfirst(==(Symbol(rest[1])), fieldnames(value))
                @test (name, rest[1], fieldoffset(value, field)) == (name, rest[1], parse(Int, rest[2]))
            end
        end
        seen += 1
    end
    @test isempty(declared)
    @test seen > 150
    @test Outrigger.otr_abi_version() == Outrigger.OTR_ABI_VERSION
end
