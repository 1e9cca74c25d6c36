-- SPDX-License-Identifier: Apache-2.0
-- What a call costs in Lua: a gradient of 16 elements added to an open pass, or a pass without gradients and its step. It answers the lines
-- that scripts/bench/peers/worker.py describes.
--   calls.lua OPERATION      add_grad, step
local outrigger = require "outrigger"

local VALUES = 16
local CONFIG = '{"optimizer": {"type": "SGD", "params": {"lr": 0.0}}, "gradient_clipping": 0}'
local engine = outrigger.engine(outrigger.comm_alone(outrigger.context(1)), CONFIG)
local gradient = outrigger.tensor("float32", { VALUES })
local id = engine:add_parameter("w", gradient)
engine:commit()

local runs = {}

function runs.add_grad(times)
  local taken
  engine:backward({}, function(pass)
    local start = os.clock()
    for _ = 1, times do
      pass:add_grad(id, gradient)
    end
    taken = os.clock() - start
  end)
  engine:step()
  return taken
end

function runs.step(times)
  local start = os.clock()
  for _ = 1, times do
    local pass = engine:begin_pass()
    pass:end_pass()
    pass:close()
    engine:step()
  end
  return os.clock() - start
end

io.stdout:setvbuf "line"
print '{"ready": {}}'
for line in io.lines() do
  local times = line:match "^run (%d+)"
  if times then
    print(('{"run": [0, %d, {}]}'):format(math.floor(runs[arg[1]](tonumber(times)) * 1e9)))
  elseif line:match "^check" then
    print '{"checked": {}}'
  end
end
