# SPDX-License-Identifier: Apache-2.0
"""What nvcc makes of the CUDA kernels: arithmetic that rounds once as the oracle's does, and nothing that a step would wait for.
    ptx_test.py ROOT [NVCC]
Needs no GPU. NVCC: default: that of the build folder, which make frameworks puts there."""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1])
NVCC = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "build/cuda/nvidia/cu13/bin/nvcc"
SKIPPED = 77
# Every product and sum rounds by itself: docs/contract.md, as -ffp-contract=off does for the host.
FLAGS = [*(ROOT / "kernels/cuda/nvcc_flags.txt").read_text().split(), "-I", str(ROOT)]
FORMS = {f"otr_{kind}_{form}" for kind in ("update", "decided") for form in range(6)}
KERNELS = {"otr_update", "otr_lamb_norms", "otr_muon_direction", "otr_fold_float32", "otr_fold_bfloat16", "otr_fold_float16",
           "otr_convert", "otr_convert_strided", "otr_product", "otr_update_decided", "otr_begin_sum", "otr_decide"} | FORMS
# What quick_root and quick_quotient begin with; what they make of it rounds once, as the GPU's tests see.
QUICK = ["rcp.approx.ftz.f32", "rsqrt.approx.ftz.f32"]


# What the flags change, and takes no time to compile.
PROBE = """extern "C" __global__ void probe(float* x) { x[0] = x[1] * x[2] + x[3]; x[1] += x[9]; x[4] = x[5] / x[6]; x[7] = sqrtf(x[8]); }"""


def compiled(folder, source, *more):
    """The PTX of a source by the kernels' flags and these besides."""
    out = pathlib.Path(folder) / "kernels.ptx"
    kept = [flag for flag in FLAGS if flag.split("=")[0] not in {other.split("=")[0] for other in more} or "=" not in flag]
    run = subprocess.run([NVCC, *kept, "-arch=compute_90", *more, "-ptx", source, "-o", out], capture_output=True, text=True)
    if run.returncode != 0:
        raise RuntimeError(run.stderr)
    return out


def unsafe(ptx):
    """Instructions that may round otherwise than the oracle: without a rounding, fused by the compiler's choice, flushed, approximate."""
    return sorted(set(re.findall(r"\b(?:mul|add|sub|fma|mad|div|sqrt|rcp|rsqrt)(?!\.(?:rn|wide|lo|hi|cc))\.[a-z0-9.]*f(?:32|64)\b", ptx)) |
                  set(re.findall(r"\b[a-z.0-9]+\.(?:ftz|approx|full)[a-z.0-9]*", ptx)))


class Ptx(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = compiled(cls.folder.name, ROOT / "kernels/cuda/kernels.cu")
        cls.ptx = cls.path.read_text()

    def test_every_kernel_is_there(self):
        self.assertEqual(set(re.findall(r"\.entry (\w+)", self.ptx)), KERNELS)

    def test_every_operation_rounds_once(self):
        self.assertEqual(unsafe(self.ptx), QUICK)
        for name, body in re.findall(r"\.entry (\w+)\(.*?\{(.*?)\n\}", self.ptx, re.DOTALL):
            with self.subTest(kernel=name):
                self.assertEqual(unsafe(body), QUICK if name in FORMS else [])
        for operation in ("mul.rn.f32", "add.rn.f32", "div.rn.f32", "sqrt.rn.f32", "fma.rn.f32", "add.rn.f64"):
            self.assertIn(operation, self.ptx)

    def test_the_check_sees_other_arithmetic(self):
        with tempfile.TemporaryDirectory() as folder:
            probe = pathlib.Path(folder) / "probe.cu"
            probe.write_text(PROBE)
            self.assertEqual(unsafe(compiled(folder, probe).read_text()), [])
            for flag in ("--fmad=true", "--ftz=true", "--prec-div=false", "--prec-sqrt=false"):
                with self.subTest(flag=flag):
                    self.assertTrue(set(unsafe(compiled(folder, probe, flag).read_text())) - set(QUICK))

    def test_memory_moves_sixteen_bytes_at_a_time(self):
        for operation in (r"ld\.[a-z.]*v4\.u32", r"st\.[a-z.]*v4\.u32"):
            self.assertGreater(len(re.findall(operation, self.ptx)), 3, operation)

    def test_registers_suffice(self):
        """No array of the hot kernels is in memory, and four blocks of 128 threads fit an SM."""
        out = pathlib.Path(self.folder.name) / "kernels.cubin"
        run = subprocess.run([NVCC.parent / "ptxas", "-v", "-arch=sm_90", self.path, "-o", out], capture_output=True, text=True, check=True)
        told = re.findall(r"entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores.*?Used (\d+) registers", run.stderr, re.DOTALL)
        self.assertEqual({name for name, *_ in told}, KERNELS)
        for name, stack, spilled, registers in told:
            with self.subTest(kernel=name):
                self.assertLessEqual(int(registers), 128)
                if name not in ("otr_convert", "otr_lamb_norms"):  # which keep a few words there
                    self.assertEqual((int(stack), int(spilled)), (0, 0))


if __name__ == "__main__":
    if not NVCC.is_file():
        print(f"ptx_test: skipped, there is no {NVCC} (make frameworks)")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
