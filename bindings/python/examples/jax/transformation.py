# SPDX-License-Identifier: Apache-2.0
"""Outrigger's AdamW as a transformation of optax, in one process without an engine: bfloat16 parameters and moments,
rounded stochastically, so that small updates are not lost.

    python transformation.py        outrigger run --max-restarts 3 -- python transformation.py --checkpoints DIR
"""
import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax

import outrigger.optax

optimizer = optax.chain(
    optax.clip_by_global_norm(1.0),
    outrigger.optax.adamw(optax.cosine_decay_schedule(0.01, 300), weight_decay=0.01,
                          states={"exp_avg": {"format": "bfloat16"}, "exp_avg_sq": {"format": "bfloat16"}}))


def loss_of(params, x, target):
    hidden = jnp.tanh(x @ params["first"])
    return jnp.mean((hidden @ params["second"] - target).astype(jnp.float32)**2)


@jax.jit
def step(params, state, x, target):
    loss, grads = jax.value_and_grad(loss_of)(params, x, target)
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss


def main(folder):
    keys = jax.random.split(jax.random.key(0), 2)
    params = {"first": 0.3 * jax.random.normal(keys[0], (8, 64), jnp.bfloat16),
              "second": 0.1 * jax.random.normal(keys[1], (64, 4), jnp.bfloat16)}
    run = {"params": params, "state": optimizer.init(params), "step": 0, "losses": np.zeros(300)}
    if folder:
        run = outrigger.optax.resume(folder, run)
    for number in range(run["step"], 300):
        x = jax.random.normal(jax.random.key(number), (32, 8), jnp.bfloat16)
        run["params"], run["state"], loss = step(run["params"], run["state"], x, jnp.sin(2 * x[:, :4]))
        run["losses"][number], run["step"] = loss, number + 1
        if folder and (number + 1) % 100 == 0:
            outrigger.optax.save(folder, number + 1, run, keep_last=2, replace=True)
    losses = run["losses"]
    first, last = sum(losses[:30]) / 30, sum(losses[-30:]) / 30
    print(f"mean loss of the first 30 steps {first:.3f}, of the last 30 {last:.3f}; moments are {run['state'][1].mu['first'].dtype}")
    assert last < 0.6 * first, "it does not learn"


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--checkpoints", metavar="DIR", help="save the training here, and go on from here")
main(parser.parse_args().checkpoints)
