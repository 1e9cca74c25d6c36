# SPDX-License-Identifier: Apache-2.0
"""julia/src/liboutrigger.jl

Functions that may wait for other processes are marked @gcsafe, so that a thread that
waits does not hold up the other threads' garbage collection.
"""

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
    for function in header.functions:
        names = ", ".join(p.name for p in function.parameters)
        kinds = ", ".join(julia(p.type) for p in function.parameters) + ("," if len(function.parameters) == 1 else "")
        call = f"ccall((:{function.name}, liboutrigger), {julia(function.result)},"
        out += ["", f"{function.name}({names}) =", f"    {'@gcsafe ' if function.waits else ''}{call}",
                f"        ({kinds}),", f"        {names})"] if names else [
                "", f"{function.name}() = {call} ())"]
    return "\n".join(out + [""])
