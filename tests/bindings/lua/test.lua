-- SPDX-License-Identifier: Apache-2.0
-- What the module computes; wrong use is an error and harms nothing; what nobody holds is given back.   lua5.4 test.lua FOLDER, with ROUNDS set
local outrigger = require "outrigger"
local value, step, skip = outrigger.value, outrigger.step, outrigger.skip
local SGD = '{"gradient_clipping": 0, "optimizer": {"type": "SGD", "params": {"lr": 0.5}}}'
local context = outrigger.context(1)
local comm = outrigger.comm_alone(context)
local tests = {}

-- An engine of one parameter, and its id.
local function one(config, ...)
  local engine = outrigger.engine(comm, config)
  local id = engine:add_parameter("w", outrigger.tensor("float32", { select("#", ...) }, { ... }))
  engine:commit()
  return engine, id
end

local function add(engine, id, ...)
  local gradient = outrigger.tensor("float32", { select("#", ...) }, { ... })
  engine:backward({ outrigger.scalar(1) }, function(pass)
    pass:add_grad(id, gradient)
  end)
end

local function same(found, wanted)
  found, wanted = table.concat(found, " "), table.concat(wanted, " ")
  assert(found == wanted, ("found %s, wanted %s"):format(found, wanted))
end

-- The call fails, and its text has this part.
local function fails(part, call, ...)
  local succeeded, failure = pcall(call, ...)
  assert(not succeeded, "it was accepted: " .. part)
  assert(tostring(failure):find(part, 1, true), ("%q is not in: %s"):format(part, failure))
  return failure
end

function tests.values()
  local engine <close>, id = one(SGD, 1, 2)
  local weights = engine:acquire { id }
  fails("read-only", weights[1].set, weights[1], 1, 5)
  fails("read-only", weights[1].put, weights[1], { 5, 5 })
  local slot, seed
  engine:backward({ outrigger.scalar(1) }, function(pass)
    seed, slot = pass:output_grad(), pass:slot(id)
    fails("slot", pass.slot, pass, id)
    pass:add_grad(id, slot:put { 2, 4 })
    fails("closed", slot.set, slot, 1, 9)
  end)
  fails("closed", seed.get, seed, 1)
  assert(engine:step().outcome == step.APPLIED)
  fails("closed", weights[1].numbers, weights[1])
  weights:close()
  same(engine:read(id):numbers(), { 0.0, 0.0 })
  add(engine, id, 8, 8)
  assert(engine:reduce().outcome == step.REDUCED)
  engine:write(id, value.GRAD, outrigger.tensor("float64", { 2 }, { 3, 4 }))
  assert(engine:step().grad_norm == 5)
  same(engine:read(id, value.MASTER):numbers(), { -1.5, -2.0 })
  assert(math.type(engine:parameter_id "w") == "integer" and engine:parameter_name(id) == "w")
end

function tests.tensors()
  for _, dtype in ipairs { "float64", "float32", "float16", "bfloat16", "int8", "int64" } do
    local tensor = outrigger.tensor(dtype, { 2, 2 }, { 1, -2, 3, 100 })
    same(tensor:numbers(), { 1.0, -2.0, 3.0, 100.0 })
    assert(#tensor == 4 and tensor.dtype == dtype and tensor:fill(-5):get(4) == -5)
  end
  local copy = outrigger.tensor("float32", { 2 }):put_bytes(string.pack("<ff", 1.5, -0.0))
  assert(copy:bits(2) == 0x80000000 and copy:bytes() == string.pack("<ff", 1.5, -0.0))
  assert(#outrigger.tensor("float32", { 0, 4 }) == 0 and outrigger.tensor("float32", { 0, 4 }):bytes() == "")
  fails("index 3", copy.get, copy, 3)
  fails("index 0", copy.set, copy, 0, 1)
  fails("index 1.5", copy.get, copy, 1.5)
  fails("1 numbers for 2 elements", copy.put, copy, { 1 })
  fails("item 2", copy.put, copy, { 1, "x" })
  fails("7 bytes for a tensor of 8", copy.put_bytes, copy, "seven b")
  fails("OTR_E_DTYPE", outrigger.tensor, "float31", { 2 })
  fails("OTR_E_ARGUMENT", outrigger.tensor, "float32", { -1 })
  fails("OTR_E_SHAPE", outrigger.tensor, "float32", { math.maxinteger, 2 })
  fails("no whole number", outrigger.tensor, "float32", { 1.5 })
  copy:close()
  copy:close()
  fails("closed", copy.get, copy, 1)
  fails("closed", copy.bytes, copy)
end

function tests.closed_handles()
  local engine, id = one(SGD, 1, 2)
  local weights, pass = engine:acquire { id }, engine:begin_pass { outrigger.scalar(1) }
  engine:close()
  engine:close()
  assert(engine:is_closed())
  fails("this Engine is closed", engine.step, engine)
  fails("closed", weights[1].get, weights[1], 1)
  weights:close()
  pass:add_grad(id, outrigger.tensor("float32", { 2 })) -- a child keeps what it needs
  pass:close()
  fails("this Pass is closed", pass.end_pass, pass)
  fails("engine is NULL", outrigger.lowlevel.engine_step, nil)
  fails("expected", outrigger.lowlevel.engine_step, comm.handle)
  fails("no handle", outrigger.lowlevel.give_back, io.stdout)
end

function tests.wrong_arguments()
  local engine <close>, id = one(SGD, 1, 2)
  fails("OTR_E_STATE", engine.step, engine)
  do
    local pass <close> = engine:begin_pass { outrigger.scalar(1) }
    fails("OTR_E_DTYPE", pass.add_grad, pass, id, outrigger.tensor("int32", { 2 }))
    fails("OTR_E_SHAPE", pass.add_grad, pass, id, outrigger.tensor("float32", { 3 }))
    fails("a tensor is expected", pass.add_grad, pass, id, { 1, 2 })
    fails("a tensor is expected", pass.add_grad, pass, id, nil)
    fails("expected", pass.add_grad, pass, "w", outrigger.scalar(1))
    fails("OTR_E_NOT_FOUND", pass.add_grad, pass, 7, outrigger.scalar(1))
  end
  fails("OTR_E_CONFIG", outrigger.engine, comm, '{"optimizer": ')
  fails("there is no option colour", engine.add_parameter, engine, "x", outrigger.scalar(1), { colour = 1 })
  fails("OTR_E_STATE", engine.add_parameter, engine, "late", outrigger.scalar(1))
  fails("0 values for 1 ids", engine.set_initial, engine, { id }, {})
  assert(fails("no parameter is named", engine.parameter_id, engine, "x").name == "OTR_E_NOT_FOUND")
  fails("read-only", engine.read, engine, id, value.MASTER, engine:acquire({ id })[1])
end

function tests.error_in_backward()
  local engine <close>, id = one(SGD, 1, 2)
  local thrown = {}
  local succeeded, failure = pcall(engine.backward, engine, { outrigger.scalar(1) }, function(pass)
    pass:add_grad(id, outrigger.tensor("float32", { 2 }, { 1, 1 }))
    error(thrown)
  end)
  assert(not succeeded and failure == thrown, "the same error arrives")
  local report = engine:step()
  assert(report.outcome == step.SKIPPED and report.reason == skip.ABANDONED)
  same(engine:read(id):numbers(), { 1.0, 2.0 })
  add(engine, id, 0 / 0, 1)
  report = engine:step()
  assert(report.reason == skip.NONFINITE and report.nonfinite_param == id)
  local _, ended = pcall(engine.backward, engine, {}, function()
    engine:close()
  end)
  assert(ended == nil, ended)
  fails("closed", engine.step, engine)
end

function tests.coroutines()
  local engine <close>, id = one(SGD, 1, 2)
  local training = coroutine.wrap(function()
    for _ = 1, 3 do
      engine:backward({ outrigger.scalar(1) }, function(pass)
        coroutine.yield()
        collectgarbage()
        pass:add_grad(id, outrigger.tensor("float32", { 2 }, { 1, 1 }))
      end)
      assert(engine:step().outcome == step.APPLIED)
    end
  end)
  for _ = 1, 4 do
    training()
  end
  same(engine:read(id):numbers(), { -0.5, 0.5 })
end

function tests.checkpoints()
  local config = '{"optimizer": {"type": "AdamW", "params": {"lr": 0.1}}}'
  local tag = ("lua-%d-%d"):format(os.time(), math.random(1 << 40))
  local continuous
  do
    local engine <close>, id = one(config, 1, -2, 3)
    add(engine, id, 1, 2, 3)
    engine:step()
    engine:save(arg[1], tag)
    fails("OTR_E_DUPLICATE", engine.save, engine, arg[1], tag)
    add(engine, id, -3, 0.5, 1)
    engine:step()
    continuous = engine:read(id):bytes()
  end
  local engine <close>, id = one(config, 0, 0, 0)
  fails("OTR_E_NOT_FOUND", engine.load, engine, arg[1], "none")
  engine:load(arg[1], tag)
  add(engine, id, -3, 0.5, 1)
  engine:step()
  assert(engine:read(id):bytes() == continuous, "the same bits")
end

function tests.collected()
  local engine <close>, id = one(SGD, 0)
  for _ = 1, 20 do
    engine:begin_pass { outrigger.scalar(1) }
  end
  collectgarbage()
  collectgarbage()
  assert(engine:live_children() == 0, "the collector gives passes back")
  local weights
  do
    local forgotten = outrigger.engine(comm, SGD)
    local w = forgotten:add_parameter("w", outrigger.tensor("float32", { 1 << 18 }):fill(7))
    forgotten:commit()
    weights = forgotten:acquire({ w })[1]
  end
  collectgarbage()
  collectgarbage()
  assert(weights:get(1 << 18) == 7, "weights keep their engine")
  local shard = outrigger.shard(context, outrigger.tensor("float32", { 1000 }), outrigger.tensor("float32", { 1000 }):fill(1))
  local optimizer = outrigger.optimizer(context, '{"type": "SGD", "params": {"lr": 1}}')
  for _ = 1, 100 do
    outrigger.tensor("float32", { 1000 }):fill(7)
  end
  collectgarbage() -- nobody but the shard has its tensors
  assert(optimizer:step({ shard }).outcome == step.APPLIED and shard.kept[1]:get(1000) == -1)
  shard:close()
  fails("this Shard is closed", optimizer.step, optimizer, { shard })
end

function tests.messages()
  local ids = outrigger.tensor("int64", { 3 }, { 5, 6, 7 })
  local tag = { loss_scale = 8.0, accumulation = 2, ranks = 1 }
  local bytes = outrigger.pack({ ids = ids, grad = outrigger.tensor("bfloat16", { 2, 2 }, { 1, 2, 3, 4 }) },
    { micro_batch = 41, tag = tag, attributes = { sender = "vision", place = "" } })
  local message = outrigger.message(bytes)
  same(message:names(), { "ids", "grad" })
  assert(message:micro_batch() == 41 and message:attributes().sender == "vision" and message:attributes().place == "")
  for name, number in pairs(tag) do
    assert(message:tag()[name] == number, name)
  end
  local grad = message:tensor "grad"
  assert(grad.dtype == "bfloat16")
  same(grad:shape(), { 2, 2 })
  same(grad:numbers(), { 1.0, 2.0, 3.0, 4.0 })
  same(message:tensor("ids"):numbers(), { 5.0, 6.0, 7.0 })
  fails("OTR_E_NOT_FOUND", message.tensor, message, "grads")
  fails("expected 'char const *'", message.tensor, message, {})
  message:close()
  message:close()
  fails("closed", grad.numbers, grad)
  fails("this Message is closed", message.names, message)
  assert(outrigger.message(outrigger.pack {}):tag() == nil)

  for at = 1, #bytes, 7 do -- nothing that is damaged is read
    local other = string.char(bytes:byte(at) ~ 1)
    fails("OTR_E_", outrigger.message, bytes:sub(1, at - 1) .. other .. bytes:sub(at + 1))
  end
  fails("OTR_E_CORRUPT", outrigger.message, bytes:sub(1, -2))
  fails("OTR_E_CORRUPT", outrigger.message, "")
  fails("a tensor is expected", outrigger.pack, { x = 5 })
  fails("there is no option scale", outrigger.pack, {}, { tag = { scale = 1 } })
  ids:close()
  fails("ids is closed", outrigger.pack, { ids = ids })
  fails("the tensor's name is nothing", function()
    outrigger.lowlevel.NamedTensors():add(nil, outrigger.scalar(1).handle)
  end)
  fails('the tensor "x" is nothing', function()
    outrigger.lowlevel.NamedTensors():add("x", nil)
  end)

  local routes = outrigger.routes({ 3, 1 }, { 2, 2 })
  assert(#routes == 3)
  for i, wanted in ipairs { { 0, 0, 0, 0, 2 }, { 0, 1, 2, 0, 1 }, { 1, 1, 0, 1, 1 } } do
    local route = routes[i]
    same({ route.source, route.target, route.source_row, route.target_row, route.rows }, wanted)
  end
  fails("OTR_E_ARGUMENT", outrigger.routes, { 3 }, { 2 })
end

function tests.log()
  outrigger.log_lines()
  local logged <close> = outrigger.context(1, outrigger.log.INFO)
  local engine <close> = outrigger.engine(outrigger.comm_alone(logged), SGD)
  engine:add_parameter("w", outrigger.scalar(1))
  engine:commit()
  one(SGD, 1):close() -- its context keeps no lines
  local lines = outrigger.log_lines()
  assert(#lines == 1 and lines[1].level == outrigger.log.INFO and lines[1].text:find("parameter", 1, true), #lines .. " lines")
  assert(#outrigger.log_lines() == 0, "each once")
  fails("OTR_E_ARGUMENT", outrigger.context, 1, 99)
end

local function resident_bytes()
  local file <close> = assert(io.open "/proc/self/statm")
  return 4096 * tonumber(file:read("a"):match "%d+ (%d+)")
end

function tests.leaks()
  local rounds, before = tonumber(os.getenv "ROUNDS"), 0
  local initial = outrigger.tensor("float32", { 1 << 15 })
  for round = 1, rounds do
    if round == rounds // 3 then
      collectgarbage()
      before = resident_bytes()
    end
    local engine <close> = outrigger.engine(comm, SGD)
    local id = engine:add_parameter("w", initial)
    engine:commit()
    local weights <close> = engine:acquire({ id }, true)
    engine:backward({ weights[1] }, function(pass)
      pass:add_grad(id, pass:slot(id):fill(pass:output_grad():get(7)))
    end)
    pcall(engine.parameter_id, engine, "none")
    local copy <close> = engine:read(id)
    engine:step()
    engine:memory()
    assert(engine:live_children() == 0)
  end
  collectgarbage()
  local grown = resident_bytes() - before
  assert(grown < rounds * 2 // 3 * 65536, ("the process grew by %d bytes"):format(grown)) -- half of what a leak of one value of w would be
end

local names, failed = {}, 0
for name in pairs(tests) do
  names[#names + 1] = name
end
table.sort(names)
for _, name in ipairs(names) do
  local succeeded, failure = xpcall(tests[name], function(failure)
    return debug.traceback(tostring(failure))
  end)
  print((succeeded and "ok      " or "FAILED  ") .. name)
  if not succeeded then
    failed = failed + 1
    print(failure)
  end
end
os.exit(failed == 0, true)
