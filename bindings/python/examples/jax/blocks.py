# SPDX-License-Identifier: Apache-2.0
"""ZeRO stage 3 in JAX: the parameters are a list of blocks, and each block's are asked for when its turn comes.

    python blocks.py        outrigger run -n 2 --max-restarts 3 -- python blocks.py --checkpoints DIR
"""
import argparse

import jax
import jax.numpy as jnp
import numpy as np

import outrigger.jax

config = {"optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "zero_optimization": {"stage": 3}}


@jax.jit
def forward(params, x):
    return jax.vjp(lambda p, x: jnp.tanh(x @ p["w"] + p["b"]), params, x)


def main(folder):
    keys = jax.random.split(jax.random.key(0), 3)
    blocks = [{"w": 0.3 * jax.random.normal(key, (8, 8)), "b": jnp.zeros(8)} for key in keys]
    with outrigger.jax.Engine(blocks, config) as engine:
        host = {"step": 0, "losses": np.zeros(200)}
        if folder:
            host = engine.resume(folder, host)
        for step in range(host["step"], 200):
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
            host["losses"][step], host["step"] = float(jnp.mean((y - target) ** 2)), step + 1
            if folder and (step + 1) % 50 == 0:
                engine.save(folder, f"step{step + 1}", host, keep_last=2, replace=True)
    losses = host["losses"]
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}")
    assert losses[-1] < 0.4 * losses[0], "it does not learn"


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--checkpoints", metavar="DIR", help="save the training here, and go on from here")
main(parser.parse_args().checkpoints)
