# SPDX-License-Identifier: Apache-2.0
"""One network over two groups of processes: the first ranks have the encoder, the others the head, each group with an engine of its own. The
hidden layer goes over a socket, and so does its gradient, which is no scalar and carries a loss scale.

    outrigger run -n 3 -- python two_groups.py 2        # 2 ranks for the encoder, 1 for the head
"""
import os
import sys
import tempfile
import time
from multiprocessing.connection import Client, Listener

import numpy as np

import outrigger.numpy
from outrigger import Comm, Context, Message

ROWS, STEPS = 30, 200
encoder_config = {"optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "zero_optimization": {"stage": 1},
                  "fp16": {"enabled": True, "initial_scale_power": 8}}
head_config = {"optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "zero_optimization": {"stage": 2},
               "fp16": {"enabled": True, "initial_scale_power": 12}}


def batch(step):
    """Of all ranks."""
    random = np.random.default_rng(step)
    x = random.normal(size=(ROWS, 8)).astype(np.float32)
    return x, x[:, :4] * x[:, 4:]


def encoder(comm, routes, rows, connections):
    """Rank comm.rank of the encoder."""
    random = np.random.default_rng(0)
    with outrigger.numpy.Engine({"w": random.normal(0, 0.3, (8, 64)), "b": np.zeros(64)}, encoder_config, comm) as engine:
        for step in range(STEPS):
            x = batch(step)[0][sum(rows[:comm.rank]):][:rows[comm.rank]]
            with engine.parameters() as p:
                hidden = np.tanh(x @ p["w"] + p["b"])
            for route in routes:
                part = hidden[route.source_row:route.source_row + route.rows]
                connections[route.target].send_bytes(Message.pack({"hidden": part}, micro_batch=step))
            hidden_grad = np.zeros_like(hidden)
            for route in routes:
                message = Message(connections[route.target].recv_bytes())
                hidden_grad[route.source_row:route.source_row + route.rows] = message["hidden_grad"]
            with engine.backward(hidden_grad, tag=message.tag) as grads:
                before = grads.output * (1 - hidden**2)
                grads["w"] = x.T @ before
                grads["b"] = before.sum(0)
            engine.step()


def head(comm, routes, rows, connections):
    """Rank comm.rank of the head. Returns the losses of its rows."""
    random = np.random.default_rng(1)
    losses = []
    with outrigger.numpy.Engine({"w": random.normal(0, 0.3, (64, 4)), "b": np.zeros(4)}, head_config, comm) as engine:
        for step in range(STEPS):
            target = batch(step)[1][sum(rows[:comm.rank]):][:rows[comm.rank]]
            messages = [Message(connections[route.source].recv_bytes()) for route in routes]
            hidden = np.concatenate([message["hidden"] for message in messages])
            with engine.parameters() as p:
                error = hidden @ p["w"] + p["b"] - target
                losses.append(float(np.mean(error**2)))
                with engine.backward(2 * error / error.size) as grads:
                    dy = grads.output
                    grads["w"] = hidden.T @ dy
                    grads["b"] = dy.sum(0)
                    hidden_grad = dy @ p["w"].T
                    for route in routes:
                        part = hidden_grad[route.target_row:route.target_row + route.rows]
                        connections[route.source].send_bytes(Message.pack({"hidden_grad": part}, micro_batch=step, tag=grads.tag))
            engine.step()
    return losses


def connect(world, folder, encoder_ranks, routes):
    """This rank's connections: the encoder's ranks call, the head's listen."""
    def address(rank):
        return os.path.join(folder, f"head{rank}")

    if world.rank >= encoder_ranks:
        mine = world.rank - encoder_ranks
        sources = {route.source for route in routes if route.target == mine}
        with Listener(address(mine), "AF_UNIX", backlog=len(sources)) as listener:
            world.barrier()
            callers = [listener.accept() for _ in sources]
        return {caller.recv(): caller for caller in callers}
    world.barrier()
    connections = {route.target: Client(address(route.target), "AF_UNIX") for route in routes if route.source == world.rank}
    for connection in connections.values():
        connection.send(world.rank)
    return connections


def main(encoder_ranks):
    world = Comm.from_env(Context())
    head_ranks = world.size - encoder_ranks
    if encoder_ranks < 1 or head_ranks < 1:
        sys.exit(f"{encoder_ranks} of {world.size} ranks for the encoder; both groups need one: outrigger run -n 3 -- python two_groups.py 2")
    rows = {"encoder": Message.share(ROWS, encoder_ranks), "head": Message.share(ROWS, head_ranks)}
    routes = Message.routes(rows["encoder"], rows["head"])
    name = bytearray((tempfile.mkdtemp() if world.rank == 0 else "").encode().ljust(200))
    world.broadcast(name)
    folder = name.decode().strip()
    connections = connect(world, folder, encoder_ranks, routes)
    world.barrier()
    if world.rank == 0:
        os.rmdir(folder)  # a closed listener removes its socket
    in_head = world.rank >= encoder_ranks
    group = world.split(int(in_head), world.rank)
    if not in_head:
        encoder(group, [route for route in routes if route.source == group.rank], rows["encoder"], connections)
        return
    begin = time.perf_counter()
    losses = head(group, [route for route in routes if route.target == group.rank], rows["head"], connections)
    if group.rank == 0:
        first, last = np.mean(losses[:20]), np.mean(losses[-20:])
        print(f"loss of the first 20 steps {first:.3f}, of the last 20 {last:.3f}; {(time.perf_counter() - begin) / STEPS * 1e3:.1f} ms a step")
        assert last < 0.6 * first, "it does not learn"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
