# SPDX-License-Identifier: Apache-2.0
# The parameters of Lux's models. Tested with a stub of LuxCore only.
module OutriggerLuxCoreExt

using LuxCore, Outrigger

function Outrigger.add_parameters!(engine::Engine, model::LuxCore.AbstractLuxLayer, rng; options...)
    parameters, state = LuxCore.setup(rng, model)
    return add_parameters!(engine, parameters; options...), state
end

end
