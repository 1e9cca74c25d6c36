# SPDX-License-Identifier: Apache-2.0
#     julia --project=julia julia/test/runtests.jl LAYOUT_PROGRAM
# LAYOUT_PROGRAM is built from tests/bindings/layout and prints what a C compiler sees in outrigger.h.
using Outrigger, Logging, Test

include("support.jl")

@testset "Outrigger" begin
    include("declarations.jl")
    include("bfloat16.jl")
    include("handles.jl")
    include("checkpoints.jl")
    include("messages.jl")
    include("wrong_use.jl")
    include("nested.jl")
    include("extensions.jl")
    include("pages.jl")
    include("build.jl")
    include("threads.jl")
end
