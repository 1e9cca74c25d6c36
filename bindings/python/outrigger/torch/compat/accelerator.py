# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's accelerator object, for the CPU: what a CPU has not (streams, events, graphs) is None or does nothing there, too."""
import contextlib
import os

import torch


class DeepSpeedAccelerator:
    """The base of DeepSpeed's accelerators, for isinstance."""


def _type(dtype):
    """DeepSpeed's types of tensors are constructors."""
    return property(lambda self: lambda *sizes: torch.tensor(sizes[0], dtype=dtype) if len(sizes) == 1 and not isinstance(sizes[0], int)
                    else torch.empty(*sizes, dtype=dtype))


def _resident():
    """Bytes that this process holds, and the most that it held, as the system counts them."""
    with open("/proc/self/status", encoding="ascii") as status:
        found = dict(line.split(":", 1) for line in status)
    return tuple(1024 * int(found[name].split()[0]) for name in ("VmRSS", "VmHWM"))


class Accelerator(DeepSpeedAccelerator):
    Stream = Event = None
    BFloat16Tensor, HalfTensor = _type(torch.bfloat16), _type(torch.float16)
    FloatTensor, DoubleTensor = _type(torch.float32), _type(torch.float64)
    ByteTensor, IntTensor, LongTensor = _type(torch.uint8), _type(torch.int32), _type(torch.int64)

    # ---- The device ----

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

    use_host_timers = resolves_data_dependency = handles_memory_backpressure = is_synchronized_device

    def communication_backend_name(self):
        return "gloo"

    def synchronize(self, device_index=None):
        pass

    def on_accelerator(self, tensor):
        return tensor.device.type == "cpu"

    def visible_devices_envs(self):
        return ["CUDA_VISIBLE_DEVICES"]

    def set_visible_devices_envs(self, current_env, local_accelerator_ids):
        for name in self.visible_devices_envs():
            current_env[name] = ",".join(map(str, local_accelerator_ids))

    def export_envs(self):
        return []

    def get_compile_backend(self):
        return "inductor"

    # ---- Random numbers ----

    def random(self):
        return torch.random

    def get_rng_state(self, device_index=None):
        return torch.get_rng_state()

    def set_rng_state(self, new_state, device_index=None):
        torch.set_rng_state(new_state)

    def manual_seed(self, seed):
        return torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def initial_seed(self):
        return torch.initial_seed()

    def default_generator(self, device_index=None):
        return torch.default_generator

    # ---- Dtypes ----

    def is_bf16_supported(self):
        return True

    def is_fp16_supported(self):
        return True

    def is_fp64_supported(self):
        return True

    def supported_dtypes(self):
        return [torch.float32, torch.bfloat16, torch.float16]

    def is_triton_supported(self):
        return False

    prefer_triton_grouped_mm = is_triton_supported

    # ---- Streams, events, graphs: a CPU has none ----

    def stream(self, stream):
        return contextlib.nullcontext()

    def current_stream(self, device_index=None):
        return None

    default_stream = current_stream

    def is_current_stream_capturing(self):
        return False

    def create_graph(self):
        return None

    def capture_to_graph(self, graph, pool=None, stream=None):
        return contextlib.nullcontext()

    def replay_graph(self, graph):
        pass

    def range_push(self, msg, domain=None, category=None):
        pass

    def range_pop(self, domain=None):
        pass

    def lazy_call(self, callback):
        return callback()

    # ---- Memory ----

    def empty_cache(self):
        pass

    def memory_allocated(self, device_index=None):
        return _resident()[0]

    memory_cached = memory_reserved = memory_allocated

    def max_memory_allocated(self, device_index=None):
        """Since the process began: what the system counts is not reset."""
        return _resident()[1]

    max_memory_cached = max_memory_reserved = max_memory_allocated

    def reset_peak_memory_stats(self, device_index=None):
        pass

    reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats

    def memory_stats(self, device_index=None):
        now, most = _resident()
        return {"allocated_bytes.all.current": now, "allocated_bytes.all.peak": most}

    def total_memory(self, device_index=None):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def available_memory(self, device_index=None):
        with open("/proc/meminfo", encoding="ascii") as memory:
            return 1024 * int(next(line.split()[1] for line in memory if line.startswith("MemAvailable")))

    def pin_memory(self, tensor, make_copy=True, match_shape=True):
        return tensor

    def pin_empty(self, *size, dtype, device="cpu"):
        return torch.empty(*size, dtype=dtype)

    def pin_empty_like(self, tensor, device="cpu", dtype=None):
        return torch.empty_like(tensor, dtype=dtype, device="cpu")

    def is_pinned(self, tensor):
        return tensor.is_pinned()

    def unpin_memory(self, tensor):
        pass

    def pin_memory_alignment(self):
        return 1


_only = Accelerator()


def get_accelerator():
    return _only
