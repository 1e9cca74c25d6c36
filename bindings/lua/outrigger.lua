-- SPDX-License-Identifier: Apache-2.0
-- Outrigger for Lua 5.4: objects over SWIG's functions in outrigger.lowlevel (docs/lua.md).
--
-- A call that fails raises an error object {code, name, text}, which tostring shows; wrong types are errors with a text. Every object has
-- close(), which acts once, and can be a local of <close>. Positions in lists and tensors count from 1; ids and ranks are the library's,
-- from 0. One Lua state uses an object.
local Error = debug.getregistry()["outrigger.Error"] or {}
debug.getregistry()["outrigger.Error"] = Error -- luaL_setmetatable finds it there
Error.__index = Error
Error.__name = "outrigger.Error"
Error.__tostring = function(self)
  return self.name .. ": " .. self.text
end

local lowlevel = require "outrigger.lowlevel"
local tensors = require "outrigger.tensors"
local tensor_of, handle_of, list_of = tensors.of, tensors.handle, tensors.list
if lowlevel.abi_version() ~= lowlevel.ABI_VERSION then
  error(("liboutrigger has the ABI %d, and this module was built for %d"):format(lowlevel.abi_version(), lowlevel.ABI_VERSION))
end

local outrigger = { lowlevel = lowlevel, Error = Error, version = lowlevel.version, tensor = tensors.new, scalar = tensors.scalar }
-- The header's constants of these kinds by their names: outrigger.value.MASTER.
for _, kind in ipairs { "VALUE", "STEP", "SKIP", "BOUNDARY", "LOG" } do
  local named = {}
  for name, number in pairs(lowlevel) do
    named[name:match("^" .. kind .. "_(.+)$") or 1] = number
  end
  named[1] = nil
  outrigger[kind:lower()] = named
end

-- A class of objects with a handle; what its instances call on it goes through `made`, which refuses a closed one.
local function class(name)
  local methods = {}
  local meta = { __index = methods, __name = "outrigger." .. name }
  function methods:made()
    return rawget(self, "handle") or error("this " .. name .. " is closed", 3)
  end
  function methods:is_closed()
    return rawget(self, "handle") == nil
  end
  -- Gives the handle back. Local. Doing it again is a no-op.
  function methods:close()
    local handle = rawget(self, "handle")
    if handle then
      self.handle = nil
      lowlevel.give_back(handle)
    end
  end
  meta.__close = function(self)
    self:close()
  end
  return methods, function(handle, more)
    local made = setmetatable(more or {}, meta)
    made.handle = handle
    return made
  end
end

-- Forwards methods to functions of lowlevel that take the handle and the same arguments.
local function forward(methods, prefix, names)
  for _, name in ipairs(names) do
    local call = lowlevel[prefix .. name]
    methods[name] = function(self, ...)
      return call(self:made(), ...)
    end
  end
end

-- ---- Reports and tags ----
local REPORT = { "outcome", "reason", "nonfinite_rank", "nonfinite_param", "nonfinite_count", "micro_steps", "applied_steps", "skipped_steps",
  "grad_norm", "clip_coefficient", "loss_scale", "lr", "updates", "vanished" }

-- A table with the fields of otr_step_report.
local function report_of(made)
  local report = {}
  for _, name in ipairs(REPORT) do
    report[name] = made[name]
  end
  return report
end

-- An option object with some fields set; nil for none.
local function options_of(made, values)
  if not values then
    return nil
  end
  local options = made()
  for name, value in pairs(values) do
    if options[name] == nil then
      error("there is no option " .. tostring(name), 3)
    end
    options[name] = value
  end
  return options
end

-- ---- Context, groups ----
local Context, new_context = class "Context"

-- workers: threads for each engine's updates; nil: this process's share of the cores. log_level: lines up to it wait for log_lines,
-- outrigger.log.INFO for example; nil: none.
function outrigger.context(workers, log_level)
  local options = options_of(lowlevel.ContextOptions, { workers = workers or 0 })
  if log_level then
    options:keep_log(log_level)
  end
  return new_context(lowlevel.context_create(options))
end

-- The lines that wait, of all contexts, as a list of {level, text}: each once.
function outrigger.log_lines()
  local lines, line = {}, lowlevel.log_take()
  while line do
    lines[#lines + 1] = { level = line:level(), text = line:text() }
    line = lowlevel.log_take()
  end
  return lines
end

local Comm, new_comm = class "Comm"

-- A group of one. Local.
function outrigger.comm_alone(context)
  return new_comm(lowlevel.comm_create_self(context:made()))
end

-- The processes of the launcher; without one, a group of one. options: {timeout = seconds}. Collective. E_CONFIG.
function outrigger.comm_from_env(context, options)
  return new_comm(lowlevel.comm_from_env(context:made(), options_of(lowlevel.CommOptions, options)))
end

forward(Comm, "comm_", { "rank", "size", "barrier", "abort" })

-- The ranks that give the same color, ordered by key and then by rank; nil with color -1. Collective.
function Comm:split(color, key)
  local made = lowlevel.comm_split(self:made(), color, key or 0)
  return made and new_comm(made)
end

-- Copies rank root's elements to all. Collective.
function Comm:broadcast(tensor, root)
  lowlevel.comm_broadcast(self:made(), handle_of(tensor), root or 0)
end

-- `all` receives every rank's elements in rank order. Collective. E_SHAPE: it has not size() times the bytes.
function Comm:all_gather(mine, all)
  lowlevel.comm_all_gather(self:made(), handle_of(mine), handle_of(all))
end

-- The sums over the ranks of a list of numbers, as a new list. Collective.
function Comm:all_reduce_sum(numbers)
  local values = outrigger.tensor("float64", { #numbers }, numbers)
  lowlevel.comm_all_reduce_sum(self:made(), values.handle)
  return values:numbers()
end

-- ---- Passes ----
local Pass, new_pass = class "Pass"

forward(Pass, "pass_", { "get_scale", "get_seed_overflow" })

-- The scaled gradient of an output, from 1 on: float32, writable, until the pass is closed.
function Pass:output_grad(index)
  local grad = tensor_of(lowlevel.pass_get_output_grad(self:made(), (index or 1) - 1), self)
  self.lent[#self.lent + 1] = grad
  return grad
end

-- {loss_scale, accumulation, ranks}: what its gradients carry, for begin_pass of the engine that made their inputs.
function Pass:tag()
  local info = lowlevel.CallInfo()
  lowlevel.pass_get_tag(self:made(), info)
  return { loss_scale = info.loss_scale, accumulation = info.accumulation, ranks = info.ranks }
end

-- out = grad without the factors that it carries. E_SHAPE, E_DTYPE.
function Pass:unscale(grad, out)
  lowlevel.pass_unscale(self:made(), handle_of(grad), handle_of(out))
  return out
end

-- Memory for a parameter's gradient: its shape, the compute dtype, uninitialised; add_grad hands it back and closes it. E_STATE.
function Pass:slot(id)
  local slot = tensor_of(lowlevel.pass_get_slot(self:made(), id), self)
  self.slots[id] = slot
  return slot
end

-- Adds a gradient: its slot, or any tensor of the parameter's shape and a float dtype, which is copied. E_STATE, E_SHAPE, E_DTYPE.
function Pass:add_grad(id, grad, tag)
  lowlevel.pass_add_grad(self:made(), id, handle_of(grad), options_of(lowlevel.CallInfo, tag))
  if self.slots[id] == grad then
    self.slots[id] = nil
    grad:close()
  end
end

local function close_all(tensors)
  for key, tensor in pairs(tensors) do
    tensor:close()
    tensors[key] = nil
  end
end

-- Parameters without a gradient count as zero on this rank. Local.
function Pass:end_pass()
  close_all(self.slots)
  lowlevel.pass_end(self:made())
end

local close_pass = Pass.close
-- A pass that was not ended is given up: the next step discards the window, unless nothing was added.
function Pass:close()
  close_all(self.slots)
  close_all(self.lent)
  close_pass(self)
end

-- ---- Engines ----
local Engine, new_engine = class "Engine"

-- config: DeepSpeed-compatible JSON; nil: float32, stage 0, AdamW. Local. E_CONFIG: path, line and remedy of the first fault.
function outrigger.engine(comm, config)
  return new_engine(lowlevel.engine_create(comm:made(), config), { acquired = {} })
end

forward(Engine, "engine_", { "commit", "check", "parameter_id", "parameter_name", "parameter_count", "step_begin", "discard", "config",
  "set_group_value", "get_group_value", "set_boundary", "get_loss_scale", "live_children", "get_progress", "set_progress" })

-- Declares a parameter and returns its id; the same ones in the same order on every rank. initial: a tensor, whose value is copied; a shape
-- (a list), whose value is 0 until set_initial; nil for an alias. options: {trainable, alias_of, group, contributions}. Local. E_DUPLICATE.
function Engine:add_parameter(name, initial, options)
  local given = options_of(lowlevel.ParamOptions, options)
  if initial == nil or tensors.is(initial) then
    return lowlevel.engine_add_parameter(self:made(), name, initial and initial.handle, given)
  end
  return lowlevel.engine_declare_parameter(self:made(), name, initial, given)
end

-- First values for ids, between commit and the first pass. Collective.
function Engine:set_initial(ids, values)
  lowlevel.engine_set_initial(self:made(), ids, list_of(values))
end

function Engine:parameter_shape(id)
  return tensors.extents(lowlevel.engine_parameter_shape(self:made(), id))
end

function Engine:prefetch(ids, float32)
  lowlevel.engine_prefetch(self:made(), ids, float32 and options_of(lowlevel.CallInfo, { flags = lowlevel.ACQUIRE_FLOAT32 }))
end

local Acquired, new_acquired = class "Acquired"

-- Weights as read-only tensors acquired[1], acquired[2], …: the compute dtype without a copy, or float32 copies. They are closed with the object
-- that is returned, or by the step that ends the window. Local where ranks share memory.
function Engine:acquire(ids, float32)
  local info = float32 and options_of(lowlevel.CallInfo, { flags = lowlevel.ACQUIRE_FLOAT32 }) or nil
  local made = lowlevel.engine_acquire(self:made(), ids, info)
  local acquired = new_acquired(made, { engine = self, ids = ids, info = info })
  for i = 1, #ids do
    acquired[i] = tensor_of(made:view(i - 1), self)
  end
  self.acquired[acquired] = true
  return acquired
end

local close_acquired = Acquired.close
-- Releases the weights. Local. Doing it again is a no-op.
function Acquired:close()
  if self:is_closed() then
    return
  end
  for _, tensor in ipairs(self) do
    tensor:close()
  end
  close_acquired(self)
  if self.engine.acquired[self] then
    self.engine.acquired[self] = nil
    lowlevel.engine_release(self.engine:made(), self.ids, self.info)
  end
end

-- What a step or the end of the engine takes back.
local function take_back(engine)
  for acquired in pairs(engine.acquired) do
    engine.acquired[acquired] = nil
    acquired:close()
  end
end

local function told(engine, made)
  local report = report_of(made)
  if report.outcome == lowlevel.STEP_APPLIED or report.outcome == lowlevel.STEP_SKIPPED then
    take_back(engine)
  end
  return report
end

-- Copies a value (outrigger.value) of the whole parameter into `out`, of its shape and any float dtype, or into a new float32 tensor, and
-- returns it. Collective. E_NOT_FOUND: the parameter has no such value.
function Engine:read(id, value, out)
  out = out or outrigger.tensor("float32", self:parameter_shape(id))
  lowlevel.engine_parameter_read(self:made(), id, value or lowlevel.VALUE_MASTER, handle_of(out))
  return out
end

-- Sets a value of the whole parameter from rank 0's tensor. Not between a pass and its step. Collective.
function Engine:write(id, value, source)
  lowlevel.engine_parameter_write(self:made(), id, value, handle_of(source))
end

-- The ledger: a list of {purpose, resident_bytes, peak_bytes}, "total" last. Local.
function Engine:memory()
  local made, entries = lowlevel.engine_memory(self:made()), {}
  for i = 0, made:size() - 1 do
    entries[i + 1] = { purpose = made:purpose(i), resident_bytes = made:resident_bytes(i), peak_bytes = made:peak_bytes(i) }
  end
  return entries
end

-- A pass over gradients of the outputs: a list of tensors of any shapes, which are copied and scaled; with tag, another pass's. Local.
function Engine:begin_pass(output_grads, tag)
  local made = lowlevel.pass_begin(self:made(), list_of(output_grads or {}), options_of(lowlevel.CallInfo, tag))
  return new_pass(made, { slots = {}, lent = {} })
end

-- One whole pass: backward(pass) adds the parameters' gradients. An error in it gives the pass up and goes on to the caller.
function Engine:backward(output_grads, backward, tag)
  local pass <close> = self:begin_pass(output_grads, tag)
  backward(pass)
  pass:end_pass()
end

-- Ends a micro-batch; the last one of a window updates. Returns a report; outcome: outrigger.step, reason: outrigger.skip. Collective.
function Engine:step()
  return told(self, lowlevel.engine_step(self:made()))
end

-- The report of the step that step_begin began; step.PENDING if it is not over within the seconds. nil: waits for the end.
function Engine:report(timeout)
  return told(self, lowlevel.engine_report(self:made(), timeout or -1))
end

-- The first half of a step: sums gradients; then value.GRAD can be read and written. Collective.
function Engine:reduce()
  return report_of(lowlevel.engine_reduce(self:made()))
end

-- Saves the training as directory/tag. Between two windows. Collective. E_DUPLICATE, E_IO, E_STATE.
function Engine:save(directory, tag)
  lowlevel.engine_save(self:made(), directory, tag, nil)
end

-- Goes on from a checkpoint; tag nil: the last one. Collective. E_NOT_FOUND, E_CORRUPT, E_SHAPE.
function Engine:load(directory, tag)
  lowlevel.engine_load(self:made(), directory, tag, nil)
end

-- Tells all ranks that this engine cannot go on. Local.
function Engine:abort(reason)
  lowlevel.engine_abort(self:made(), reason)
end

-- Waits for the background work of all ranks and ends the engine's collectives. Collective.
function Engine:finalize()
  take_back(self)
  lowlevel.engine_finalize(self:made())
end

local close_engine = Engine.close
function Engine:close()
  if not self:is_closed() then
    take_back(self)
  end
  close_engine(self)
end

-- One step of several engines, all or none; joint: nil, or a group of the ranks of all. Returns a list of reports. Collective over all.
function outrigger.step_many(engines, joint)
  local list = lowlevel.Engines()
  for _, engine in ipairs(engines) do
    list:add(engine:made())
  end
  local made, reports = lowlevel.step_many(list, joint and joint:made()), {}
  for i, engine in ipairs(engines) do
    reports[i] = told(engine, made:copy(i - 1))
  end
  return reports
end

-- ---- Shards, without an engine ----
local Shard, new_shard = class "Shard"

-- A flat piece of parameters and gradients, 1-D tensors of one count; published: of 16 bits, receives the updated float32 weights. The shard keeps
-- them; they are not to be closed before it. Local.
function outrigger.shard(context, weights, grads, published)
  local options = lowlevel.ShardOptions()
  if published then
    options:set_published(handle_of(published))
  end
  local made = lowlevel.shard_wrap(context:made(), handle_of(weights), handle_of(grads), options)
  return new_shard(made, { kept = { weights, grads, published }, lent = {} })
end

forward(Shard, "shard_", { "state_bytes" })

-- A 1-D view of value.EXP_AVG or EXP_AVG_SQ, as stored, until the shard is closed. E_NOT_FOUND before the first step.
function Shard:state(value)
  local state = tensor_of(lowlevel.shard_state(self:made(), value), self)
  self.lent[#self.lent + 1] = state
  return state
end

local close_shard = Shard.close
function Shard:close()
  close_all(self.lent)
  close_shard(self)
end

require "outrigger.messages"(outrigger, class, options_of)

local Optimizer, new_optimizer = class "Optimizer"

-- json: {"type": "AdamW", "params": {"lr": …}, …}. Local. E_CONFIG.
function outrigger.optimizer(context, json)
  return new_optimizer(lowlevel.optimizer_create(context:made(), json))
end

forward(Optimizer, "optimizer_", { "set_value" })

-- One update of a list of shards; a skip changes nothing.
function Optimizer:step(shards)
  local list = lowlevel.Shards()
  for _, shard in ipairs(shards) do
    list:add(shard:made())
  end
  return report_of(lowlevel.optimizer_step(self:made(), list))
end

return outrigger
