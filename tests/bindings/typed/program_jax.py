# SPDX-License-Identifier: Apache-2.0
"""A user's program over outrigger.jax, for mypy --strict."""
from typing import Any, assert_type

import jax
import jax.numpy as jnp
import outrigger.jax
from outrigger import lowlevel


def main(x: jax.Array) -> None:
    with outrigger.jax.Engine({"w": jnp.ones(3)}, {"zero_optimization": {"stage": 1}}) as engine:
        y, vjp = jax.vjp(lambda p, x: p["w"] * x, engine.parameters(), x)
        assert_type(engine.backward(vjp, y), tuple[Any, ...])
        assert_type(engine.step(), lowlevel.StepReport)


def wrong() -> None:
    outrigger.jax.Engine({}, stage=1)  # type: ignore[call-arg]
    outrigger.jax.Engine({}, comm="gloo")  # type: ignore[arg-type]
