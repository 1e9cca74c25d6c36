# SPDX-License-Identifier: Apache-2.0
"""bindings/gen reads what the header may contain and refuses everything else."""
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bindings/gen"))

import calls  # noqa: E402
import docs  # noqa: E402
import header  # noqa: E402
import java  # noqa: E402
import julia  # noqa: E402
import layout  # noqa: E402
import python  # noqa: E402
import rust  # noqa: E402

SMALL = """
/* The file. */
#include <stdint.h>
#define OTR_ABI_VERSION 3
#define OTR_VERSION_STRING "1.2"
#define OTR_INIT {1}
#ifdef __cplusplus
extern "C" {
#else
#define OTR_NOEXCEPT
#endif
enum { OTR_OK = 0, /* fine */ OTR_BAD = -7, OTR_FLAG = 1u };
/* A thing. */
typedef struct otr_thing otr_thing;
typedef void (*otr_callback)(int32_t level, const char *text, void *user_data);
typedef struct otr_options {
  uint32_t struct_size;
  otr_callback call; /* or NULL */
  const char *name;
  uint64_t reserved[6];
} otr_options;
/* Makes one. Collective. Since: 0.1 */
OTR_API int32_t otr_thing_create(const otr_options *options, otr_thing **out_thing) OTR_NOEXCEPT;
OTR_API const char *otr_name(void) OTR_NOEXCEPT;
OTR_API void otr_all(otr_thing *const *things, size_t count, double *values) OTR_NOEXCEPT;
/* Asks. May wait. Since: 0.1 */
OTR_API int32_t otr_ask(otr_thing *thing, double seconds) OTR_NOEXCEPT;
/* Tells. Any
 * thread. Collective where that has to be. Since: 0.1 */
OTR_API int32_t otr_tell(const otr_thing *thing, const char *text) OTR_NOEXCEPT;
"""


class Generator(unittest.TestCase):
    def test_model(self):
        model = header.parse(SMALL)
        self.assertEqual([(c.name, c.value, c.unsigned) for c in model.constants],
                         [("OTR_ABI_VERSION", 3, False), ("OTR_VERSION_STRING", "1.2", False), ("OTR_OK", 0, False),
                          ("OTR_BAD", -7, False), ("OTR_FLAG", 1, True)])
        self.assertEqual([h.name for h in model.handles], ["otr_thing"])
        self.assertEqual([f.name for f in model.structs[0].fields], ["struct_size", "call", "name", "reserved"])
        self.assertEqual([f.waits for f in model.functions], [True, False, False, True, True])
        self.assertEqual([f.any_thread for f in model.functions], [False, False, False, False, True])
        self.assertEqual(model.functions[2].parameters[0].type.c, "otr_thing *const *")

    def test_rust(self):
        text = rust.generate(header.parse(SMALL))
        for line in ("pub const OTR_BAD: i32 = -7;", "pub const OTR_FLAG: u32 = 1;", "    pub call: Option<otr_callback>,",
                     "    pub reserved: [u64; 6],", "    pub fn otr_name() -> *const c_char;",
                     "    pub fn otr_thing_create(options: *const otr_options, out_thing: *mut *mut otr_thing) -> i32;",
                     "    pub fn otr_all(things: *const *mut otr_thing, count: usize, values: *mut f64);"):
            self.assertIn(line + "\n", text)

    def test_julia(self):
        text = julia.generate(header.parse(SMALL))
        for line in ("const OTR_BAD = Int32(-7)", "    call::Ptr{Cvoid}", "    reserved::NTuple{6, UInt64}",
                     "    @call waits ccall((:otr_thing_create, liboutrigger), Int32,",
                     "        (Ptr{otr_options}, Ptr{Ptr{otr_thing}}),", "        (Ptr{Ptr{otr_thing}}, Csize_t, Ptr{Float64}),",
                     "    @call waits alone ccall((:otr_ask, liboutrigger), Int32,",
                     "    @call waits beside ccall((:otr_tell, liboutrigger), Int32,",
                     "otr_name() = ccall((:otr_name, liboutrigger), Cstring, ())"):
            self.assertIn(line + "\n", text)

    def test_python(self):
        arrays = "OTR_API void otr_all(otr_thing *const *things, size_t count, double *values) OTR_NOEXCEPT;"
        text = python.generate(header.parse(SMALL.replace(arrays, "")))
        for line in ("class Thing(_Handle): ...", "BAD: Final = -7", "    name: str | None", "class _Options(TypedDict, total=False):",
                     "def thing_create(options: Options | None) -> Thing: ...", "def name() -> str: ...",
                     "def ask(thing: Thing, seconds: float) -> None: ..."):
            self.assertIn(line + "\n", text)
        self.assertNotIn("reserved", text)
        with self.assertRaisesRegex(ValueError, "no rule for otr_thing .* things"):
            python.generate(header.parse(SMALL))

    def test_docstrings(self):
        text = docs.generate(header.parse(SMALL.replace("Asks.", 'Asks "why".')))
        self.assertIn('%feature("docstring") otr_ask "Asks \\"why\\". May wait. Since: 0.1";\n', text)
        self.assertIn('%feature("docstring") otr_options::call "or NULL";\n', text)

    def test_calls(self):
        text = calls.generate(header.parse(SMALL))
        for line in ("%ignore otr_thing_create;", "%rename(thing_create) otr_plain_thing_create;", "%newobject otr_plain_thing_create;",
                     "static otr_thing *otr_plain_thing_create(const otr_options *options, int32_t *status) {",
                     "  *status = otr_thing_create(options, &made);",
                     "static void otr_plain_ask(otr_thing *thing, double seconds, int32_t *status) {"):
            self.assertIn(line + "\n", text)
        self.assertNotIn("otr_plain_all", text)  # it has no status
        with self.assertRaisesRegex(ValueError, "otr_f: the parameter float . x has no form"):
            calls.generate(header.parse(SMALL + "OTR_API int32_t otr_f(float *x) OTR_NOEXCEPT;"))
        with self.assertRaisesRegex(ValueError, "otr_f has two results"):
            calls.generate(header.parse(SMALL + "OTR_API int32_t otr_f(int32_t *out_a, int64_t *out_b) OTR_NOEXCEPT;"))

    def test_java(self):
        model = header.parse(SMALL.replace("OTR_BAD = -7,", "OTR_E_BAD = -7, /* not good */"))
        text = java.enumeration(model, "Status")
        self.assertIn("    /** Not good. */\n    BAD(-7),\n", text)
        self.assertIn("    UNKNOWN(0);\n", text)

    def test_layout(self):
        text = layout.generate(header.parse(SMALL))
        self.assertIn("(*const is_otr_all)(otr_thing *const *, size_t, double *) = otr_all;", text)
        self.assertIn("  OFFSET(otr_options, reserved);\n", text)

    def test_what_it_cannot_read_is_an_error(self):
        for addition in ("OTR_API long otr_f(void) OTR_NOEXCEPT;", "OTR_API int32_t otr_f(otr_other *x) OTR_NOEXCEPT;",
                         "OTR_API int32_t otr_f(void);", "typedef union otr_u { int32_t a; } otr_u;",
                         "enum { OTR_A = 1 << 2 };", "int32_t otr_global;"):
            with self.subTest(addition), self.assertRaises(header.HeaderError):
                header.parse(SMALL + addition)


if __name__ == "__main__":
    unittest.main()
