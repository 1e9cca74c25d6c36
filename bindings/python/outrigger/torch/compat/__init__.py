# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed scripts unchanged: install() registers DeepSpeed's module names for this process.

    python -m outrigger.torch.compat train.py --deepspeed_config ds_config.json

does it for a script. A name that DeepSpeed has and Outrigger has not is an error that says so, when it is used;
../missing.py lists them."""
import importlib
import sys
import warnings

from .modules import Finder, Module, spec_of
from .names import MODULES, VERSION

_finder = Finder(MODULES, VERSION)
# Decide when they are imported whether there is DeepSpeed: what they have then.
_GUARDED = {"accelerate.utils": lambda module: hasattr(module, "DeepSpeedEngineWrapper"),
            "transformers.integrations.deepspeed": lambda module: module.DeepSpeedConfig is not object}


def install():
    """Until uninstall() `import deepspeed` gives Outrigger, and importlib.metadata knows the package. Refused where DeepSpeed
    itself is imported already. Call it before accelerate and transformers are imported: a RuntimeWarning says where it came
    too late."""
    present = sys.modules.get("deepspeed")
    if isinstance(present, Module):
        return
    if present is not None:
        raise RuntimeError("DeepSpeed itself is imported already in this process; call outrigger.torch.compat.install() before it")
    for name, members in MODULES.items():
        module = Module(name, f"Outrigger {VERSION} in the place of {name}.")
        module.__path__ = []
        module.__spec__ = spec_of(name)
        module.__loader__ = module.__spec__.loader
        vars(module).update(members)
        sys.modules[name] = module
    for name in MODULES:
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, sys.modules[name])
    sys.meta_path.insert(0, _finder)
    importlib.invalidate_caches()
    late = [name for name, saw in _GUARDED.items() if name in sys.modules and not saw(sys.modules[name])]
    if late:
        warnings.warn(f"{' and '.join(late)} came before outrigger.torch.compat.install() and may not see DeepSpeed; call install() before "
                      "the import", RuntimeWarning, stacklevel=2)


def uninstall():
    """Takes the names and the metadata back; modules that were imported meanwhile keep what they have."""
    for name in MODULES:
        if isinstance(sys.modules.get(name), Module):
            del sys.modules[name]
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
