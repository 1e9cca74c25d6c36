# SPDX-License-Identifier: Apache-2.0
"""One AdamW step of one flat tensor.

adam_step.py deepspeed|torch float32|bfloat16 COUNT THREADS OPTIMIZER_FILE
"""

import json
import pathlib
import sys

import torch
import worker
from numbers_ import stream

CHECK_FACTORS = (1.0, -0.5, 0.25)


class AdamStep(worker.Worker):
    def __init__(self, peer, dtype, count, threads, optimizer):
        self.peer, self.dtype, self.count, self.threads = peer, getattr(torch, dtype), count, threads
        params = json.loads(pathlib.Path(optimizer).read_text())["params"]
        self.options = {key: params[key] for key in ("lr", "betas", "eps", "weight_decay")}

    def setup(self):
        torch.set_num_threads(self.threads)
        self.weight = torch.nn.Parameter(stream(1, self.count, 512, self.dtype))
        self.weight.grad = stream(2, self.count, 4096, self.dtype)
        if self.peer == "deepspeed":
            import deepspeed
            from deepspeed.ops.adam import DeepSpeedCPUAdam

            self.optimizer = DeepSpeedCPUAdam(
                [self.weight], fp32_optimizer_states=self.dtype == torch.float32, **self.options
            )
            name = f"DeepSpeed {deepspeed.__version__} CPUAdam"
        else:
            self.optimizer = torch.optim.AdamW([self.weight], fused=True, **self.options)
            name = f"torch {torch.__version__} fused AdamW"
        return {"peer": name, "threads": torch.get_num_threads(), "simd": torch.backends.cpu.get_cpu_capability()}

    def work(self):
        self.optimizer.step()

    def check(self, folder):
        for factor in CHECK_FACTORS:
            self.weight.grad.mul_(factor)
            self.work()
            self.weight.grad.mul_(1 / factor)
        state = self.optimizer.state[self.weight]
        if {state["exp_avg"].dtype, state["exp_avg_sq"].dtype} != {self.dtype}:
            raise ValueError(f"the peer keeps its states in {state['exp_avg'].dtype}, not in {self.dtype}")
        worker.write_samples(folder, f"{self.peer}.weight", self.weight.detach()[::97])
        return {"state_dtype": str(state["exp_avg"].dtype)}


if __name__ == "__main__":
    peer, dtype, count, threads, optimizer = sys.argv[1:]
    worker.serve(lambda: AdamStep(peer, dtype, int(count), int(threads), optimizer))
