# SPDX-License-Identifier: Apache-2.0
"""Outrigger's AdamW as a transformation of optax, in one process without an engine: bfloat16 parameters and moments,
rounded stochastically, so that small updates are not lost.

    python transformation.py
"""
import jax
import jax.numpy as jnp
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


def main():
    keys = jax.random.split(jax.random.key(0), 2)
    params = {"first": 0.3 * jax.random.normal(keys[0], (8, 64), jnp.bfloat16),
              "second": 0.1 * jax.random.normal(keys[1], (64, 4), jnp.bfloat16)}
    state = optimizer.init(params)
    losses = []
    for number in range(300):
        x = jax.random.normal(jax.random.key(number), (32, 8), jnp.bfloat16)
        params, state, loss = step(params, state, x, jnp.sin(2 * x[:, :4]))
        losses.append(float(loss))
    first, last = sum(losses[:30]) / 30, sum(losses[-30:]) / 30
    print(f"mean loss of the first 30 steps {first:.3f}, of the last 30 {last:.3f}; moments are {state[1].mu['first'].dtype}")
    assert last < 0.6 * first, "it does not learn"


main()
