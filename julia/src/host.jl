# SPDX-License-Identifier: Apache-2.0
# What the library asks of its host while it works: lines for the log, and whether a wait shall end.

# ---- Log ----
#
# The library may log on a thread of its own, where Julia before 1.9 cannot run. So its callback does no more than write a line into a pipe, which is
# a call of C: no allocation, no collection. Julia reads the pipe when its tasks run, after a call that failed, and after commit!.

const LEVELS = (Logging.Error, Logging.Warn, Logging.Info, Logging.Debug)  # OTR_LOG_ERROR is 1, and so on
const LOG = (pipe = Cint[-1, -1], callback = Ref{Ptr{Cvoid}}(C_NULL), unfinished = UInt8[], lock = ReentrantLock())
const LINE_FORMAT = b"%zd%s\n\0"

log_line(level::Int32, text::Ptr{UInt8}, format::Ptr{UInt8})::Cvoid =
    (ccall(:dprintf, Cint, (Cint, Ptr{UInt8}, Ptr{UInt8}...), unsafe_load(LOG_DESCRIPTOR[]), format, Ptr{UInt8}(level % UInt), text); nothing)
