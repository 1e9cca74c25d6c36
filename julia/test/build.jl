# SPDX-License-Identifier: Apache-2.0
# Where the library comes from. CMake is a script here that notes how it is called.

@testset "a library that is not there" begin
    withenv("OUTRIGGER_LIB_DIR" => "nowhere") do
        @test_throws ErrorException Outrigger.__init__()
    end
end

@testset "Pkg.build makes the library from the clone" begin
    mktempdir() do clone
        package = joinpath(@__DIR__, "..")
        for part in ("src", "deps")
            mkpath(joinpath(clone, "julia", part))
            for file in filter(isfile, readdir(joinpath(package, part); join = true))
                cp(file, joinpath(clone, "julia", part, basename(file)))
            end
        end
        write(joinpath(clone, "cmake"), "#!/bin/sh\necho \"\$@\" >> $clone/called\n")
        chmod(joinpath(clone, "cmake"), 0o755)
        build = joinpath(clone, "julia", "deps", "build.jl")
        in_clone(call; library = nothing) = withenv(call, "OUTRIGGER_LIB_DIR" => library, "PATH" => "$clone:$(ENV["PATH"])")
        @test_throws LoadError in_clone(() -> Base.include(Module(), build))  # no sources
        mkpath(joinpath(clone, "c_api", "include"))
        touch(joinpath(clone, "c_api", "include", "outrigger.h"))
        @test_logs (:info,) in_clone(() -> Base.include(Module(), build); library = "somewhere")
        @test !isfile(joinpath(clone, "called"))
        in_clone(() -> Base.include(Module(), build))
        called = readlines(joinpath(clone, "called"))
        @test length(called) == 2 && startswith(called[1], "-S $clone") && endswith(called[2], "--target outrigger")
        mkpath(joinpath(clone, "julia", "deps", "build"))
        built = joinpath(clone, "julia", "deps", "build", Outrigger.liboutrigger)
        symlink(realpath(Outrigger.library_path()), built)
        found = in_clone(() -> Base.include(Module(), joinpath(clone, "julia", "src", "Outrigger.jl")))
        @test in_clone(() -> Base.invokelatest(found.library_path)) == built
    end
end
