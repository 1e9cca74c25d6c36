# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's accelerator object, for the CPU."""
import os

import torch


class Accelerator:
    def device_name(self, device_index=None):
        return "cpu"

    def current_device_name(self):
        return "cpu"

    def current_device(self):
        return self.local_rank()

    def device(self, device_index=None):
        return torch.device("cpu")

    def set_device(self, device_index):
        pass

    def device_count(self):
        return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))

    def local_rank(self):
        return int(os.environ.get("LOCAL_RANK", "0"))

    def is_available(self):
        return True

    def is_synchronized_device(self):
        return True

    def is_bf16_supported(self):
        return True

    def is_fp16_supported(self):
        return True

    def supported_dtypes(self):
        return [torch.float32, torch.bfloat16, torch.float16]

    def communication_backend_name(self):
        return "gloo"

    def synchronize(self, device_index=None):
        pass

    def empty_cache(self):
        pass

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def random(self):
        return torch.random

    def memory_allocated(self, device_index=None):
        """Bytes that this process holds, as the system counts them."""
        with open("/proc/self/status", encoding="ascii") as status:
            return 1024 * int(next(line.split()[1] for line in status if line.startswith("VmRSS")))

    max_memory_allocated = memory_reserved = memory_allocated

    def total_memory(self, device_index=None):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def reset_peak_memory_stats(self, device_index=None):
        pass

    def on_accelerator(self, tensor):
        return tensor.device.type == "cpu"

    def pin_memory(self, tensor, align_bytes=1):
        return tensor


_only = Accelerator()


def get_accelerator():
    return _only
