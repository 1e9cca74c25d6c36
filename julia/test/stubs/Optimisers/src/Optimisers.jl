# SPDX-License-Identifier: Apache-2.0
# The names of Optimisers that the extension uses.
module Optimisers

abstract type AbstractRule end
function init end
function apply! end
function adjust end

end
