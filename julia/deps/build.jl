# SPDX-License-Identifier: Apache-2.0
# Pkg.build("Outrigger"): the library from the clone that this package lies in, by CMake; no artifact is fetched. Where OUTRIGGER_LIB_DIR names one, nothing is done.

const ROOT, BUILD = abspath(joinpath(@__DIR__, "..", "..")), joinpath(@__DIR__, "build")

if haskey(ENV, "OUTRIGGER_LIB_DIR")
    @info "OUTRIGGER_LIB_DIR names the library; nothing is built" ENV["OUTRIGGER_LIB_DIR"]
elseif !isfile(joinpath(ROOT, "c_api", "include", "outrigger.h"))
    error("the library's sources are not beside the package: clone the repository whole, or set OUTRIGGER_LIB_DIR")
else
    run(`cmake -S $ROOT -B $BUILD -DCMAKE_BUILD_TYPE=Release -DOTR_TESTS=OFF -DOTR_EXAMPLES=OFF`)
    run(`cmake --build $BUILD --parallel $(Sys.CPU_THREADS) --target outrigger`)
end
