# SPDX-License-Identifier: Apache-2.0
"""A classifier in JAX: jitted forward and backward, bf16 states rounded stochastically, sharded over the ranks.

    python classifier.py        outrigger run -n 2 -- python classifier.py
"""
import jax
import jax.numpy as jnp

import outrigger.jax

config = {"optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "zero_optimization": {"stage": 2}, "gradient_clipping": 1.0,
          "bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True},
          "outrigger": {"states": {"master": {"rounding": "stochastic"}, "exp_avg_sq": {"rounding": "stochastic"}}}}


def logits(params, x):
    for layer in params["hidden"]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params["out"]


@jax.jit
def forward(params, x):
    return jax.vjp(lambda p: logits(p, x), params)


@jax.jit
def loss_and_cotangent(y, labels):
    return jax.value_and_grad(lambda y: -jax.nn.log_softmax(y.astype(jnp.float32))[jnp.arange(len(labels)), labels].mean())(y)


def main():
    losses = []
    keys = jax.random.split(jax.random.key(0), 3)
    params = {"hidden": [{"w": 0.3 * jax.random.normal(keys[0], (8, 32)), "b": jnp.zeros(32)},
                         {"w": 0.2 * jax.random.normal(keys[1], (32, 32)), "b": jnp.zeros(32)}],
              "out": 0.2 * jax.random.normal(keys[2], (32, 4))}
    with outrigger.jax.Engine(params, config) as engine:
        for step in range(200):
            x = jax.random.normal(jax.random.fold_in(jax.random.key(1 + engine.rank), step), (32, 8), jnp.bfloat16)
            labels = (x[:, :4] + x[:, 4:]).argmax(1)
            y, vjp = forward(engine.parameters(), x)
            loss, cotangent = loss_and_cotangent(y, labels)
            engine.backward(vjp, cotangent)
            engine.step()
            losses.append(float(loss))
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}")
    assert losses[-1] < 0.4 * losses[0], "it does not learn"


main()
