# SPDX-License-Identifier: Apache-2.0
"""julia/src/liboutrigger.jl

Each call is marked with what it has to do besides (julia/src/calls.jl). waits: it may wait for other processes, and must not hold up other
threads' garbage collection meanwhile. alone, beside: whether other calls may run on its first handle at the same time.
"""

# They write to the log and may find it taken by a thread of the library, or wait for the end of such a thread.
LOGS = {"otr_engine_create", "otr_engine_destroy", "otr_optimizer_create", "otr_pass_begin"}

SCALARS = {
    "int32_t": "Int32", "uint32_t": "UInt32", "int64_t": "Int64", "uint64_t": "UInt64", "uint8_t": "UInt8",
    "uint16_t": "UInt16", "size_t": "Csize_t", "float": "Float32", "double": "Float64", "char": "UInt8", "void": "Cvoid",
}


def generate(header):
    callbacks = {callback.name for callback in header.callbacks}

    def julia(kind):
        base, levels = SCALARS.get(kind.base, kind.base), list(kind.levels)
        if kind.base in callbacks:
            base = "Ptr{Cvoid}"
        if kind.base == "char" and levels and levels[0]:  # const char *: a NUL-terminated text
            base = "Cstring"
            levels.pop(0)
        return "Ptr{" * len(levels) + base + "}" * len(levels)

    def field_type(variable):
        text = julia(variable.type)
        return f"NTuple{{{variable.length}, {text}}}" if variable.length else text

    out = ["# SPDX-License-Identifier: Apache-2.0",
           "# Generated from outrigger.h by bindings/gen; not to be edited.", ""]
    for constant in header.constants:
        value = constant.value
        out.append(f'const {constant.name} = "{value}"' if isinstance(value, str) else
                   f"const {constant.name} = {'UInt32' if constant.unsigned else 'Int32'}({value})")
    for handle in header.handles:
        out += ["", f"mutable struct {handle.name} end"]
    for struct in header.structs:
        out += ["", f"struct {struct.name}"]
        out += [f"    {variable.name}::{field_type(variable)}" for variable in struct.fields]
        out.append("end")
    handles = {handle.name for handle in header.handles}

    def marks(function, described):
        first = function.parameters[0].type if function.parameters else None
        found = ["waits"] if function.waits or function.name in LOGS else []
        if first and first.base in handles and len(first.levels) == 1 and not function.name.endswith("_destroy"):
            shared = first.base == "otr_context" or described.any_thread  # a context's functions keep to its own locks
            found.append("beside" if shared else "alone")
        return f"@call {' '.join(found)} " if found else ""

    described = None
    for function in header.functions:
        described = function if function.doc else described  # one comment for two functions
        names = ", ".join(p.name for p in function.parameters)
        kinds = ", ".join(julia(p.type) for p in function.parameters) + ("," if len(function.parameters) == 1 else "")
        call = f"ccall((:{function.name}, liboutrigger), {julia(function.result)},"
        out += ["", f"{function.name}({names}) =", f"    {marks(function, described)}{call}",
                f"        ({kinds}),", f"        {names})"] if names else [
                "", f"{function.name}() = {call} ())"]
    return "\n".join(out + [""])
