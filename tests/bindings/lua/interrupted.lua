-- SPDX-License-Identifier: Apache-2.0
-- Ctrl-C ends a wait for another rank, which never comes. It is sent from outside after a second, to the main thread's hook: a coroutine waits.
local outrigger = require "outrigger"

local begun = os.time()
local context = outrigger.context(1)
local waits = coroutine.wrap(function()
  outrigger.comm_from_env(context, { timeout = 60 })
end)
local succeeded, failure = pcall(function()
  pcall(waits)
  local _ = 1 -- lua's own error comes at the next instruction
end)
assert(not succeeded and tostring(failure):find("interrupted", 1, true), tostring(failure))
assert(os.time() - begun < 30, "it waited on")
