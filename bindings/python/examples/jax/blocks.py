# SPDX-License-Identifier: Apache-2.0
"""ZeRO stage 3 in JAX: the parameters are a list of blocks, and each block's are asked for when its turn comes.

    python blocks.py        outrigger run -n 2 -- python blocks.py
"""
import jax
import jax.numpy as jnp

import outrigger.jax

config = {"optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "zero_optimization": {"stage": 3}}


@jax.jit
def forward(params, x):
    return jax.vjp(lambda p, x: jnp.tanh(x @ p["w"] + p["b"]), params, x)


def main():
    losses = []
    keys = jax.random.split(jax.random.key(0), 3)
    blocks = [{"w": 0.3 * jax.random.normal(key, (8, 8)), "b": jnp.zeros(8)} for key in keys]
    with outrigger.jax.Engine(blocks, config) as engine:
        for step in range(200):
            x = jax.random.normal(jax.random.fold_in(jax.random.key(1 + engine.rank), step), (32, 8))
            target = jnp.sin(x)

            y, vjps = x, []
            for block in range(len(blocks)):
                y, vjp = forward(engine.parameters(block=block), y)
                vjps.append(vjp)
            with engine.begin_pass(2 * (y - target) / target.size) as a_pass:
                dy = a_pass.cotangents
                for block in reversed(range(len(blocks))):
                    grads, dy = vjps[block](dy)
                    a_pass.add(grads, block=block)
            engine.step()
            losses.append(float(jnp.mean((y - target) ** 2)))
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}")
    assert losses[-1] < 0.4 * losses[0], "it does not learn"


main()
