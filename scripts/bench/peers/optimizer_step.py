# SPDX-License-Identifier: Apache-2.0
"""One optimizer step over flat tensors.

optimizer_step.py PEER WEIGHTS GRADS COUNT TENSORS THREADS OPTIMIZER_FILE [ROWS]     WEIGHTS: float32, bfloat16, or published

PEER: deepspeed (CPUAdam), deepspeed_avx2, torch_fused, torch_foreach, torchao_stochastic, torchao_8bit: the step alone. deepspeed_whole and
torch_whole: what a step with clipping of a bfloat16 gradient takes: norm, scaling, update, and the cast of what is published;
deepspeed_cast: update and casts of gradient and weight, without norm and scaling. published: float32 and a bfloat16 copy.
deepspeed_muon, torch_muon: each tensor is a matrix of ROWS rows.
"""

import gc
import json
import pathlib
import sys

import torch
import worker
from numbers_ import stream

CHECK_FACTORS = (1.0, -0.5, 0.25)


class OptimizerStep(worker.Worker):
    def __init__(self, peer, weights, grads, count, tensors, threads, optimizer, rows):
        self.rows = rows
        self.peer, self.form, self.count, self.tensors, self.threads = peer, weights, count, tensors, threads
        self.weight_dtype = torch.bfloat16 if weights == "bfloat16" else torch.float32
        self.grad_dtype = getattr(torch, grads)
        given = json.loads(pathlib.Path(optimizer).read_text())
        self.options = given["params"]
        self.clip = given["gradient_clipping"]

    def setup(self):
        torch.set_num_threads(self.threads)
        weights = stream(1, self.count, 512, self.weight_dtype)
        self.given = stream(2, self.count, 4096, self.grad_dtype)
        # CPUAdam and torch take a gradient of the weight's dtype: of another one there is a copy.
        self.grad = self.given if self.grad_dtype == self.weight_dtype else self.given.to(self.weight_dtype)
        self.flat = weights
        formed = (lambda each: each.view(self.rows, -1)) if self.rows else (lambda each: each)
        self.grads = self.grad.chunk(self.tensors)
        # DeepSpeed's stages 1 and 2 update one flat tensor a rank.
        pieces = 1 if self.peer == "deepspeed_whole" else self.tensors
        self.weights = [torch.nn.Parameter(formed(each)) for each in weights.chunk(pieces)]
        for weight, grad in zip(self.weights, self.grad.chunk(pieces), strict=True):
            weight.grad = formed(grad)
        self.copy = torch.empty_like(weights, dtype=torch.bfloat16)
        self.optimizer, name = self.make()
        return {"peer": name, "threads": torch.get_num_threads(), "simd": torch.backends.cpu.get_cpu_capability()}

    def shape(self, count, tensors):
        self.flat = self.given = self.grad = self.grads = self.copy = self.weights = self.optimizer = None  # both sizes at once may not fit
        gc.collect()
        self.count, self.tensors = int(count), int(tensors)
        return self.setup()

    def make(self):
        if self.peer == "torch_muon":
            return torch.optim.Muon(self.weights, **self.options), f"torch {torch.__version__} Muon"
        if self.peer == "deepspeed_muon":
            import deepspeed
            from deepspeed.runtime.zero.muon.muon_optimizer import MuonWithAuxAdam

            group = {"params": self.weights, "use_muon": True, **self.options}
            return MuonWithAuxAdam([group]), f"DeepSpeed {deepspeed.__version__} MuonWithAuxAdam"
        if self.peer.startswith("deepspeed"):
            import deepspeed
            from deepspeed.ops.adam import DeepSpeedCPUAdam
            from deepspeed.ops.op_builder.cpu import CPUAdamBuilder

            if self.peer == "deepspeed_avx2":  # compiled at the first set-up, into a folder of its own
                CPUAdamBuilder.cpu_arch = lambda builder: "-march=haswell"
                CPUAdamBuilder.simd_width = lambda builder: "-D__AVX256__"
            states = self.weight_dtype == torch.float32
            return (DeepSpeedCPUAdam(self.weights, fp32_optimizer_states=states, **self.options),
                    f"DeepSpeed {deepspeed.__version__} CPUAdam")
        if self.peer.startswith("torchao"):
            import torchao
            from torchao.optim import AdamW8bit, _AdamW

            made = (AdamW8bit(self.weights, block_size=256, **self.options) if self.peer == "torchao_8bit"
                    else _AdamW(self.weights, bf16_stochastic_round=True, **self.options))
            return made, f"torchao {torchao.__version__} {type(made).__name__}"
        form = "foreach" if self.peer == "torch_foreach" else "fused"
        return torch.optim.AdamW(self.weights, **{form: True}, **self.options), f"torch {torch.__version__} {form} AdamW"

    def work(self):
        if self.peer in ("deepspeed_whole", "torch_whole", "deepspeed_cast") and self.grad is not self.given:
            self.grad.copy_(self.given)
        if self.peer == "torch_whole":
            torch.nn.utils.clip_grad_norm_(self.weights, self.clip)
        if self.peer == "deepspeed_whole":  # as its stages 1 and 2 with an offloaded optimizer do
            norms = [grad.double().norm(2) for grad in self.grads]
            total = torch.norm(torch.stack(norms), p=2).item()
            combined = max(1.0, (total + 1e-6) / self.clip)
            for weight in self.weights:
                weight.grad.mul_(1.0 / combined)
        self.optimizer.step()
        if self.form == "published":
            self.copy.copy_(self.flat)

    def check(self, folder):
        for factor in CHECK_FACTORS:
            self.given.mul_(factor)
            if self.grad is not self.given:
                self.grad.copy_(self.given)
            kept = self.given.clone()
            self.work()
            self.given.copy_(kept).mul_(1 / factor)
        if self.grad is not self.given:
            self.grad.copy_(self.given)
        shown = self.copy if self.form == "published" else self.flat
        worker.write_samples(folder, f"{self.peer}.weight", shown[::97])
        return {}


if __name__ == "__main__":
    peer, weights, grads, count, tensors, threads, optimizer, *rows = sys.argv[1:]
    sizes = map(int, (count, tensors, threads))
    worker.serve(lambda: OptimizerStep(peer, weights, grads, *sizes, optimizer, int(rows[0]) if rows else 0))
