# SPDX-License-Identifier: Apache-2.0

# A call marked @gcsafe must not hold up another thread's collection: the first thread waits in C while the second
# collects and then releases it.
const GCSAFE_SCRIPT = """
using Outrigger: @call
pipe = zeros(Cint, 2)
ccall(:pipe, Cint, (Ptr{Cint},), pipe) == 0 || error("no pipe")
byte = UInt8[0]
wait_in_c(fd) = @call waits ccall((:read, "libc.so.6"), Cssize_t, (Cint, Ptr{UInt8}, Csize_t), fd, byte, 1)
function other(fd)
    sleep_until = time() + 0.5
    while time() < sleep_until end
    GC.gc()
    ccall(:write, Cssize_t, (Cint, Ptr{UInt8}, Csize_t), fd, UInt8[7], 1)
end
Threads.@threads for i in 1:2
    i == 1 ? wait_in_c(pipe[1]) : other(pipe[2])
end
byte[1] == 7 || error("nothing was read")
"""

@testset "a waiting call lets other threads collect" begin
    command = `$(Base.julia_cmd()) --startup-file=no --project=$(Base.active_project()) -e $GCSAFE_SCRIPT`
    child = run(pipeline(setenv(command, merge(Dict(ENV), Dict("JULIA_NUM_THREADS" => "2")))); wait = false)
    timer = Timer(_ -> kill(child), 60)
    wait(child)
    close(timer)
    @test success(child)
end
