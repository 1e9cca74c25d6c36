# SPDX-License-Identifier: Apache-2.0

@testset "other threads, Ctrl-C and the collector in the middle" begin
    # Compiled: the collector meets the code that users have, and the log has its callback.
    ended, output = output_of([joinpath(@__DIR__, "processes", "threads.jl"), get(ENV, "OUTRIGGER_STRESS_SECONDS", "1")]; threads = 2, options = `--compile=yes -O0`)
    ended && endswith(output, "done\n") || print(output)
    @test ended && endswith(output, "done\n")
end
