# SPDX-License-Identifier: Apache-2.0
"""Message: tensors of one micro-batch in one buffer, for any transport."""
from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from . import lowlevel
from .arrays import view_of
from .handle import Handle

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .arrays import Array, Memory, Tensor


class Route(NamedTuple):
    """Rows that rank source of one group has and rank target of another one needs."""

    source: int
    target: int
    source_row: int
    target_row: int
    rows: int


class Message(Handle[lowlevel.Message], Mapping[str, "Array"]):
    """A message that is read where it lies: message["embedding"] is a NumPy array over its memory, read-only where that memory is
    (bytes, objects of Ray). The arrays keep the message, and it keeps the memory. memory: what pack() gave, at a multiple of 8; it may come from
    anybody. checked: the checksum has to be right, which takes reading all bytes. Any thread. E_CORRUPT: damaged, cut short or no message;
    E_UNSUPPORTED: of a later version."""

    def __init__(self, memory: Memory, checked: bool = True) -> None:
        super().__init__(lowlevel.message_unpack(memory, 0 if checked else lowlevel.MESSAGE_UNCHECKED))

    def __getitem__(self, name: str) -> Array:
        if not isinstance(name, str):
            raise KeyError(name)
        try:
            return view_of(self.tensor(name))
        except lowlevel.OutriggerError as error:
            if error.code != lowlevel.E_NOT_FOUND:
                raise
            raise KeyError(error.text) from None

    def __iter__(self) -> Iterator[str]:
        return iter([lowlevel.message_tensor_name(self.handle, index) for index in range(len(self))])

    def __len__(self) -> int:
        return self.info.tensor_count

    def tensor(self, name: str) -> lowlevel.TensorView:
        """The same memory, for torch.from_dlpack and others. DLPack does not tell them where it is read-only: do not write there. E_NOT_FOUND
        gives the nearest name."""
        return lowlevel.message_get_tensor(self.handle, name)

    @property
    def info(self) -> lowlevel.MessageInfo:
        """micro_batch, tensor_count, attribute_count, bytes."""
        return lowlevel.message_get_info(self.handle)

    @property
    def micro_batch(self) -> int:
        """The sender's number."""
        return self.info.micro_batch

    @property
    def tag(self) -> lowlevel.CallInfo | None:
        """What was applied to gradients, for Engine.begin_pass; None: nothing was said."""
        tag = lowlevel.CallInfo()
        lowlevel.message_get_tag(self.handle, tag)
        return tag if tag.loss_scale != 0 else None

    @property
    def attributes(self) -> dict[str, str]:
        """Texts of the sender's."""
        names = [lowlevel.message_attribute_name(self.handle, index) for index in range(self.info.attribute_count)]
        return {name: lowlevel.message_get_attribute(self.handle, name) for name in names}

    @staticmethod
    def pack(tensors: Mapping[str, Tensor], *, micro_batch: int = 0, tag: lowlevel.CallInfo | None = None,
             attributes: Mapping[str, str] | None = None, into: Memory | None = None) -> Memory:
        """The bytes of a message: a new bytearray, or the first bytes of `into`, memory that can be written (a shared one, say), of which a view is
        the result. tensors: arrays on the CPU by name, of any shape and strides, bool, integers, floats or bfloat16. tag: of
        gradients, as Pass.tag gives it. Any thread. TypeError, ValueError: a name or text is no str, or has a NUL; E_DTYPE; E_DEVICE;
        E_BUFFER_SIZE: `into` is too small; E_ARGUMENT: an array lies in `into`."""
        options = lowlevel.MessageOptions()
        options.micro_batch = micro_batch
        options.set_tag(tag)
        for name, text in (attributes or {}).items():
            options.add_attribute(_text(name), _text(text))
        named = [(_text(name), tensor) for name, tensor in tensors.items()]
        if into is None:
            into = bytearray(lowlevel.message_pack(named, options, None))
        size = lowlevel.message_pack(named, options, into)
        return into if isinstance(into, bytearray) and len(into) == size else memoryview(into).cast("B")[:size]

    @staticmethod
    def routes(source_rows: Sequence[int], target_rows: Sequence[int]) -> list[Route]:
        """Who sends which rows between two groups of any widths. source_rows, target_rows: of each rank, 0 or more, with the same sum. In the
        order of the rows. E_ARGUMENT."""
        return [Route(*route) for route in lowlevel.message_routes(source_rows, target_rows)]

    @staticmethod
    def share(rows: int, ranks: int) -> list[int]:
        """Rows of each rank, where they are shared evenly: the first ranks have one more."""
        return [rows // ranks + (rank < rows % ranks) for rank in range(ranks)]


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise TypeError(f"{given!r} is no str")
    if "\0" in given:
        raise ValueError(f"{given!r} has a NUL, which ends a text of C")
    return given
