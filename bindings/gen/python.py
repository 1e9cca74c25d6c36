# SPDX-License-Identifier: Apache-2.0
"""bindings/python/outrigger/lowlevel.pyi

The types of what SWIG makes of outrigger.h by bindings/swig: out_ parameters become results, counts go into
sequences, texts are asked for once. mypy's stubtest compares it with the module itself.
"""
import keyword

HEAD = '''# SPDX-License-Identifier: Apache-2.0
# Generated from outrigger.h by bindings/gen; not to be edited.
from collections.abc import Iterable
from typing import Any, ClassVar, Final, Protocol, TypeAlias, TypedDict, final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer, CapsuleType

class _DLPack(Protocol):
    def __dlpack__(self) -> Any: ...

_Memory: TypeAlias = Buffer | npt.NDArray[Any]
_Tensor: TypeAlias = _Memory | np.generic | _DLPack | CapsuleType

class OutriggerError(RuntimeError):
    code: int
    name: str
    text: str
    def __init__(self, code: int, text: str) -> None: ...

class _Proxy:
    thisown: bool
    __swig_destroy__: ClassVar[Any]

class _Handle(_Proxy):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

@final
class TensorView:
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __dlpack__(self, *args: Any, **kwargs: Any) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    @property
    def dtype(self) -> str: ...
'''
SCALARS = {"int32_t": "int", "uint32_t": "int", "int64_t": "int", "uint64_t": "int", "size_t": "int", "float": "float", "double": "float"}
# Filled in by the wrapper, or no business of the language.
HIDDEN_FIELDS = {"struct_size", "reserved", "reserved0", "published", "part_count", "include", "include_count", "exclude", "exclude_count",
                 "resized", "resized_count", "renamed_count"}
SKIPPED = {"otr_last_error_message", "otr_tensor_init", "otr_engine_backward", "otr_comm_create_custom",
           "otr_device_set_allocator"}
# Structs that the library fills, and a caller only reads.
GIVEN = {"otr_step_report", "otr_save_status", "otr_snapshot_info", "otr_message_info"}
# Structs that become something else than a class of their own.
NO_CLASS = {"otr_device", "otr_dtype", "otr_tensor", "otr_comm_table", "otr_device_allocator", "otr_memory_entry", "otr_part", "otr_rename",
            "otr_message_attribute", "otr_message_route"}
# Parameters for which None stands for a default, or for nothing.
MAY_BE_NONE = {"options", "info", "reason", "joint", "group", "initial", "config_json", "tag", "grads"}
NEVER_NONE = {("otr_comm_create_shm", "options"), ("otr_pass_get_tag", "info"), ("otr_message_get_tag", "info"), ("otr_engine_save", "tag"), ("otr_optimizer_save", "tag"), ("otr_checkpoint_writer_create", "tag"),
              ("otr_checkpoint_import", "tag")}
ENTRIES = "list[tuple[str, int, int]]"
# (type, name) of a parameter and of the one after it → what they are together; a result begins with "->".
PAIRS = {
    ("int64_t", "ids"): "Iterable[int]", ("otr_tensor", "output_grads"): "Iterable[_Tensor]",
    ("otr_shard", "shards"): "Iterable[Shard]", ("otr_engine", "engines"): "Iterable[Engine]",
    ("otr_snapshot", "snapshots"): "Iterable[Snapshot]",
    ("int64_t", "shape"): "Iterable[int]", ("void", "mine"): "_Memory", ("double", "values"): "_Memory",
    ("char", "buffer"): "-> str", ("void", "buffer"): "-> bytes", ("otr_memory_entry", "entries"): f"-> {ENTRIES}",
    ("int32_t", "out_ndim"): "-> tuple[int, ...]",
    ("int64_t", "source_rows"): "Iterable[int]", ("int64_t", "target_rows"): "Iterable[int]",
    ("otr_message_route", "routes"): "-> list[tuple[int, int, int, int, int]]",
}
# Of one function, where the names alone would be read otherwise.
SIGNATURES = {
    "otr_comm_all_to_all": "def comm_all_to_all(comm: Comm, parts: _Memory, part_bytes: Iterable[int], received: _Memory, "
                           "received_bytes: Iterable[int]) -> None: ...",
    "otr_message_pack": "def message_pack(names: Iterable[tuple[str, _Tensor]], options: MessageOptions | None, "
                        "buffer: _Memory | None) -> int: ...",
    "otr_message_seal": "def message_seal(buffer: _Memory) -> None: ...",
    "otr_message_unpack": "def message_unpack(data: _Memory, flags: int) -> Message: ...",
}
RESULTS = {"out_is_boundary": "bool", "out_has_grad": "bool", "out_name": "str", "out_tensor": "TensorView", "out_slot": "TensorView",
           "out_tensors": "list[TensorView]", "out_comms": "list[Comm]", "all": "bytes", "report": "StepReport", "out_status": "SaveStatus",
           "out_part": "TensorView", "out_text": "str", "reports": "list[StepReport]", "out_data": "int"}


def class_name(name):
    return "".join(word.capitalize() for word in name.removeprefix("otr_").split("_"))


def generate(header):
    handles = {handle.name for handle in header.handles}
    records = {struct.name for struct in header.structs} - NO_CLASS
    out = [HEAD]
    for handle in header.handles:
        out += ["@final", f"class {class_name(handle.name)}(_Handle): ...", ""]
    for constant in header.constants:
        out.append(f"{constant.name.removeprefix('OTR_')}: Final = {constant.value!r}".replace("'", '"'))
    for struct in header.structs:
        if struct.name in records:
            out += ["", *record(struct)]
    out.append("")
    for function in header.functions:
        if function.name in SKIPPED or function.name.endswith(("_destroy", "_init")):
            continue
        out.append(SIGNATURES.get(function.name) or signature(function, handles, records))
        if function.name == "otr_engine_add_parameter":
            out.append("def engine_declare_parameter(engine: Engine, name: str, shape: Iterable[int], "
                       "options: ParamOptions | None) -> int: ...")
        if function.name == "otr_device_get_value":
            out.append("def device_set_allocator(context: Context, device_type: int, device_id: int, allocate: int, release: int) -> None: ...")
        if function.name == "otr_comm_create_shm":
            out.append("def comm_create_custom(context: Context, channel: object) -> Comm: ...")
    return "\n".join(out + [""])


def record(struct):
    """A class of plain fields, and the same fields as keyword arguments."""
    name, fields = class_name(struct.name), []
    for variable in struct.fields:
        hidden = variable.name in HIDDEN_FIELDS or (struct.name, variable.name) == ("otr_message_options", "attribute_count")
        if not hidden and variable.type.base in [*SCALARS, "char"]:
            is_text = variable.type.base == "char"
            fields.append((variable.name, "str" if is_text else SCALARS[variable.type.base], is_text))
    lines = ["@final", f"class {name}({'_Handle' if struct.name in GIVEN else '_Proxy'}):"]
    lines += [f"    {field}: {kind}{' | None' if is_text else ''}" for field, kind, is_text in fields]
    if struct.name == "otr_shard_options":
        lines += [f"    def set_{field}(self, kept: _Tensor | None) -> None: ..." for field in ("published", "remainder")]
    if struct.name in ("otr_save_options", "otr_snapshot_options"):
        lines.append("    def add_part(self, name: str, mine: _Memory) -> None: ...")
    if struct.name == "otr_message_options":
        lines += ["    def set_tag(self, info: CallInfo | None) -> None: ...", "    def add_attribute(self, name: str, text: str) -> None: ..."]
    if struct.name == "otr_load_options":
        lines += [f"    def add_{field}(self, pattern: str) -> None: ..." for field in ("include", "exclude", "resized")]
        lines.append("    def add_renamed(self, here: str, there: str) -> None: ...")
    if struct.name in GIVEN:
        return [*lines, "    def __repr__(self) -> str: ..."]
    lines += ["    def __init__(self) -> None: ...", "", f"class _{name}(TypedDict, total=False):"]
    return lines + [f"    {field}: {kind}" for field, kind, _ in fields]


def signature(function, handles, records):
    taken, given, parameters = [], [], list(function.parameters)
    while parameters:
        parameter = parameters.pop(0)
        name, base = parameter.name, parameter.type.base
        pair = PAIRS.get((base, name))
        if base == "void" and name == "data" and parameters and parameters[0].name == "bytes":
            pair = "_Memory"
        if name == "count" and parameters and parameters[0].type.base == "float":
            pair = "_Memory"
        if pair is not None and parameters:
            parameters.pop(0)
        if pair is not None and pair.startswith("-> "):
            given.append(pair.removeprefix("-> "))
        elif pair is None and (name.startswith("out_") or name in RESULTS) and name in RESULTS:
            given.append(RESULTS[name])
        elif pair is None and name.startswith("out_"):
            given.append(class_name(base) if base in handles | records else SCALARS[base])
        else:
            kind = pair or kind_of(parameter, handles, records)
            if name in MAY_BE_NONE and (function.name, name) not in NEVER_NONE:
                kind += " | None"
            taken.append(f"{'_' if keyword.iskeyword(name) else ''}{name}: {kind}")
    if function.result.base == "char":
        given = ["str"]
    elif function.name == "otr_abi_version":
        given = ["int"]
    elif function.name == "otr_comm_split":
        given = ["Comm | None"]
    result = given[0] if len(given) == 1 else f"list[{given[0]}]" if given else "None"
    return f"def {function.name.removeprefix('otr_')}({', '.join(taken)}) -> {result}: ..."


def kind_of(parameter, handles, records):
    base, levels = parameter.type.base, parameter.type.levels
    known = base in {"char", "otr_tensor", "void"} | handles | records and len(levels) == 1 or base in SCALARS and not levels
    if not known:
        raise ValueError(f"bindings/gen/python.py has no rule for {parameter.type.c} {parameter.name}")
    if base == "char":
        return "str"
    if base == "otr_tensor":
        return "Iterable[_Tensor]" if parameter.name == "values" else "_Tensor"
    if base in handles | records:
        return class_name(base)
    if base == "void":
        return "int | None"  # an address on a device
    return SCALARS[base]
