-- SPDX-License-Identifier: Apache-2.0
-- Messages: part of the module `outrigger`. Tensors of a micro-batch in one string, for any transport (docs/messages.md).
local lowlevel = require "outrigger.lowlevel"
local tensors = require "outrigger.tensors"

local function tag_of(info)
  return info.loss_scale ~= 0 and { loss_scale = info.loss_scale, accumulation = info.accumulation, ranks = info.ranks } or nil
end

-- class, options_of: outrigger.lua's.
return function(outrigger, class, options_of)
  -- The bytes of a message: tensors by name, of any dtype. options: {micro_batch, tag (a pass's, of gradients), attributes (texts by
  -- name)}. E_ARGUMENT, E_STATE: a tensor is closed.
  function outrigger.pack(named, options)
    options = options or {}
    local given = options_of(lowlevel.MessageOptions, { micro_batch = options.micro_batch or 0 })
    given:set_tag(options_of(lowlevel.CallInfo, options.tag))
    for name, text in pairs(options.attributes or {}) do
      given:add_attribute(name, text)
    end
    local list = lowlevel.NamedTensors()
    for name, tensor in pairs(named) do
      list:add(name, tensors.handle(tensor))
    end
    local made <close> = tensors.of(lowlevel.message_pack(list, given))
    return made:bytes()
  end

  local Message, new_message = class "Message"

  -- Reads a copy of the bytes, which may come from anybody. E_CORRUPT: damaged, cut short or no message; E_UNSUPPORTED: of a later version.
  function outrigger.message(bytes)
    local memory = outrigger.tensor("uint8", { #bytes }):put_bytes(bytes)
    return new_message(lowlevel.message_unpack(memory.handle, 0), { memory = memory, lent = {} })
  end

  -- A tensor over the message's memory, until it is closed. E_NOT_FOUND gives the nearest name.
  function Message:tensor(name)
    local tensor = tensors.of(lowlevel.message_get_tensor(self:made(), name), self)
    self.lent[#self.lent + 1] = tensor
    return tensor
  end

  -- A list of the tensors' names.
  function Message:names()
    local names = {}
    for i = 1, lowlevel.message_get_info(self:made()).tensor_count do
      names[i] = lowlevel.message_tensor_name(self:made(), i - 1)
    end
    return names
  end

  -- Texts by name.
  function Message:attributes()
    local texts = {}
    for i = 1, lowlevel.message_get_info(self:made()).attribute_count do
      local name = lowlevel.message_attribute_name(self:made(), i - 1)
      texts[name] = lowlevel.message_get_attribute(self:made(), name)
    end
    return texts
  end

  -- The sender's number.
  function Message:micro_batch()
    return lowlevel.message_get_info(self:made()).micro_batch
  end

  -- What was applied to gradients, for begin_pass; nil: nothing was said.
  function Message:tag()
    local info = lowlevel.CallInfo()
    lowlevel.message_get_tag(self:made(), info)
    return tag_of(info)
  end

  local close = Message.close
  function Message:close()
    for _, tensor in ipairs(self.lent) do
      tensor:close()
    end
    close(self)
  end

  -- Who sends which rows between two groups: a list of {source, target, source_row, target_row, rows}, from lists of each rank's rows with
  -- one sum. E_ARGUMENT.
  function outrigger.routes(source_rows, target_rows)
    local made <close> = tensors.of(lowlevel.message_routes(source_rows, target_rows))
    local routes = {}
    for i = 1, #made, 5 do
      routes[#routes + 1] = { source = made:bits(i), target = made:bits(i + 1), source_row = made:bits(i + 2), target_row = made:bits(i + 3),
        rows = made:bits(i + 4) }
    end
    return routes
  end
end
