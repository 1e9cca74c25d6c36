# SPDX-License-Identifier: Apache-2.0
"""tests/bench/checkpoints.c by PyTorch: as many bytes of tensors, durable when a save returns.

checkpoints.py MODE FOLDER MATRICES SIDE; MODE: torch_save, torch_load, dcp_save, dcp_hold_up or dcp_load
"""

import os
import pathlib
import shutil
import sys

import torch
import worker
from numbers_ import stream
from torch import distributed
from torch.distributed import checkpoint as dcp

STRIDE = 97


class Checkpoints(worker.Worker):
    def __init__(self, mode, folder, matrices, side):
        self.mode, self.folder, self.matrices, self.side = mode, pathlib.Path(folder), int(matrices), int(side)
        self.saves, self.future = 0, None

    def setup(self):
        torch.set_num_threads(2)
        if self.mode == "dcp_hold_up":
            distributed.init_process_group("gloo", init_method=f"file://{self.folder}/group", rank=0, world_size=1)
        self.state = {}
        for m in range(self.matrices):
            weight, exp_avg = (stream(first + m, self.side**2, by, torch.float32).view(self.side, self.side) for first, by in ((0, 512), (100, 4096)))
            self.state.update({f"{m}.weight": weight, f"{m}.exp_avg": exp_avg, f"{m}.exp_avg_sq": exp_avg * exp_avg})
        if self.mode.endswith("_load"):
            self._save()
        return {"peer": f"torch {torch.__version__}"}

    @property
    def path(self):
        return self.folder / f"save{self.saves}"

    def _save(self):
        if self.mode.startswith("torch"):
            with self.path.open("wb") as file:
                torch.save(self.state, file)
                file.flush()
                os.fsync(file.fileno())
        elif self.mode == "dcp_hold_up":
            self.future = dcp.async_save(self.state, storage_writer=self._writer())
        else:
            dcp.save(self.state, storage_writer=self._writer(), no_dist=True)

    def _writer(self):
        return dcp.FileSystemWriter(self.path, sync_files=True, thread_count=2)

    def prepare(self):
        if self.mode.endswith("_load"):
            for path in filter(pathlib.Path.is_file, self.folder.rglob("*")):
                with path.open("rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return
        if self.path.is_dir():
            shutil.rmtree(self.path)
        self.path.unlink(missing_ok=True)
        self.saves += 1
        os.sync()

    def work(self):
        if self.mode == "torch_load":
            loaded = torch.load(self.path, weights_only=True)
            for name, tensor in self.state.items():
                tensor.copy_(loaded[name])
        elif self.mode == "dcp_load":
            dcp.load(self.state, storage_reader=dcp.FileSystemReader(self.path), no_dist=True)
        else:
            self._save()

    def rest(self):
        if self.future is not None:
            self.future.result()

    def check(self, folder):
        self.prepare()
        self.work()
        self.rest()
        worker.write_samples(folder, self.mode, torch.cat([tensor.view(-1)[::STRIDE] for tensor in self.state.values()]))
        return {}


if __name__ == "__main__":
    worker.serve(lambda: Checkpoints(*sys.argv[1:]))
