-- SPDX-License-Identifier: Apache-2.0
-- The scenario (tests/bindings/scenario/README.md) in Lua:   lua5.4 scenario.lua CONFIG.json OUTPUT      writes OUTPUT.<rank>
local outrigger = require "outrigger"

local EMBED, BIAS, EMPTY, FROZEN, HEAD, SCALE, WIDE = 0, 1, 2, 3, 4, 5, 6
local PARAMETERS = { { "embed.weight", { 5, 3 } }, { "linear.bias", { 7 } }, { "norm.empty", { 0, 4 } }, { "frozen.table", { 2, 3 } },
  { "head.weight", { 5, 3 } }, { "scale", {} }, { "wide.weight", { 3, 101 } }, { "unused.gain", { 4 } } }
local OPTIONS = { [BIAS] = { contributions = 2 }, [FROZEN] = { trainable = 0 }, [HEAD] = { alias_of = EMBED } }
local value, skip = outrigger.value, outrigger.skip

-- ---- Numbers as their exact bit patterns ----
local out
local function line(...)
  out:write(table.concat({ ... }, " "), "\n")
end

local function bits(number)
  return ("%016x"):format(string.unpack("<i8", string.pack("<d", number)))
end

local function shape(extents)
  return "[" .. table.concat(extents, ",") .. "]"
end

local function show(words, tensor)
  local form, all = (tensor.dtype == "bfloat16" or tensor.dtype == "float16") and "%04x" or "%08x", { words, shape(tensor:shape()) }
  for i = 1, #tensor do
    all[#all + 1] = form:format(tensor:bits(i))
  end
  line(table.unpack(all))
end

local function show_report(words, report)
  local all = { words }
  for _, name in ipairs { "outcome", "reason", "nonfinite_rank", "nonfinite_param", "nonfinite_count", "micro_steps", "applied_steps",
    "skipped_steps", "grad_norm", "clip_coefficient", "loss_scale", "lr", "updates", "vanished" } do
    local number = report[name]
    all[#all + 1] = name .. " " .. (math.type(number) == "integer" and number or bits(number))
  end
  line(table.unpack(all))
end

-- A tensor whose elements are f(0), f(1), …
local function made(dtype, extents, f)
  local tensor = outrigger.tensor(dtype, extents)
  for i = 1, #tensor do
    tensor:set(i, f(i - 1))
  end
  return tensor
end

local function collectives(comm, rank, world)
  local sums = comm:all_reduce_sum { rank + 0.5, 2 }
  line("all_reduce", bits(sums[1]), bits(sums[2]))
  local all = outrigger.tensor("uint8", { world })
  comm:all_gather(outrigger.tensor("uint8", { 1 }, { 10 + rank }), all)
  local gathered = { "all_gather" }
  for r = 1, world do
    gathered[r + 1] = all:bits(r)
  end
  line(table.unpack(gathered))
  local token = outrigger.scalar(rank == world - 1 and 1 or 0)
  comm:broadcast(token, world - 1)
  comm:barrier()
  line("broadcast", ("%08x"):format(token:bits(1)))
end

local function add_parameters(engine, rank)
  for d, parameter in ipairs(PARAMETERS) do
    d = d - 1
    local initial = made("float32", parameter[2], function(i)
      return ((7 * i + 3 * d) % 33 - 16) / 16 + rank
    end)
    local id = engine:add_parameter(parameter[1], d ~= HEAD and initial or nil, OPTIONS[d])
    line("parameter", id, parameter[1], shape(engine:parameter_shape(id)))
  end
end

local function print_acquired(engine, float32)
  engine:prefetch({ EMBED, WIDE }, float32)
  local weights <close> = engine:acquire({ EMBED, WIDE }, float32)
  show("acquired " .. EMBED, weights[1])
  show("acquired " .. WIDE, weights[2])
end

local function add_by_slot(pass, id, gradient)
  pass:add_grad(id, pass:slot(id):put(gradient))
end

local function add_by_tensor(pass, id, gradient)
  pass:add_grad(id, outrigger.tensor("float32", PARAMETERS[id + 1][2], gradient))
end

-- The toy model's backward: parameter gradients from the scaled gradients of the outputs.
local function backward(pass, number, rank, world)
  local dy0, dy1, dl = pass:output_grad(1):numbers(), pass:output_grad(2):numbers(), pass:output_grad(3):get(1)
  local embed, head, wide, scale = {}, {}, {}, dl
  for k = 0, 4 do
    for j = 1, 3 do
      local sum = 0.0
      for i = 0, 3 do
        sum = sum + ((i + 2 * k) % 5 - 2) / 2 * dy0[3 * i + j]
      end
      embed[3 * k + j], head[3 * k + j] = sum, dl * dy0[3 * (k % 4) + j]
    end
  end
  add_by_slot(pass, EMBED, embed)
  add_by_tensor(pass, HEAD, head)
  if rank == 0 or number % 2 == 0 then
    add_by_slot(pass, BIAS, table.move(dy1, 1, 7, 1, {}))
    add_by_tensor(pass, BIAS, table.move(dy1, 8, 14, 1, {}))
  end
  if number % 2 == 0 then
    add_by_tensor(pass, EMPTY, {})
  end
  for _, each in ipairs(dy0) do
    scale = scale + each
  end
  add_by_tensor(pass, SCALE, { scale })
  for j = 0, 2 do
    for c = 0, 100 do
      wide[101 * j + c + 1] = dl * dy0[3 * (c % 4) + j + 1]
    end
  end
  if number == 3 and rank == world - 1 then
    wide[101 + 8] = math.huge
  end
  (number % 2 == 0 and add_by_slot or add_by_tensor)(pass, WIDE, wide)
end

local function run_pass(engine, number, rank, world)
  local outputs = {
    made("float32", { 4, 3 }, function(i)
      return ((i + rank + number) % 8 - 3) / 4
    end),
    made("float64", { 2, 7 }, function(i)
      return ((3 * i + 2 * rank + number) % 8 - 4) / 4
    end),
    outrigger.scalar(1),
  }
  engine:backward(outputs, function(pass)
    line("pass", number, "scale", bits(pass:get_scale()))
    for i = 1, 3 do
      show(("pass %d output %d"):format(number, i - 1), pass:output_grad(i))
    end
    backward(pass, number, rank, world)
  end)
  local report
  if number % 2 == 0 then
    report = engine:step()
  else
    engine:step_begin()
    report = engine:report()
  end
  show_report("step " .. number, report)
  if report.reason == skip.NONFINITE then
    line("skipped for", engine:parameter_name(report.nonfinite_param), "of rank", report.nonfinite_rank)
  end
end

local function attempt(call, ...)
  local succeeded, failure = pcall(call, ...)
  line(succeeded and "no error" or ("error %s %s"):format(failure.name, failure.text))
end

local function wrong_calls(engine)
  local tensor = outrigger.tensor("float32", { 5, 3 })
  attempt(engine.parameter_id, engine, "embed.wieght")
  attempt(engine.add_parameter, engine, "late", tensor)
  attempt(engine.set_group_value, engine, nil, "lr", -1)
  local pass <close> = engine:begin_pass() -- nothing is added: no trace
  attempt(pass.add_grad, pass, WIDE, tensor)
end

local function print_values(engine)
  for d, parameter in ipairs(PARAMETERS) do
    for number, name in ipairs { "master", "published", "exp_avg", "exp_avg_sq" } do
      local words = ("value %d %s"):format(d - 1, name)
      local succeeded, tensor = pcall(engine.read, engine, d - 1, number - 1)
      if succeeded then
        show(words, tensor)
      elseif tensor.name == "OTR_E_NOT_FOUND" then
        line(words, "none")
      else
        error(tensor)
      end
    end
  end
end

-- ---- Two engines in a chain: h = front(x), y = back(h) ----
local CHAIN = [[{"torch_autocast": {"enabled": true, "dtype": "fp16"}, "fp16": {"loss_scale": %d}, "gradient_clipping": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": %f}}, "zero_optimization": {"stage": %d}}]]

local function make_engine(comm, name, config)
  local engine = outrigger.engine(comm, config)
  local id = engine:add_parameter(name, { 2, 2 })
  engine:commit()
  engine:set_initial({ id }, { outrigger.tensor("float32", { 2, 2 }, { 0.5, -1, 1, 0.25 }) })
  return engine
end

local function finish(engine, name)
  for number = value.MASTER, value.EXP_AVG_SQ do
    show(("%s value %d"):format(name, number), engine:read(0, number))
  end
  engine:finalize()
end

local function chain(comm, rank, world)
  local front <close> = make_engine(comm, "front", CHAIN:format(4, 0.25, 0))
  local back <close> = make_engine(comm, "back", CHAIN:format(64, 0.5, 2))
  for window = 0, 1 do
    local dy = outrigger.tensor("float32", { 2, 2 }, { 1, -0.5, 0.25, 2 })
    if window == 1 and rank == world - 1 then
      dy:set(3, math.huge)
    end
    back:backward({ dy }, function(pass)
      local at_back = pass:output_grad()
      show("chain back scaled", at_back)
      local dh = made("float32", { 2, 2 }, function(i) -- the gradient of the input
        return 2 * at_back:get((i + 2) % 4 + 1)
      end)
      show("chain input gradient", pass:unscale(dh, outrigger.tensor("float32", { 2, 2 })))
      local tag = pass:tag()
      line("chain tag", bits(tag.loss_scale), tag.accumulation, tag.ranks)
      front:backward({ dh }, function(behind)
        show("chain front scaled", behind:output_grad())
        behind:add_grad(0, behind:output_grad())
      end, tag)
      pass:add_grad(0, at_back)
    end)
    local reports = outrigger.step_many { front, back }
    show_report("chain front step", reports[1])
    show_report("chain back step", reports[2])
  end
  for _, engine in ipairs { front, back } do
    finish(engine, "chain " .. engine:parameter_name(0))
  end
end

-- ---- A training that is saved, and goes on at another stage and without offload ----
local KEPT = [[{"zero_optimization": %s, "gradient_clipping": 0, "optimizer": {"type": "AdamW", "params": {"lr": 0.125}}}]]

-- With a gradient that differs between windows and ranks.
local function step_alone(engine, window, rank, name)
  engine:backward({}, function(pass)
    local factor = (window + 1) * (2 * rank + 1)
    pass:add_grad(0, outrigger.tensor("float32", { 2, 2 }, { factor, -0.5 * factor, 0.25 * factor, 2 * factor }))
  end)
  show_report(("%s step %d"):format(name, window), engine:step())
end

local function save_and_load(comm, rank, directory)
  local saved <close> = make_engine(comm, "w", KEPT:format '{"stage": 2, "offload_optimizer": {"device": "cpu"}}')
  for window = 0, 1 do
    step_alone(saved, window, rank, "saved")
  end
  saved:save(directory, "two")
  step_alone(saved, 2, rank, "saved")
  finish(saved, "saved")
  local loaded <close> = make_engine(comm, "w", KEPT:format '{"stage": 3}')
  loaded:load(directory, "two")
  step_alone(loaded, 2, rank, "loaded")
  finish(loaded, "loaded")
end

local function shard_alone(context)
  local weights = outrigger.tensor("float32", { 5 }, { -0.5, -0.25, 0, 0.25, 0.5 })
  local grads = outrigger.tensor("float32", { 5 }, { 0.375, 0.25, 0.125, 0, -0.125 })
  local published = outrigger.tensor("bfloat16", { 5 })
  local shard <close> = outrigger.shard(context, weights, grads, published)
  local optimizer <close> = outrigger.optimizer(context, '{"type": "AdamW", "params": {"lr": 0.5}}')
  optimizer:set_value("lr", 0.25)
  show_report("shard step", optimizer:step { shard })
  show("shard weights", weights)
  show("shard published", published)
  for number = value.EXP_AVG, value.EXP_AVG_SQ do
    show("shard state " .. number, shard:state(number))
  end
  line("shard state_bytes", shard:state_bytes())
end

local context = outrigger.context()
local comm = outrigger.comm_from_env(context)
local rank, world = comm:rank(), comm:size()
out = assert(io.open(("%s.%d"):format(arg[2], rank), "wb"))
line("rank", rank, "of", world)
collectives(comm, rank, world)
do
  local file = assert(io.open(arg[1], "rb"))
  local engine <close> = outrigger.engine(comm, file:read "a")
  file:close()
  add_parameters(engine, rank)
  engine:commit()
  print_acquired(engine)
  for number = 0, 5 do -- three windows of two passes
    if number == 4 then
      engine:set_group_value(nil, "lr", 0.03125)
    end
    run_pass(engine, number, rank, world)
  end
  wrong_calls(engine)
  print_values(engine)
  print_acquired(engine)
  print_acquired(engine, true)
  for _, entry in ipairs(engine:memory()) do
    line("memory", entry.resident_bytes, entry.purpose)
  end
  line("live_children", engine:live_children())
  engine:finalize()
end
chain(comm, rank, world)
save_and_load(comm, rank, arg[2] .. ".saved")
shard_alone(context)
line "done"
out:close()
