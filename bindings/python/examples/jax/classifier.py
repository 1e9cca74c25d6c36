# SPDX-License-Identifier: Apache-2.0
"""A classifier in JAX: jitted forward and backward, bf16 states rounded stochastically, sharded over the ranks.

    python classifier.py        outrigger run -n 2 --max-restarts 3 -- python classifier.py --checkpoints DIR
"""
import argparse

import jax
import jax.numpy as jnp
import numpy as np

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


def main(folder):
    keys = jax.random.split(jax.random.key(0), 3)
    params = {"hidden": [{"w": 0.3 * jax.random.normal(keys[0], (8, 32)), "b": jnp.zeros(32)},
                         {"w": 0.2 * jax.random.normal(keys[1], (32, 32)), "b": jnp.zeros(32)}],
              "out": 0.2 * jax.random.normal(keys[2], (32, 4))}
    with outrigger.jax.Engine(params, config) as engine:
        host = {"step": 0, "losses": np.zeros(200)}
        if folder:
            host = engine.resume(folder, host)
        for step in range(host["step"], 200):
            x = jax.random.normal(jax.random.fold_in(jax.random.key(1 + engine.rank), step), (32, 8), jnp.bfloat16)
            labels = (x[:, :4] + x[:, 4:]).argmax(1)
            y, vjp = forward(engine.parameters(), x)
            loss, cotangent = loss_and_cotangent(y, labels)
            engine.backward(vjp, cotangent)
            engine.step()
            host["losses"][step], host["step"] = float(loss), step + 1
            if folder and (step + 1) % 50 == 0:
                engine.save(folder, f"step{step + 1}", host, keep_last=2, replace=True)
    losses = host["losses"]
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}")
    assert losses[-1] < 0.4 * losses[0], "it does not learn"


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--checkpoints", metavar="DIR", help="save the training here, and go on from here")
main(parser.parse_args().checkpoints)
