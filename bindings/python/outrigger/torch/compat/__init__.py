# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed scripts unchanged: install() registers DeepSpeed's module names for this process.

    python -m outrigger.torch.compat train.py --deepspeed_config ds_config.json

does it for a script. A name that DeepSpeed has and Outrigger has not is an error that says so, when it is used."""
import importlib.abc
import sys
import types

from .names import MODULES, VERSION


class _Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"{self.__name__}.{name}: Outrigger, which stands in for DeepSpeed in this process, does not have it; "
                             f"it has {', '.join(sorted(each for each in vars(self) if not each.startswith('_')))}")


class _Finder(importlib.abc.MetaPathFinder):
    """Says what is missing where a script imports another module of DeepSpeed."""

    def find_spec(self, name, path=None, target=None):
        if name.startswith("deepspeed."):
            raise ModuleNotFoundError(f"{name}: Outrigger, which stands in for DeepSpeed in this process, does not have this module; it "
                                      f"has {', '.join(sorted(MODULES))}", name=name)
        return None


_finder = _Finder()


def install():
    """Until uninstall() `import deepspeed` gives Outrigger. Refused where DeepSpeed itself is imported already."""
    present = sys.modules.get("deepspeed")
    if isinstance(present, _Module):
        return
    if present is not None:
        raise RuntimeError("DeepSpeed itself is imported already in this process; call outrigger.torch.compat.install() before it")
    for name, members in MODULES.items():
        module = _Module(name, f"Outrigger {VERSION} in the place of {name}.")
        module.__path__ = []
        vars(module).update(members)
        sys.modules[name] = module
    for name in MODULES:
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, sys.modules[name])
    sys.meta_path.insert(0, _finder)


def uninstall():
    """Takes the names back; modules that were imported meanwhile keep what they have."""
    for name in MODULES:
        if isinstance(sys.modules.get(name), _Module):
            del sys.modules[name]
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
