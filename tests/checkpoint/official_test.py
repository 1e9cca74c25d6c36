# SPDX-License-Identifier: Apache-2.0
"""Our reader and writer of safetensors files beside the official package's.

    official_test.py PROGRAM [ROUNDS]
"""
import ctypes
import json
import random
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy
import safetensors

PROGRAM = ""
ROUNDS = 6000
PACKED = {"F4", "F6_E2M3", "F6_E3M2"}
# As the official writer names them, and what they are in files.
DTYPES = {"bool": "BOOL", "uint8": "U8", "int8": "I8", "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3",
          "float8_e8m0fnu": "F8_E8M0", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ",
          "int16": "I16", "uint16": "U16", "float16": "F16", "bfloat16": "BF16", "int32": "I32", "uint32": "U32",
          "float32": "F32", "complex64": "C64", "float64": "F64", "int64": "I64", "uint64": "U64"}
SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4,
         "C64": 8, "F64": 8, "I64": 8, "U64": 8}


def ours(command, folder):
    """{file: table}, or the error's text instead of a table."""
    done = subprocess.run([PROGRAM, command, folder], capture_output=True, text=True, check=True)
    found = {}
    for line in done.stdout.splitlines():
        told = json.loads(line)
        found[told["file"]] = bytes.fromhex(told["error"]).decode() if "error" in told else told
    return found


def hexed(text):
    return text.encode().hex()


def official(data):
    """The table as the official reader has it, in no order; None if it refuses."""
    try:
        tensors = safetensors.deserialize(data)
    except safetensors.SafetensorError:
        return None
    return sorted([hexed(name), t["dtype"], t["shape"], bytes(t["data"]).hex()] for name, t in tensors)


def raw(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header, ensure_ascii=False).encode()
    return struct.pack("<Q", len(text)) + text + data


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)


class Exchange(Folder):
    def test_ours_is_read_by_the_official_reader(self):
        told = ours("write", self.folder)
        self.assertEqual(sorted(told), ["dtypes", "many", "names", "nothing"])
        for name, table in told.items():
            with self.subTest(file=name):
                path = self.folder / name
                self.assertEqual(official(path.read_bytes()), sorted(table["tensors"]))
                with safetensors.safe_open(path, framework="np") as file:
                    metadata = {hexed(k): hexed(v) for k, v in (file.metadata() or {}).items()}
                    self.assertEqual(metadata, table["metadata"])
                    self.assertEqual(sorted(map(hexed, file.keys())), sorted(t[0] for t in table["tensors"]))
        self.assertEqual({t[1] for t in told["dtypes"]["tensors"]}, set(DTYPES.values()))
        with safetensors.safe_open(self.folder / "dtypes", framework="np") as file:
            values = file.get_tensor("I32.odd")
        self.assertEqual((values.dtype, values.shape), (numpy.int32, (3, 1, 5)))

    def official_file(self, name, specs, metadata=None):
        kept, tensors = [], {}
        for key, (dtype, shape, data) in specs.items():
            buffer = ctypes.create_string_buffer(data, max(len(data), 1))
            kept.append(buffer)
            tensors[key] = safetensors.TensorSpec(dtype=dtype, shape=shape, data_ptr=ctypes.addressof(buffer),
                                                  data_len=len(data))
        (self.folder / name).write_bytes(bytes(safetensors.serialize(tensors, metadata=metadata)))

    def test_official_files_are_read_by_ours(self):
        specs = {}
        for name, dtype in DTYPES.items():
            size = SIZES.get(dtype, 1)
            for shape in ([], [3, 5], [0, 2], [1] * 8):
                count = numpy.prod(shape, dtype=int)
                specs[f"{dtype}.{len(shape)}.é\"\\\n"] = (name, shape, bytes(i % 2 for i in range(count * size)))
        self.official_file("dtypes", specs, {"format": "np", "é\"": "\n\0"})
        self.official_file("nothing", {})
        self.official_file("many", {f"t{i}": ("uint8", [i % 3], bytes(i % 3)) for i in range(100000)})
        for name, table in ours("read", self.folder).items():
            with self.subTest(file=name):
                self.assertIsInstance(table, dict, table)
                self.assertEqual(sorted(table["tensors"]), official((self.folder / name).read_bytes()))
                with safetensors.safe_open(self.folder / name, framework="np") as file:
                    metadata = {hexed(k): hexed(v) for k, v in (file.metadata() or {}).items()}
                self.assertEqual(metadata, table["metadata"])

    def test_dtypes_that_the_official_reader_knows(self):
        """A dtype is read, or refused by its name."""
        for name in sorted(set(DTYPES.values()) | PACKED | {"F8_E3M4", "I4", "C128", "F128", "f32", "U128"}):
            for bits in (4, 6, 8, 16, 32, 64, 128):
                data = bytes(bits)
                file = raw({"a": {"dtype": name, "shape": [8], "data_offsets": [0, bits]}}, data)
                (self.folder / f"{name}.{bits}").write_bytes(file)
        known = 0
        for name, table in ours("read", self.folder).items():
            official_table = official((self.folder / name).read_bytes())
            if official_table is not None and name.split(".")[0] in PACKED:
                self.assertIn("smaller than a byte", table)
            elif official_table is None:
                self.assertIsInstance(table, str, name)
            else:
                known += 1
                self.assertEqual(sorted(table["tensors"]), official_table)
        self.assertEqual(known, len(DTYPES))


class Mutated(Folder):
    """Whatever ours accepts, the official reader accepts, and both say the same."""

    WORDS = [b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b" ", b"\n", b"\t", b"\0", b"0", b"1", b"-", b"-0", b".0", b"e1",
             b"null", b"true", b"18446744073709551615", b"9223372036854775808", b"9223372036854775807", b'"dtype":"U8"',
             b'"shape":[1]', b'"data_offsets":[0,1]', b'"__metadata__":{}', b'"F32"', b'"F4"', b'"BF16"', b'"U8"', b'"a"',
             b"\\u0061", b"\\ud800", b"\\ud83d\\ude00", b"\\u0000", b"\xc3\xa9", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf",
             b"/", b"\\/", b"//", b"+", b"NaN"]

    def table(self, rng):
        header, data, entries = {}, b"", []
        for i in range(rng.randrange(4)):
            dtype = rng.choice(list(SIZES))
            shape = [rng.choice([0, 1, 1, 2, 3]) for _ in range(rng.randrange(4))]
            size = int(numpy.prod(shape, dtype=int)) * SIZES[dtype]
            entries.append((rng.choice(["a", "é", "", "x.y", "\n"]) + str(i),
                            {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + size]}))
            data += bytes(rng.randrange(2) for _ in range(size))
        if rng.randrange(3) == 0:
            entries.append(("__metadata__", {"k": "v", "é": ""}))
        rng.shuffle(entries)
        header.update(entries)
        return header, data

    def change_values(self, rng, header):
        for entry in header.values():
            if "dtype" not in entry or rng.randrange(2):
                continue
            what = rng.randrange(5)
            if what == 0:
                entry["data_offsets"][rng.randrange(2)] += rng.choice([-2, -1, 1, 2, 2**63, 2**64])
            elif what == 1:
                entry["shape"].insert(0, rng.choice([0, 1, 2, -1, 2**31, 2**32, 2**56, 2**62, 2**63, 2**64, 1.0]))
            elif what == 2:
                entry["dtype"] = rng.choice(["F4", "U8", "F31", "F64", "", None])
            elif what == 3:
                entry[rng.choice(["x", "shape", "dtype"])] = rng.choice([None, [], "U8", {}, [[]]])
            else:
                entry.pop(rng.choice(sorted(entry)))

    def change_bytes(self, rng, text):
        at = rng.randrange(len(text) + 1)
        what = rng.randrange(5)
        if what == 0:
            return text[:at] + rng.choice(self.WORDS) + text[at:]
        if what == 1:
            return text[:at] + text[at + rng.randrange(1, 6):]
        if what == 2 and text:
            at %= len(text)
            return text[:at] + bytes([text[at] ^ 1 << rng.randrange(8)]) + text[at + 1:]
        if what == 3:
            start = rng.randrange(len(text) + 1)
            return text[:at] + text[start:start + rng.randrange(40)] + text[at:]
        return text[:at] + rng.choice([b" ", b"\n", b"\r\t"]) + text[at:]

    def mutated(self, rng):
        header, data = self.table(rng)
        if rng.randrange(3) == 0:
            self.change_values(rng, header)
        text = json.dumps(header, ensure_ascii=rng.randrange(2) == 0).encode()
        for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
            text = self.change_bytes(rng, text)
        if rng.randrange(6) == 0:
            data = rng.choice([data + b"x", data[:-1]])
        file = raw(text, data)
        if rng.randrange(12) == 0:
            file = struct.pack("<Q", max(0, len(text) + rng.choice([-9, -1, 1, 9, 2**32]))) + file[8:]
        return file[:rng.randrange(len(file))] if rng.randrange(20) == 0 else file

    def test_ours_is_never_laxer(self):
        rng = random.Random(20240601)
        for number in range(ROUNDS):
            (self.folder / f"{number:06}").write_bytes(self.mutated(rng))
        accepted = refused = stricter = 0
        for name, table in ours("read", self.folder).items():
            data = (self.folder / name).read_bytes()
            theirs = official(data)
            if isinstance(table, str):
                refused += 1
                stricter += theirs is not None
                continue
            accepted += 1
            self.assertIsNotNone(theirs, f"ours accepts {data!r}")
            self.assertEqual(sorted(table["tensors"]), theirs, data)
        print(f"{accepted} accepted, {refused} refused, {stricter} of them by ours only")
        self.assertEqual(accepted + refused, ROUNDS)
        self.assertGreater(accepted, ROUNDS // 10)
        self.assertGreater(refused, ROUNDS // 4)
        self.assertLess(stricter, ROUNDS // 10)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    if len(sys.argv) > 1:
        ROUNDS = int(sys.argv.pop(1))
    unittest.main()
