# SPDX-License-Identifier: Apache-2.0
"""rust/outrigger-sys/src/bindings.rs"""

SCALARS = {
    "int32_t": "i32", "uint32_t": "u32", "int64_t": "i64", "uint64_t": "u64", "uint8_t": "u8", "uint16_t": "u16",
    "size_t": "usize", "float": "f32", "double": "f64", "char": "c_char", "void": "c_void",
}
OPAQUE = "    _data: [u8; 0],\n    _marker: PhantomData<(*mut u8, PhantomPinned)>,\n"


def generate(header):
    callbacks = {callback.name for callback in header.callbacks}

    def rust(kind):
        text = SCALARS.get(kind.base, kind.base)
        for const in kind.levels:
            text = f"*const {text}" if const else f"*mut {text}"
        return text

    def field_type(variable):
        text = rust(variable.type)
        if variable.type.base in callbacks:
            text = f"Option<{text}>"
        return f"[{text}; {variable.length}]" if variable.length else text

    def signature(function):
        parameters = ", ".join(f"{p.name}: {field_type(p)}" for p in function.parameters)
        result = "" if function.result.c == "void" else f" -> {rust(function.result)}"
        return f"({parameters}){result}"

    out = ["// SPDX-License-Identifier: Apache-2.0 OR MIT",
           "// Generated from outrigger.h by bindings/gen; not to be edited.",
           "use core::ffi::{c_char, c_void};",
           "use core::marker::{PhantomData, PhantomPinned};", ""]
    for constant in header.constants:
        out += doc(constant.doc)
        if isinstance(constant.value, str):
            out.append(f'pub const {constant.name}: &str = "{constant.value}";')
        else:
            out.append(f"pub const {constant.name}: {'u32' if constant.unsigned else 'i32'} = {constant.value};")
    for handle in header.handles:
        out += ["", *doc(handle.doc), "#[repr(C)]", f"pub struct {handle.name} {{", OPAQUE + "}"]
    for callback in header.callbacks:
        out += ["", *doc(callback.doc), f'pub type {callback.name} = unsafe extern "C" fn{signature(callback)};']
    for struct in header.structs:
        out += ["", *doc(struct.doc), "#[repr(C)]", "#[derive(Clone, Copy, Debug)]", f"pub struct {struct.name} {{"]
        for variable in struct.fields:
            out += doc(variable.doc, "    ")
            out.append(f"    pub {variable.name}: {field_type(variable)},")
        out.append("}")
    out += ["", 'extern "C" {']
    for function in header.functions:
        out += doc(function.doc, "    ")
        out.append(f"    pub fn {function.name}{signature(function)};")
    return "\n".join(out + ["}", ""])


def doc(text, indent=""):
    return [f"{indent}/// {line}".rstrip() for line in text.split("\n")] if text else []
