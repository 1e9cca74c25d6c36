# SPDX-License-Identifier: Apache-2.0
# The code on the pages runs, without Documenter; and what the module exports has a docstring.

"The blocks of a page that Documenter runs, by their names."
function examples(page)
    found = Pair{String, String}[]
    for block in eachmatch(r"^```@example (\w+)\n(.*?)^```$"ms, read(page, String))
        push!(found, block[1] => block[2])
    end
    return found
end

@testset "the pages' examples run" begin
    folder = joinpath(@__DIR__, "..", "docs", "src")
    count = 0
    for page in readdir(folder)
        modules = Dict{String, Module}()
        for (name, code) in examples(joinpath(folder, page))
            count += 1
            @test (include_string(get!(() -> Module(Symbol(name)), modules, name), code, page); true)
        end
    end
    @test count == 10
end

@testset "what is exported is described" begin
    described = Base.Docs.meta(Outrigger)
    for name in names(Outrigger)
        @test (name, haskey(described, Base.Docs.Binding(parentmodule(getfield(Outrigger, name)) === Base ? Base : Outrigger, name)) || name === :Outrigger) == (name, true)
    end
end
