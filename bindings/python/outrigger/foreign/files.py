# SPDX-License-Identifier: Apache-2.0
"""The files of torch.save: zip archives of a pickle and of storages, mapped and not copied."""
from __future__ import annotations

import ctypes
import io
import mmap
import os
import stat
import weakref
import zipfile
import zlib
from typing import TYPE_CHECKING

import numpy

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_LOCAL_HEADER, _LOCAL_MAGIC = 30, b"PK\x03\x04"
_MOST_PICKLE = 1 << 28  # bytes; of 10⁶ tensors it has about 2⁷
_MOST_TEXT = 1 << 12


class ForeignError(ValueError):
    """A checkpoint of another library that cannot be read; the text names the file, the rule and the way out."""


def mapped(path: str) -> memoryview:
    """The bytes of a regular file, mapped for reading. A link or a pipe is refused: what it leads to may change while it is read, or
    wait for ever."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ForeignError(f"{path}: there is no such file; the checkpoint is not complete: copy all of its files") from None
    except OSError as error:
        if os.path.islink(path):
            raise ForeignError(f"{path}: is a symbolic link; put the file itself there") from None
        raise ForeignError(f"{path}: cannot be opened: {error.strerror}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ForeignError(f"{path}: is no regular file; put the file itself there")
        if status.st_size == 0:
            raise ForeignError(f"{path}: is empty; copy the file again")
        return _map(descriptor, status.st_size, path)
    finally:
        os.close(descriptor)


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype, _libc.mmap.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def _map(descriptor: int, size: int, path: str) -> memoryview:
    """As mmap.mmap, which keeps a descriptor open until Python 3.13: a checkpoint may have more files than a process may have open."""
    address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address == ctypes.c_void_p(-1).value:
        raise ForeignError(f"{path}: cannot be mapped: {os.strerror(ctypes.get_errno())}")
    found = (ctypes.c_ubyte * size).from_address(address)
    weakref.finalize(found, _libc.munmap, address, size).atexit = False
    return memoryview(numpy.frombuffer(found, numpy.uint8)).toreadonly()


def text(path: str) -> str:
    """Of a small file, without white space at its ends."""
    data = mapped(path)
    if len(data) > _MOST_TEXT:
        raise ForeignError(f"{path}: has {len(data)} bytes, and should have a name of at most {_MOST_TEXT}")
    try:
        return bytes(data).decode().strip()
    except UnicodeDecodeError:
        raise ForeignError(f"{path}: is no text") from None


class _Window(io.RawIOBase):
    """Bytes as a file, without a copy of them."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: len(self._data)}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        target = memoryview(buffer).cast("B")
        part = self._data[self._at:self._at + len(target)]
        target[:len(part)] = part
        self._at += len(part)
        return len(part)


class Archive:
    """What torch.save wrote, in a file or in a part of one: a folder with data.pkl, and the storages data/<key>. name: for errors.

    ForeignError: it is no zip of torch.save, or says of itself what cannot be. Its checksums are not compared yet: see check."""

    def __init__(self, data: memoryview, name: str) -> None:
        self.name, self._data = name, data
        try:
            with zipfile.ZipFile(_Window(data)) as archive:
                entries = archive.infolist()
        except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError, OverflowError) as error:
            raise ForeignError(f"{name}: is no whole zip archive of torch.save ({error}); copy the file again, or, if torch.save wrote it before "
                               "version 1.6 or with _use_new_zipfile_serialization=False, load it there and save it again") from None
        pickles = [entry for entry in entries if entry.filename.endswith("/data.pkl") and entry.filename.count("/") == 1]
        if len(pickles) != 1:
            raise ForeignError(f"{name}: has {len(pickles)} entries <folder>/data.pkl, and torch.save writes one: it is another zip archive")
        prefix = pickles[0].filename.removesuffix("data.pkl")
        self._entries = {entry.filename.removeprefix(prefix): self._range(entry) for entry in entries if entry.filename.startswith(prefix)}
        if len(self._entries) != len(entries):
            raise ForeignError(f"{name}: has two entries of one name, or entries outside of {prefix!r}")
        self._unchecked = {entry.filename.removeprefix(prefix): entry.CRC for entry in entries}
        if "byteorder" in self._entries and bytes(self.bytes("byteorder")[:16]) != b"little":
            raise ForeignError(f"{name}: was written on a machine of big-endian byte order; load it there and save it again on this one")

    def _range(self, entry: zipfile.ZipInfo) -> tuple[int, int]:
        """Where an entry's bytes begin and end."""
        shown = f"{self.name}: the entry {entry.filename!r}"
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 or entry.compress_size != entry.file_size:
            raise ForeignError(f"{shown} is compressed or encrypted, which torch.save does not do")
        header = bytes(self._data[entry.header_offset:entry.header_offset + _LOCAL_HEADER])
        if len(header) < _LOCAL_HEADER or not header.startswith(_LOCAL_MAGIC):
            raise ForeignError(f"{shown} begins outside of the file, or not with a header; copy the file again")
        first = entry.header_offset + _LOCAL_HEADER + int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        last = first + entry.file_size
        if last > len(self._data):
            raise ForeignError(f"{shown} ends beyond the file, whose size is {len(self._data)} bytes; copy the file again")
        return first, last

    def bytes(self, entry: str) -> memoryview:
        """A view of an entry's bytes."""
        if entry not in self._entries:
            raise ForeignError(f"{self.name}: has no entry {entry!r}, to which its pickle refers; copy the file again")
        first, last = self._entries[entry]
        return self._data[first:last]

    def pickle(self) -> memoryview:
        data = self.bytes("data.pkl")
        if len(data) > _MOST_PICKLE:
            raise ForeignError(f"{self.name}: its data.pkl has {len(data)} bytes; at most {_MOST_PICKLE} are read")
        self.check("data.pkl")
        return data

    def check(self, entry: str) -> None:
        """Compares an entry's bytes with their checksum, once."""
        data = self.bytes(entry)
        expected = self._unchecked.get(entry)
        if expected is None:
            return
        if zlib.crc32(data) != expected:
            raise ForeignError(f"{self.name}: the bytes of {entry!r} are not those of its CRC-32; the file is damaged: copy it again. (A program that called "
                               "torch.serialization.set_crc32_options(False) wrote no checksums: save it again without that call)")
        del self._unchecked[entry]
