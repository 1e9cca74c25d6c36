# SPDX-License-Identifier: Apache-2.0
"""The Java package's enumerations of constants, and its records of the structs that the library fills."""

ROOT = "bindings/java/src/main/java/io/outrigger/"
# Their constants' beginning, and what they are.
ENUMERATIONS = {
    "Status": ("OTR_E_", "Why a call failed."),
    "Value": ("OTR_VALUE_", "A value of a parameter."),
    "Outcome": ("OTR_STEP_", "What a step did."),
    "Skip": ("OTR_SKIP_", "Why a step was skipped."),
    "Boundary": ("OTR_BOUNDARY_", "Who ends accumulation windows."),
}
GIVEN = {"Value", "Boundary"}  # to the library, and never by it
ENUMERATED = {"outcome": "Outcome", "reason": "Skip"}
MEANINGS = {"outcome": "what the step did", "reason": "why it was skipped"}
TYPES = {"int32_t": "int", "int64_t": "long", "double": "double"}


def generators():
    found = {f"{ROOT}{name}.java": (lambda header, name=name: enumeration(header, name)) for name in ENUMERATIONS}
    found[f"{ROOT}StepReport.java"] = step_report
    return found


def head():
    return ["// SPDX-License-Identifier: Apache-2.0", "// Generated from outrigger.h by bindings/gen; not to be edited.", "package io.outrigger;", ""]


def sentence(text, indent):
    """A comment of C as documentation: it begins with a capital letter and ends with a full stop."""
    text = " ".join((text or "").split())
    if not text:
        return []
    begin = text[:1] if text.startswith("otr_") else text[:1].upper()
    return [f"{indent}/** {begin}{text[1:]}{'' if text.endswith('.') else '.'} */"]


def enumeration(header, name):
    beginning, meaning = ENUMERATIONS[name]
    constants = [each for each in header.constants if each.name.startswith(beginning) and not isinstance(each.value, str)]
    out = [*head(), f"/** {meaning} */", f"public enum {name} {{"]
    for constant in constants:
        out += [*sentence(constant.doc, "    "), f"    {constant.name.removeprefix(beginning)}({constant.value}),"]
    if name == "Status":
        out += ["    /** A status of a later release of the library. */", "    UNKNOWN(0),"]
    out[-1] = out[-1][:-1] + ";"
    out += ["", "    private final int number;", "", f"    {name}(int number) {{", "        this.number = number;", "    }", "",
            "    /** The constant's number in outrigger.h. */", "    public int number() {", "        return number;", "    }", "",
            f"    static {name} of(int number) {{", f"        for ({name} each : values()) {{", "            if (each.number == number) {",
            "                return each;", "            }", "        }"]
    if name == "Status":
        out.append("        return UNKNOWN;")
    else:
        out.append(f'        throw new IllegalArgumentException("{name} has no " + number + ": the library is of a later release");')
    return "\n".join([*out, "    }", "}", ""])


def camel(name):
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def step_report(header):
    struct = next(each for each in header.structs if each.name == "otr_step_report")
    fields = [each for each in struct.fields if each.name != "struct_size"]
    out = [*head(), "/**", " * What a step did, and why.", " *"]
    out += [f" * @param {camel(each.name)} {MEANINGS.get(each.name) or ' '.join(each.doc.split())}" for each in fields]
    kinds = [f"{ENUMERATED.get(each.name, TYPES[each.type.base])} {camel(each.name)}" for each in fields]
    out += [" */", "public record StepReport(", "        " + ",\n        ".join(kinds) + ") {",
            "    /** Whether parameters were updated. */", "    public boolean isApplied() {", "        return outcome == Outcome.APPLIED;", "    }", "",
            "    /** Whether nothing was updated, for reason(). */", "    public boolean isSkipped() {", "        return outcome == Outcome.SKIPPED;",
            "    }", "", "    /** Copies the library's report and gives it back. */", "    static StepReport of(io.outrigger.lowlevel.StepReport made) {",
            "        try {", "            return new StepReport("]
    given = []
    for each in fields:
        text = f"made.get{each.name[0].upper()}{each.name[1:]}()"
        given.append(f"{ENUMERATED[each.name]}.of({text})" if each.name in ENUMERATED else text)
    out += ["                    " + ",\n                    ".join(given) + ");", "        } finally {", "            made.delete();", "        }", "    }", "}", ""]
    return "\n".join(out)
