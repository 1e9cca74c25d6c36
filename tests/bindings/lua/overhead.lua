-- SPDX-License-Identifier: Apache-2.0
-- What a call costs: a gradient of four elements added to an open pass, and a step of an empty pass; the least of ten rounds.
local outrigger = require "outrigger"

local comm = outrigger.comm_alone(outrigger.context(1))
local engine = outrigger.engine(comm, '{"gradient_clipping": 0, "optimizer": {"type": "SGD", "params": {"lr": 0.5}}}')
local gradient = outrigger.tensor("float32", { 4 })
local id = engine:add_parameter("w", gradient)
engine:commit()

local function nanoseconds(count, calls)
  local least = math.huge
  for _ = 1, 10 do
    local start = os.clock()
    calls(count)
    least = math.min(least, (os.clock() - start) / count * 1e9)
  end
  return least
end

print(("Lua: add_grad of 4 elements %.0f ns, an empty pass and its step %.0f ns"):format(nanoseconds(20000, function(count)
  engine:backward({}, function(pass)
    for _ = 1, count do
      pass:add_grad(id, gradient)
    end
  end)
  engine:step()
end), nanoseconds(2000, function(count)
  for _ = 1, count do
    engine:backward({}, function() end)
    engine:step()
  end
end)))
