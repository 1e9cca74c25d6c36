# SPDX-License-Identifier: Apache-2.0
"""Modules of DeepSpeed's names for the import system: their specs, what they lack, and the metadata of a package."""
import importlib.abc
import importlib.machinery
import importlib.metadata
import sys
import types

from ..missing import reason


class Module(types.ModuleType):
    """Stands for one of DeepSpeed's modules."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        why = reason(f"{self.__name__}.{name}")
        raise AttributeError(f"{self.__name__}.{name}: Outrigger, which stands in for DeepSpeed in this process, does not have it"
                             + (f": {why}" if why else "; it has "
                                + ", ".join(sorted(each for each in vars(self) if not each.startswith("_")))))


class _Loader(importlib.abc.Loader):
    """Of modules that exist already, so that importlib.reload and find_spec find what they look for."""

    def create_module(self, spec):
        return sys.modules.get(spec.name)

    def exec_module(self, module):
        pass


class Distribution(importlib.metadata.Distribution):
    """What importlib.metadata says of the package that is stood in for."""

    def __init__(self, version):
        self._texts = {
            "METADATA": f"Metadata-Version: 2.1\nName: deepspeed\nVersion: {version}\nSummary: Outrigger in the place of DeepSpeed\n",
            "top_level.txt": "deepspeed\n", "RECORD": ""}

    def read_text(self, filename):
        return self._texts.get(filename)

    def locate_file(self, path):
        raise FileNotFoundError(f"{path}: Outrigger stands in for DeepSpeed, which has no files here")


class Finder(importlib.abc.MetaPathFinder):
    """Gives the specs and the metadata while the names are registered, and says what is missing where a script imports
    another module of DeepSpeed."""

    def __init__(self, modules, version):
        self._modules, self._version = modules, version

    def find_spec(self, name, path=None, target=None):
        if name in self._modules:
            return spec_of(name)
        if not name.startswith("deepspeed.") or _is_a_question():
            return None
        parent = name.rpartition(".")[0]
        why = reason(name)
        # The parent's name, because `from parent import name` swallows an error about the name itself, and this text with it.
        raise ModuleNotFoundError(f"{name}: Outrigger, which stands in for DeepSpeed in this process, does not have it"
                                  + (f": {why}" if why else f"; it has the modules {', '.join(sorted(self._modules))}"), name=parent)

    def find_distributions(self, context=None):
        if context is None or context.name is None or context.name.lower() == "deepspeed":
            yield Distribution(self._version)


def spec_of(name):
    spec = importlib.machinery.ModuleSpec(name, _Loader(), origin="outrigger.torch.compat", is_package=True)
    spec.submodule_search_locations = []
    return spec


def _is_a_question():
    """Whether importlib.util.find_spec asks, whose answer for what is not there is None; an import gets the error."""
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(("importlib", "_frozen_importlib")):
        if frame.f_code.co_name == "find_spec" and frame.f_globals["__name__"] == "importlib.util":
            return True
        frame = frame.f_back
    return False
