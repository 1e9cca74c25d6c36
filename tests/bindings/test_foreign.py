# SPDX-License-Identifier: Apache-2.0
"""outrigger.foreign without PyTorch: values of DeepSpeed's checkpoints bit by bit, and files that are damaged, or that mean harm."""
import collections
import gc
import io
import os
import pickle
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

import numpy

from outrigger import foreign
from outrigger.foreign import files, objects, pickles

DATA = Path(__file__).parent / "torch/data"
ORDER = [["a.weight", "b.weight", "c.weight"], ["a.bias", "b.bias", "again.bias", "c.bias"]]
CASES = sorted(path.name for path in DATA.iterdir() if path.is_dir())
REFERENCE = {"universal1": "zero1_bf16", "universal3": "zero3"}
MODEL, OPTIM = "mp_rank_00_model_states.pt", "zero_pp_rank_{}_mp_rank_00_optim_states.pt"


class Values(unittest.TestCase):
    def test_they_are_deepspeeds(self):
        self.assertEqual(len(CASES), 14)
        for name in CASES:
            found = foreign.open(DATA / name, order=ORDER)
            found.verify()
            expected = numpy.load(DATA / f"{REFERENCE.get(name, name)}.npz")
            self.assertGreaterEqual(len(expected.files), 11)
            for key in expected.files:
                of, value = key.rsplit("/", 1)
                got = found.buffers[of] if value == "buffer" else found.read(of, {"momentum_buffer": "exp_avg"}.get(value, value))
                with self.subTest(name=name, key=key):
                    self.assertEqual(got.shape, expected[key].shape)
                    self.assertTrue(numpy.array_equal(got, expected[key]))

    def test_more_files_than_may_be_open(self):
        """Each value of the universal format has one."""
        self.assertGreater(sum(len(each) for _, _, each in os.walk(DATA / "universal3")), 20)
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(map(int, os.listdir("/proc/self/fd")))
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 5, before[1]))
            found = foreign.open(DATA / "universal3")
            found.verify()
            values = {key: found.read(*key.rsplit("/", 1)) for key in numpy.load(DATA / "zero3.npz").files if not key.endswith("buffer")}
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        expected = numpy.load(DATA / "zero3.npz")
        for key, value in values.items():
            self.assertTrue(numpy.array_equal(value, expected[key]), key)
        maps = Path("/proc/self/maps")
        self.assertIn("universal3", maps.read_text())
        del found
        gc.collect()
        self.assertNotIn("universal3", maps.read_text())

    def test_what_else_there_is(self):
        found = foreign.open(DATA / "zero2_fp16")
        self.assertEqual(found.kind, "deepspeed stage 2")
        self.assertEqual(found.parameters["c.weight"], (3, 13))
        self.assertEqual(found.aliases, {"again.weight": "b.weight"})
        self.assertTrue(numpy.array_equal(found.read("again.weight"), found.read("b.weight")))
        self.assertEqual(found.values("fixed.bias"), ["published"])
        progress = found.progress
        self.assertEqual((progress.global_steps, progress.skipped_steps, set(progress.updates.values())), (8, 4, {4}))
        self.assertEqual(progress.loss_scale, {"scale": 65536.0, "windows": 8, "last_overflow": 4, "hysteresis_left": 1})
        self.assertEqual([group["weight_decay"] for group in progress.groups], [0.1, 0.0])
        self.assertEqual([sorted(each) for each in progress.names], [sorted(each) for each in ORDER])
        self.assertEqual(found.scheduler, {"last_batch_iteration": 3})
        client = found.client_state
        self.assertEqual((client["epoch"], client["nested"], client["order"].tolist()), (3, {"seen": [1, 2.5, None, True]}, [0, 1, 2, 3, 4]))
        self.assertEqual(set(client), {"epoch", "note", "nested", "order"})

    def test_neither_torch_nor_deepspeed_is_imported(self):
        program = f"import sys, outrigger.foreign as f; f.open({str(DATA / 'zero3')!r}).read('a.weight'); sys.exit('torch' in sys.modules or 'deepspeed' in sys.modules)"
        self.assertEqual(subprocess.run([sys.executable, "-c", program], check=False).returncode, 0)

    def test_what_is_not_there(self):
        with self.assertRaisesRegex(foreign.ForeignError, "no exp_avg of 'fixed.bias'; of it there are published"):
            foreign.open(DATA / "zero2").read("fixed.bias", "exp_avg")
        with self.assertRaisesRegex(foreign.ForeignError, "no such parameter"):
            foreign.open(DATA / "zero2").read("nothing")
        with self.assertRaisesRegex(foreign.ForeignError, "is no checkpoint of DeepSpeed"):
            foreign.open(DATA)
        with self.assertRaisesRegex(foreign.ForeignError, "no name of a folder"):
            foreign.open(DATA / "zero2", "../zero3")
        with self.assertRaisesRegex(foreign.ForeignError, "give order="):
            foreign.open(DATA / "zero0")
        self.assertIsNone(foreign.find(DATA))


class Damage(unittest.TestCase):
    def setUp(self):
        own = tempfile.TemporaryDirectory()
        self.addCleanup(own.cleanup)
        self.root = Path(own.name)

    def copy(self, name="zero2"):
        shutil.copytree(DATA / name, self.root / name)
        return self.root / name, self.root / name / "global_step8"

    def refused(self, expected, path):
        with self.assertRaisesRegex(foreign.ForeignError, expected):
            foreign.open(path, order=ORDER).verify()

    def test_a_truncated_file(self):
        path, folder = self.copy()
        for name in (MODEL, OPTIM.format(1)):
            whole = (folder / name).read_bytes()
            for size in {0, 1, 3, 22, 100, len(whole) // 2, *range(1000, len(whole), 997), len(whole) - 1}:
                (folder / name).write_bytes(whole[:size])
                with self.subTest(name=name, size=size):
                    self.refused(name, path)
            (folder / name).write_bytes(whole)
        foreign.open(path).verify()

    def test_a_flipped_bit(self):
        """In the pickle or a value: seen. In a zip's own fields: another checkpoint, or seen, and never another error."""
        path, folder = self.copy()
        file = folder / OPTIM.format(0)
        whole = file.read_bytes()
        with zipfile.ZipFile(file) as archive:
            entries = [each for each in archive.infolist() if each.filename.endswith("data.pkl") or "/data/" in each.filename and each.file_size > 100]
        for entry in entries:
            first = entry.header_offset + 30 + sum(struct.unpack("<HH", whole[entry.header_offset + 26:entry.header_offset + 30]))
            for at in {first, first + entry.file_size // 2, first + entry.file_size - 1}:
                file.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1:])
                with self.subTest(entry=entry.filename, at=at):
                    self.refused("CRC-32", path)
        for at in range(0, len(whole), 61):
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x81]) + whole[at + 1:])
            try:
                foreign.open(path).verify()
            except foreign.ForeignError as error:
                self.assertIn("zero2", str(error))

    def test_ranks_that_are_not_there_or_of_another_save(self):
        path, folder = self.copy()
        (folder / OPTIM.format(1)).unlink()
        self.refused("no file of rank 1", path)
        shutil.copy(DATA / "zero2_fp16/global_step8" / OPTIM.format(1), folder)
        self.refused("rank_1_.*steps.*two saves", path)
        shutil.copy(DATA / "zero1/global_step8" / OPTIM.format(1), folder)  # as many steps, other values
        self.refused("the weight .* is not the master", path)
        shutil.copy(DATA / "zero2/global_step8" / OPTIM.format(1), folder)
        shutil.copy(folder / OPTIM.format(1), folder / OPTIM.format(2))
        self.refused("rank_2_.*a rank that did not take part", path)
        (folder / OPTIM.format(2)).unlink()
        shutil.copy(folder / OPTIM.format(1), folder / f"bf16_{OPTIM.format(1)}")
        self.refused("a second file of rank 1", path)
        (folder / f"bf16_{OPTIM.format(1)}").unlink()
        shutil.copy(folder / MODEL, folder / "mp_rank_01_model_states.pt")
        self.refused("mp_rank_01.*tensor or pipeline", path)

    def test_links_and_pipes(self):
        path, folder = self.copy()
        file = folder / OPTIM.format(0)
        file.rename(self.root / "elsewhere")
        file.symlink_to(self.root / "elsewhere")
        self.refused("symbolic link", path)
        file.unlink()
        os.mkfifo(file)
        self.refused("no regular file", path)
        file.unlink()
        (path / "latest").unlink()
        (path / "latest").write_text("../zero2/global_step8")
        self.refused("no name of a folder", path)

    def save(self, data, **storages):
        """A file of torch.save with this pickle."""
        file = self.root / "made.pt"
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("made/data.pkl", data)
            for key, value in storages.items():
                archive.writestr(f"made/data/{key}", value)
        return str(file)

    def not_read(self, expected, data, **storages):
        with self.assertRaisesRegex(files.ForeignError, expected):
            objects.opened(self.save(data, **storages))

    def test_nothing_is_called(self):
        witness = self.root / "witness"

        class Harm:
            def __reduce__(self):
                return os.system, (f"touch {witness}",)

        for protocol in (2, 4, 5):
            found = objects.opened(self.save(pickle.dumps({"a": Harm(), "b": [collections.Counter("aab")]}, protocol)))
            self.assertIsInstance(found["a"], pickles.Opaque)
            self.assertEqual(found["a"].name, f"{os.system.__module__}.system")
            self.assertIsInstance(found["b"][0], pickles.Opaque)
            self.assertIn("which is not read", repr(objects.plain(found)))
        self.assertFalse(witness.exists())
        # A whitelisted maker reached through an argument, or one that is no name, calls nothing either.
        self.not_read("is called", b"\x80\x02X\x01\x00\x00\x00a)R.")
        self.not_read("opcode PUT, which torch.save does not write", pickle.dumps(Harm(), 0))
        self.assertIsInstance(objects.opened(self.save(pickle.dumps(Harm(), 1))), pickles.Opaque)
        self.assertFalse(witness.exists())

    def test_deep_and_wide(self):
        deep = 200000
        for opener, closer in ((b"]", b"a"), (b"(", b"t")):
            found = objects.opened(self.save(b"\x80\x02" + opener * deep + b"N" + closer * (deep - (closer == b"a")) + b"." if closer == b"t" else
                                             b"\x80\x02" + opener * deep + closer * (deep - 1) + b"."))
            with self.assertRaisesRegex(files.ForeignError, "deeper than 64"):
                objects.plain(found)
        self.not_read("key of a dictionary", b"\x80\x02}" + b"(" * deep + b"N" + b"t" * deep + b"Ns.")  # its hash would go down as deep
        laughs = b"0".join(b"](h%ch%ceq%c" % (level, level, level + 1) for level in range(60))
        objects.plain(objects.opened(self.save(b"\x80\x02]q\x000" + laughs + b".")))  # 2^60 lists, to a walk that forgets where it was
        self.assertLess(len(pickles.interpreted(b"\x80\x02]r\xff\xff\xff\x7f.", "memo", {}, lambda _: None)), 1)  # no table as long as the number

    def tensor(self, count, offset, shape, strides, data=b"\0" * 40, kind="FloatStorage"):
        """The pickle of one, as torch.save writes it, and its storage."""
        shown = io.BytesIO()

        def number(value):
            return pickle.dumps(value, 2)[2:-1]

        shown.write(b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\n" + kind.encode() + b"\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu")
        shown.write(number(count) + b"tQ" + number(offset))
        for values in (shape, strides):
            shown.write(b"(" + b"".join(map(number, values)) + b"t")
        shown.write(b"\x89ccollections\nOrderedDict\n)RtR.")
        return shown.getvalue(), {"0": data}

    def test_tensors_that_lie(self):
        def made(*arguments, **options):
            data, storages = self.tensor(*arguments, **options)
            return objects.opened(self.save(data, **storages))

        self.assertEqual(made(10, 2, (2, 3), (3, 1)).float32().shape, (2, 3))
        for arguments in ((11, 0, (10,), (1,)), (2**60, 0, (10,), (1,)), (-1, 0, (1,), (1,))):
            with self.assertRaisesRegex(files.ForeignError, "made.pt: the pickle says that .* has .* elements"):
                made(*arguments)
        for arguments in ((10, 0, (11,), (1,)), (10, 5, (6,), (1,)), (10, -1, (1,), (1,)), (10, 0, (2**40,), (0,)), (10, 0, (2**55, 2**55), (0, 0)), (10, 0, (2,), (2**50,)),
                          (10, 0, (2, 2), (1,)), (10, 0, (-2,), (1,)), (10, 0, (1,) * 65, (1,) * 65), (10, 0, (1.5,), (1,))):
            with self.subTest(arguments=arguments), self.assertRaisesRegex(files.ForeignError, "made.pt: a tensor of 'data/0' has"):
                made(*arguments)
        with self.assertRaisesRegex(files.ForeignError, "torch.QInt8Storage, which is not read"):
            made(10, 0, (1,), (1,), kind="QInt8Storage")

    def test_archives_that_lie(self):
        self.not_read("pickle has no end|damaged", b"\x80\x02]")
        self.not_read("damaged", b"\x80\x02]q\x00\x30\x30.")
        self.not_read("damaged", b"\x80\x02X\xff\xff\xff\x7fa.")
        file = self.root / "compressed.pt"
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a/data.pkl", b"\x80\x02N." + b"\0" * 1000)
        with self.assertRaisesRegex(files.ForeignError, "compressed"):
            objects.opened(str(file))
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("a/data.pkl", b"\x80\x02N.")
            archive.writestr("a/byteorder", b"big")
        with self.assertRaisesRegex(files.ForeignError, "big-endian"):
            objects.opened(str(file))
        file.write_bytes(pickle.dumps({}, 2))
        with self.assertRaisesRegex(files.ForeignError, "before version 1.6"):
            objects.opened(str(file))


if __name__ == "__main__":
    unittest.main()
