-- SPDX-License-Identifier: Apache-2.0
-- Tensors: part of the module `outrigger`. Elements in row-major order, in memory of their own or of the library's. The library's is lent: it is
-- closed when its time is over, and every later use is an error E_STATE.
local lowlevel = require "outrigger.lowlevel"
local tensors = {}
local Tensor = {}
local tensor_meta = { __index = Tensor, __name = "outrigger.Tensor" }

-- Of its own memory, or that of an object which it keeps.
function tensors.of(made, lender)
  return setmetatable({ handle = made, dtype = made:dtype_name(), lender = lender }, tensor_meta)
end

function tensors.is(value)
  return getmetatable(value) == tensor_meta
end

-- Where an argument is no tensor, this says so.
function tensors.handle(tensor)
  if not tensors.is(tensor) then
    error("a tensor is expected, not a " .. type(tensor), 3)
  end
  return tensor.handle
end

-- new(dtype, shape [, numbers]): in memory of its own, zeros or a list of numbers in row-major order. dtype: "float32", "float64",
-- "float16", "bfloat16", "uint8" and the other whole numbers; {} is the shape of a scalar. E_DTYPE, E_ARGUMENT, E_SHAPE.
function tensors.new(dtype, shape, numbers)
  local tensor = tensors.of(lowlevel.tensor_new(dtype, shape))
  return numbers and tensor:put(numbers) or tensor
end

-- A float32 without a dimension, such as the gradient of a loss.
function tensors.scalar(number)
  return tensors.new("float32", {}, { number })
end

-- The library counts from 0.
local function position(self, index)
  if math.type(index) ~= "integer" or index < 1 or index > #self then
    error(("index %s is outside of a tensor of %d elements"):format(index, #self), 3)
  end
  return index - 1
end

-- Element `index`, from 1 on, in row-major order; an error where it is outside. E_STATE: closed.
function Tensor:get(index)
  return self.handle:get(position(self, index))
end

-- 16-bit floats are rounded to nearest even. E_ARGUMENT: read-only; E_STATE: closed.
function Tensor:set(index, number)
  self.handle:set(position(self, index), number)
end

-- An element's bits, as a whole number.
function Tensor:bits(index)
  return self.handle:get_bits(position(self, index))
end

function Tensor:fill(number)
  self.handle:fill(number)
  return self
end

-- Sets all elements from a list of as many numbers.
function Tensor:put(numbers)
  lowlevel.tensor_put(self.handle, numbers)
  return self
end

-- All elements, as a list of numbers.
function Tensor:numbers()
  return lowlevel.tensor_table(self.handle)
end

-- Its memory as a string.
function Tensor:bytes()
  return lowlevel.tensor_bytes(self.handle)
end

-- Sets its memory from a string of as many bytes.
function Tensor:put_bytes(text)
  lowlevel.tensor_put_bytes(self.handle, text)
  return self
end

function tensors.extents(made)
  local shape = {}
  for d = 1, made:dimensions() do
    shape[d] = made:extent(d - 1)
  end
  return shape
end

function Tensor:shape()
  return tensors.extents(self.handle)
end

function Tensor:is_open()
  return self.handle:is_open() ~= 0
end

-- Gives its memory back, or lets go of the library's. Doing it again is a no-op.
function Tensor:close()
  self.handle:close()
end

tensor_meta.__len = function(self)
  return self.handle:elements()
end
tensor_meta.__close = Tensor.close

-- A list of tensors for one call; it refers to them.
function tensors.list(items)
  local list = lowlevel.Tensors()
  for _, tensor in ipairs(items) do
    list:add(tensors.handle(tensor))
  end
  return list
end

return tensors
