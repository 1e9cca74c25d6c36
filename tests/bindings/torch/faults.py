# SPDX-License-Identifier: Apache-2.0
"""Faults put into the engines of the ranks: a gradient lost, a factor halved or applied twice, a parameter skipped. The tests by
value on ranks must see each; what is not seen here would not be seen there."""
import collections
import contextlib
from unittest import mock

import torch.distributed as dist

from outrigger.torch.config import Settings
from outrigger.torch.passes import Passes

# put_in: makes a context manager. shows(case): whether it must show in a case (precision, gas, clip, rule).
Fault = collections.namedtuple("Fault", "put_in shows")


@contextlib.contextmanager
def given(factor):
    """What comes to the library is multiplied by factor(engine, parameter), so that ranks still do the same."""
    original = Passes._hand_over
    with mock.patch.object(Passes, "_hand_over", lambda engine, parameter, grad: original(
            engine, parameter, grad * factor(engine, parameter))):
        yield


@contextlib.contextmanager
def configured(change):
    original = Settings.__init__

    def wrong(self, config):
        change(config)
        original(self, config)
    with mock.patch.object(Settings, "__init__", wrong):
        yield


def of_last_rank(engine, parameter):
    return float(dist.get_rank() < dist.get_world_size() - 1)


def of_first_micro_step(engine, parameter):
    return float(engine.micro_steps % engine.gradient_accumulation_steps() > 0)


def skipped(index):
    return lambda: given(lambda engine, parameter: float(parameter is not engine.parameters_of.trainable[index]))


def clipped_twice_as_far(config):
    config["gradient_clipping"] *= 2


def always(case):
    return True


def unclipped(case):
    """A factor of all gradients is gone once they are clipped, and in AdamW."""
    return not case.clip and case.rule.name != "AdamW"


FAULTS = {
    "the last rank's gradients are lost": Fault(lambda: given(of_last_rank), always),
    "a micro-step's gradients are lost": Fault(lambda: given(of_first_micro_step), lambda case: case.gas > 1),
    "the mean over ranks is halved": Fault(lambda: given(lambda engine, parameter: 0.5), unclipped),
    "the sum over ranks, not the mean": Fault(
        lambda: given(lambda engine, parameter: dist.get_world_size()), lambda case: unclipped(case) and dist.get_world_size() > 1),
    "divided by the accumulation steps twice": Fault(
        lambda: given(lambda engine, parameter: 1 / engine.gradient_accumulation_steps()), lambda case: unclipped(case) and case.gas > 1),
    "clipped to twice as much": Fault(lambda: configured(clipped_twice_as_far), lambda case: case.clip and case.rule.name != "AdamW"),
    "the loss scale is halved": Fault(lambda: given(lambda engine, parameter: 1 if engine._scale == 1 else 0.5),
                                      lambda case: unclipped(case) and case.precision == "fp16"),
    "the first parameter is skipped": Fault(skipped(0), always),
    "the last parameter is skipped": Fault(skipped(-1), always),
}
