# SPDX-License-Identifier: Apache-2.0
"""tests/bindings/layout/layout.c

A C compiler's view of outrigger.h, as lines of text: sizes, offsets, constants and signatures. The tests
of Rust and Julia produce the same lines from their own declarations and compare. The file fails to
compile where the generator has misread a prototype.
"""

HEAD = """/* SPDX-License-Identifier: Apache-2.0
 * Generated from outrigger.h by bindings/gen; not to be edited. */
#include "outrigger.h"
#include "layout.h"
"""


def generate(header):
    out = [HEAD]
    for function in header.functions:  # an incompatible pointer is an error under -Werror
        kinds = ", ".join(p.type.c for p in function.parameters) or "void"
        out.append(f"static {function.result.c} (*const is_{function.name})({kinds}) = {function.name};")
    out += ["", "void layout_print(FILE *out) {"]
    for constant in header.constants:
        if isinstance(constant.value, int):
            out.append(f"  CONSTANT({constant.name});")
    for struct in header.structs:
        out.append(f"  SIZE({struct.name});")
        out += [f"  OFFSET({struct.name}, {variable.name});" for variable in struct.fields]
    for function in header.functions:
        out.append(f'  BEGIN({function.name});')
        out += [f"  KIND({p.type.c});" for p in function.parameters]
        out.append("  END_VOID();" if function.result.c == "void" else f"  END({function.result.c});")
    return "\n".join(out + ["}", ""])
