# SPDX-License-Identifier: Apache-2.0
# The names of LuxCore that the extension uses.
module LuxCore

abstract type AbstractLuxLayer end
function initialparameters end
initialstates(rng, layer) = NamedTuple()
setup(rng, layer) = (initialparameters(rng, layer), initialstates(rng, layer))

end
