# SPDX-License-Identifier: Apache-2.0
# The library's log lines, as those of Julia's Logging.
#
# A line may come on a thread of the library, where Julia before 1.9 cannot run, and from within a call, where a collection may be under way. So the
# callback does no more than write the line into a pipe, by one call of C. Julia reads the pipe when its tasks run, in commit!, and when a call has failed.

const LEVELS = (Logging.Error, Logging.Warn, Logging.Info, Logging.Debug)  # OTR_LOG_ERROR is 1, and so on

# What the callback gets: the pipe's end and, 8 bytes on, the format of a line.
const LINE_FORMAT = b"%zd%s\n\0"

mutable struct Log
    reads::Cint
    sink::Ptr{UInt8}
    callback::Ptr{Cvoid}
    unfinished::Vector{UInt8}
    lock::ReentrantLock
end
const LOG = Log(-1, C_NULL, C_NULL, UInt8[], ReentrantLock())

function log_line(level::Int32, text::Ptr{UInt8}, sink::Ptr{UInt8})
    ccall(:dprintf, Cint, (Cint, Ptr{UInt8}, Ptr{UInt8}...), unsafe_load(Ptr{Cint}(sink)), sink + 8, Ptr{UInt8}(level % UInt), text)
    return nothing
end

# What is not compiled may allocate, which log_line must not.
compiles() = Base.JLOptions().compile_enabled in (1, 2)

# A context's options for lines of this level and those above it.
function log_options(level::Logging.LogLevel)
    compiles() || return (;)
    lock(open_log, LOG.lock)
    LOG.callback == C_NULL && return (;)
    least = count(each -> each >= level, LEVELS)
    least == 0 && return (;)
    return (log_level = Int32(least), log_callback = LOG.callback, log_user_data = Ptr{Cvoid}(LOG.sink))
end

const O_NONBLOCK = Sys.islinux() ? 0o4000 : 0x0004

function open_log()
    LOG.callback == C_NULL || return
    ends = Cint[-1, -1]
    ccall(:pipe, Cint, (Ptr{Cint},), ends) == 0 || return
    for each in ends
        ccall(:fcntl, Cint, (Cint, Cint, Cint...), each, 4, O_NONBLOCK)  # F_SETFL: a full pipe loses lines, and nobody waits
        ccall(:fcntl, Cint, (Cint, Cint, Cint...), each, 2, 1)           # F_SETFD, FD_CLOEXEC
    end
    sink = Ptr{UInt8}(Libc.malloc(8 + length(LINE_FORMAT)))
    unsafe_store!(Ptr{Cint}(sink), ends[2])
    unsafe_copyto!(sink + 8, pointer(LINE_FORMAT), length(LINE_FORMAT))
    LOG.reads, LOG.sink = ends[1], sink
    watcher = FileWatching.FDWatcher(RawFD(ends[1]), true, false)
    @async while true
        wait(watcher)
        Logging.with_logger(deliver_log, Logging.global_logger())  # not that of whoever made the first context
    end
    atexit(deliver_log)
    LOG.callback = @cfunction(log_line, Cvoid, (Int32, Ptr{UInt8}, Ptr{UInt8}))
    return
end

"Gives the lines that have come to the current logger, in the group `:outrigger`."
function deliver_log()
    LOG.reads < 0 && return
    lines = lock(LOG.lock) do
        chunk = Vector{UInt8}(undef, 4096)
        while (count = ccall(:read, Cssize_t, (Cint, Ptr{UInt8}, Csize_t), LOG.reads, chunk, length(chunk))) > 0
            append!(LOG.unfinished, view(chunk, 1:count))
        end
        last = findlast(==(UInt8('\n')), LOG.unfinished)
        last === nothing ? SubString{String}[] : split(String(splice!(LOG.unfinished, 1:last)), '\n'; keepempty = false)
    end
    for line in lines
        level = LEVELS[clamp(Int(line[1]) - Int('0'), 1, length(LEVELS))]
        Logging.@logmsg level SubString(line, 2) _group = :outrigger
    end
end
