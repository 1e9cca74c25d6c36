# SPDX-License-Identifier: Apache-2.0
"""What the groups send each other: the embedding one way, its gradient the other. Vision rank v has all strips of a micro-batch, and of each the patches
of its part; language rank l has all patches of its strips. So v and l exchange one block, [strips of l, patches of v, width]."""
import time

import digits
import numpy as np
import torch
from settings import DTYPES

from outrigger import Message


class WireError(ValueError):
    """A message that is not what this rank waits for."""


def share(settings, group):
    """What each rank of a group has: patches of the vision group's, strips of the language group's."""
    if group == "vision":
        return Message.share(digits.patches_of(settings), settings.vision.ranks)
    return Message.share(settings.strips, settings.language.ranks)


def pack(name, tensor, number, sender, tag=None):
    """The bytes of a message, as an array: Ray's object store hands those out without a copy. number: of the micro-batch since the training began."""
    attributes = {"sender": sender, "sent": repr(time.perf_counter())}
    return np.frombuffer(Message.pack({name: tensor.detach()}, micro_batch=number, tag=tag, attributes=attributes), np.uint8)


def pack_grad(settings, grad, number, sender, tag):
    """A gradient in the dtype and with the scale that it travels with. tag: of the engine that it leaves."""
    tag.loss_scale *= settings.grad_scale
    return pack("embedding_grad", (grad.float() * settings.grad_scale).to(DTYPES[settings.grad_dtype]), number, sender, tag)


def unpack(packed, name, number, shape, dtype):
    """The tensor of one message, where it lies (it may be read-only memory: do not write there), the tag and when it was sent."""
    message = Message(packed)
    sender = message.attributes.get("sender", "an unknown rank")
    if message.micro_batch != number:
        raise WireError(f"{sender} sent micro-batch {message.micro_batch}, and this is micro-batch {number}")
    if name not in message:
        raise WireError(f"{sender} sent {', '.join(message)} in micro-batch {number}, and this rank waits for {name}")
    tensor = torch.from_dlpack(message.tensor(name))
    if tensor.dtype != dtype or tensor.shape != torch.Size(shape):
        raise WireError(f"{sender} sent {name} as {tensor.dtype} {list(tensor.shape)}, and {dtype} {list(shape)} is expected")
    return tensor, message.tag, float(message.attributes["sent"])


def unpack_embedding(settings, packed, number, rank, dtype, strips=None):
    """All patches of the strips of language rank `rank`, from one message of each vision rank, and when the last was sent."""
    strips = share(settings, "language")[rank] if strips is None else strips
    parts = [unpack(each, "embedding", number, (strips, patches, settings.width), dtype)
             for each, patches in zip(packed, share(settings, "vision"), strict=True)]
    if any(tag is not None for _, tag, _ in parts):
        raise WireError("an embedding came with a gradient's tag")
    return torch.cat([tensor for tensor, _, _ in parts], 1), max(sent for *_, sent in parts)


def unpack_grad(settings, packed, number, rank):
    """The gradient of the part of vision rank `rank`, from one message of each language rank, its tag, and when the last was sent."""
    patches = share(settings, "vision")[rank]
    parts = [unpack(each, "embedding_grad", number, (strips, patches, settings.width), DTYPES[settings.grad_dtype])
             for each, strips in zip(packed, share(settings, "language"), strict=True)]
    tags = {None if tag is None else (tag.loss_scale, tag.accumulation, tag.ranks) for _, tag, _ in parts}
    if None in tags:
        raise WireError("a gradient came without a tag, so nobody knows its factors")
    if len(tags) > 1:
        raise WireError(f"one gradient came in parts with different factors (loss scale, accumulation, ranks): {sorted(tags)}")
    return torch.cat([tensor for tensor, _, _ in parts], 0), parts[0][1], max(sent for *_, sent in parts)
