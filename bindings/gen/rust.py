# SPDX-License-Identifier: Apache-2.0
"""rust/outrigger-sys/src/bindings.rs, and the enumerations of the safe crate: rust/outrigger/src/generated.rs"""
import re

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
    out += ["", "functions! {"]
    for function in header.functions:
        out += doc(function.doc, "    ")
        out.append(f"    pub fn {function.name}{signature(function)};")
    return "\n".join(out + ["}", ""])


def doc(text, indent=""):
    """A comment as documentation: no Markdown, so that brackets are no links and no HTML."""
    text = re.sub(r"[][<>]", lambda bracket: "\\" + bracket[0], text or "")
    return [f"{indent}/// {line}".rstrip() for line in text.split("\n")] if text else []


# The safe crate's enumerations: their constants' beginning, and what they are.
ENUMERATIONS = {
    "Value": ("OTR_VALUE_", "A value of a parameter."),
    "Outcome": ("OTR_STEP_", "What a step did."),
    "Skip": ("OTR_SKIP_", "Why a step was skipped."),
    "Boundary": ("OTR_BOUNDARY_", "Who ends accumulation windows."),
    "SaveState": ("OTR_SAVE_", "How an asynchronous save is getting on."),
}
NOT_IN = {"OTR_SAVE_WAIT", "OTR_SAVE_REFUSE"}  # of an enumeration of another meaning
GIVEN = {"Value", "Boundary"}  # to the library, and never by it


def camel(name):
    return "".join(word.capitalize() for word in name.lower().split("_"))


def generate_safe(header):
    def of(beginning):
        return [constant for constant in header.constants if constant.name.startswith(beginning) and constant.name not in NOT_IN
                and not isinstance(constant.value, str)]

    errors = [(camel(constant.name.removeprefix("OTR_E_")), constant) for constant in of("OTR_E_")]
    out = ["// SPDX-License-Identifier: Apache-2.0 OR MIT",
           "// Generated from outrigger.h by bindings/gen; not to be edited.", "",
           "/// Why a call failed, with the library's text: the offending value, the rule and the way out.",
           "#[derive(Clone, Debug, PartialEq, Eq)]", "#[non_exhaustive]", "pub enum Error {"]
    for name, constant in errors:
        out += [*sentence(constant.doc, "    "), f"    {name}(String),"]
    out += ["    /// A status of a later release of the library.", "    Other(i32, String),", "}", "", "impl Error {",
            "    /// The library's status code.", "    pub fn status(&self) -> i32 {", "        match self {"]
    out += [f"            Self::{name}(_) => outrigger_sys::{constant.name}," for name, constant in errors]
    out += ["            Self::Other(status, _) => *status,", "        }", "    }", "    /// The library's text.",
            "    pub fn message(&self) -> &str {", "        match self {"]
    out += ["            " + "\n            | ".join([f"Self::{name}(text)" for name, _ in errors] + ["Self::Other(_, text)"]) + " => text,",
            "        }", "    }", "    pub(crate) fn new(status: i32, text: String) -> Self {", "        match status {"]
    out += [f"            outrigger_sys::{constant.name} => Self::{name}(text)," for name, constant in errors]
    out += ["            _ => Self::Other(status, text),", "        }", "    }", "}"]
    for name, (beginning, meaning) in ENUMERATIONS.items():
        constants = of(beginning)
        out += ["", f"/// {meaning}", "#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]", "#[non_exhaustive]", "#[repr(i32)]", f"pub enum {name} {{"]
        for constant in constants:
            out += [*sentence(constant.doc, "    "), f"    {camel(constant.name.removeprefix(beginning))} = {constant.value},"]
        out.append("}")
        if name in GIVEN:
            continue
        out += ["", f"impl {name} {{", "    pub(crate) fn from_raw(raw: i32) -> Option<Self> {", "        match raw {"]
        out += [f"            {constant.value} => Some(Self::{camel(constant.name.removeprefix(beginning))})," for constant in constants]
        out += ["            _ => None,", "        }", "    }", "}"]
    return "\n".join(out + [""])


def sentence(text, indent):
    """A comment of a constant as documentation: it begins with a capital letter and ends with a full stop."""
    text = (text or "").strip()
    if text and not text.endswith("."):
        text += "."
    begin = text[:1] if text.startswith("otr_") else text[:1].upper()
    return doc(begin + text[1:], indent) if text else [f"{indent}#[allow(missing_docs)]"]
