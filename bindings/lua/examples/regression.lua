-- SPDX-License-Identifier: Apache-2.0
-- A linear regression that no framework computes: a host with its own forward and backward, under ZeRO stage 2 with bfloat16 moments.
--   lua5.4 regression.lua
--   outrigger run -n 2 -- lua5.4 regression.lua
local outrigger = require "outrigger"

local CONFIG = [[{
  "optimizer": {"type": "AdamW", "params": {"lr": 0.05, "weight_decay": 0}},
  "gradient_clipping": 10.0,
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
  "outrigger": {"states": {"exp_avg": {"format": "bfloat16"}, "exp_avg_sq": {"format": "bfloat16"}}}
}]]
local INPUTS, ROWS, STEPS = 8, 32, 200

-- Numbers between -1 and 1 that every machine makes alike.
local function noise(seed)
  local mixed = (seed + 1) * 0x9e3779b97f4a7c15
  mixed = (mixed ~ mixed >> 31) * 0xbf58476d1ce4e5b9
  return (mixed >> 40) / (1 << 23) - 1
end

local context = outrigger.context()
local comm = outrigger.comm_from_env(context)
local engine <close> = outrigger.engine(comm, CONFIG)
local weight = engine:add_parameter("weight", outrigger.tensor("float32", { INPUTS }))
local bias = engine:add_parameter("bias", outrigger.scalar(0))
engine:commit()

local loss
for step = 1, STEPS do
  -- Each rank has rows of its own.
  local first = ((step - 1) * comm:size() + comm:rank()) * ROWS * INPUTS
  local x, output_grads = {}, {}
  loss = 0
  do
    local weights <close> = engine:acquire { weight, bias }
    local w, b = weights[1]:numbers(), weights[2]:get(1)
    for row = 1, ROWS do
      local inputs, mistake = {}, b - 0.5
      for i = 1, INPUTS do
        inputs[i] = noise(first + (row - 1) * INPUTS + i - 1)
        mistake = mistake + inputs[i] * (w[i] - ((i - 1) / 4 - 1))
      end
      x[row], output_grads[row], loss = inputs, 2 * mistake / ROWS, loss + mistake * mistake / ROWS
    end
  end
  -- The gradient of the outputs, one for each row: the library scales it, the host goes on from there.
  engine:backward({ outrigger.tensor("float32", { ROWS }, output_grads) }, function(pass)
    local y_grad = pass:output_grad():numbers()
    local weight_grad, bias_grad = {}, 0
    for i = 1, INPUTS do
      weight_grad[i] = 0
      for row = 1, ROWS do
        weight_grad[i] = weight_grad[i] + y_grad[row] * x[row][i]
      end
    end
    for row = 1, ROWS do
      bias_grad = bias_grad + y_grad[row]
    end
    pass:add_grad(weight, pass:slot(weight):put(weight_grad))
    pass:add_grad(bias, outrigger.scalar(bias_grad))
  end)
  local report = engine:step()
  assert(report.outcome == outrigger.step.APPLIED, "a step was skipped")
end
local mean = comm:all_reduce_sum { loss / comm:size() }[1]
if comm:rank() == 0 then
  print(("loss %.3e after %d steps on %d ranks"):format(mean, STEPS, comm:size()))
end
assert(mean < 1e-3, "it has not learned")
engine:finalize()
