# SPDX-License-Identifier: Apache-2.0
"""c_api/include/outrigger_api.h and c_api/src/api_table.h

All functions as one table, for programs that load the library at run time. c_api/symbols.txt has their order: a new
function goes to its end, so that the table of an older program is the beginning of a newer library's.
"""
import pathlib

from header import HeaderError

SYMBOLS = pathlib.Path(__file__).resolve().parents[2] / "c_api/symbols.txt"

HEAD = """/* SPDX-License-Identifier: Apache-2.0
 * Generated from outrigger.h by bindings/gen; not to be edited.
 *
 * The functions of outrigger.h as one table, for a program that loads the library at run time and
 * is not linked against it. docs/c.md has a whole program:
 *
 *   void *library = dlopen("liboutrigger.so.0", RTLD_NOW | RTLD_LOCAL);
 *   otr_get_api_function get_api = (otr_get_api_function)dlsym(library, "otr_get_api");
 *   const otr_api *otr = NULL;
 *   if (get_api(OTR_ABI_VERSION, sizeof *otr, &otr) == OTR_OK) otr->context_create(NULL, &context);
 */
#ifndef OUTRIGGER_API_H
#define OUTRIGGER_API_H

#include "outrigger.h"

#ifdef __cplusplus
extern "C" {
#endif

/* clang-format off */

/* Each member is the function otr_<member> of outrigger.h, and does what stands there. A later
 * release adds members at the end. Never NULL as far as struct_size goes. */
typedef struct otr_api {
  uint32_t struct_size; /* of the library that is loaded; at least what the program asked for */
  uint32_t reserved0;
"""

TAIL = """} otr_api;

/* clang-format on */

/* The table of the library that is loaded. abi_version: OTR_ABI_VERSION; size: sizeof(otr_api),
 * both as the program was built with; a smaller size asks for the first members alone. *out_api is
 * static. OTR_E_ABI: the library has another binary interface, or is older and lacks members. On an
 * error *out_api is NULL, and otr_last_error_message (by dlsym, too) says why. Any thread. Since:
 * 0.1 */
OTR_API int32_t otr_get_api(int32_t abi_version, size_t size, const otr_api **out_api) OTR_NOEXCEPT;

/* What dlsym(library, "otr_get_api") gives. */
typedef int32_t (*otr_get_api_function)(int32_t abi_version, size_t size, const otr_api **out_api);

#ifdef __cplusplus
}
#endif

#endif /* OUTRIGGER_API_H */
"""


def functions(header):
    """The header's functions in the table's order."""
    order = SYMBOLS.read_text(encoding="utf-8").split()
    known = {function.name: function for function in header.functions}
    gone, new = set(order) - set(known), set(known) - set(order)
    if gone or new or len(order) != len(known):
        raise HeaderError(f"{SYMBOLS.name} and outrigger.h differ: new {sorted(new)}, gone {sorted(gone)}; run python3 tests/abi/freeze.py")
    return [known[name] for name in order]


def member(name):
    return name.removeprefix("otr_")


def generate_header(header):
    return HEAD + "".join(f"  {function.c_pointer(member(function.name))};\n" for function in functions(header)) + TAIL


def generate_table(header):
    lines = [f"    .{member(function.name)} = {function.name},\n" for function in functions(header)]
    return ("// SPDX-License-Identifier: Apache-2.0\n"
            "// Generated from outrigger.h by bindings/gen; not to be edited.\n"
            "#pragma once\n\n"
            '#include "outrigger_api.h"\n\n'
            "// clang-format off\n"
            "namespace outrigger::c_api {\n\n"
            "inline constexpr otr_api kApi = {\n"
            "    .struct_size = sizeof(otr_api),\n"
            "    .reserved0 = 0,\n" + "".join(lines) + "};\n\n"
            "}  // namespace outrigger::c_api\n"
            "// clang-format on\n")
