"""A CPU platform and a rollout engine on transformers' `generate` for verl 0.9.1 (test fixture; loaded by
VERL_USE_EXTERNAL_MODULES=verl_on_cpu in every process)."""

import contextlib
import gc
import os
import types

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry, set_platform


class _Device(types.ModuleType):
    """`torch.cpu` with the functions of `torch.cuda` that verl calls, as no-ops."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if hasattr(torch.cpu, name):
            return getattr(torch.cpu, name)
        if name in ("max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved"):
            return lambda *a, **k: 0
        if name == "get_device_name":  # verl's flops counter looks it up; unknown names are allowed
            return lambda *a, **k: "cpu"
        if name == "mem_get_info":
            return lambda *a, **k: (1 << 33, 1 << 34)
        if name == "get_rng_state":
            return lambda *a, **k: torch.get_rng_state()
        if name == "set_rng_state":
            return lambda state, *a, **k: torch.set_rng_state(state)
        return lambda *a, **k: None


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _Device("verl_on_cpu_device")

    def is_available(self):
        return True

    def current_device(self):
        return torch.device("cpu")

    def device_count(self):
        return 1

    def set_device(self, device_index):
        pass

    def synchronize(self, device_index=None):
        pass

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    def manual_seed_all(self, seed):
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings):
        pass

    def empty_cache(self):
        pass

    def get_device_capability(self, device_index=0):
        return None, None

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg):
        yield

    def profiler_start(self):
        pass

    def profiler_stop(self):
        pass

    def ray_resource_name(self):
        return "GPU"  # logical: ray.init(num_gpus=1)

    def ray_noset_envvars(self):
        return []

    def is_ipc_supported(self):
        return False

    def cudart(self):
        return None


set_platform(PlatformCPU())
os.environ.setdefault("VERL_ENGINE_DEVICE", "cuda")  # the FSDP engine is registered for cuda and npu only

# "cpu:gloo,cpu:gloo" names a device twice, which torch refuses.
import verl.utils.distributed as _distributed  # noqa: E402

_original = _distributed.initialize_global_process_group_ray
_distributed.initialize_global_process_group_ray = lambda timeout_second=None, backend=None: _original(
    timeout_second, backend or "gloo"
)

from verl.workers.rollout import base as _base  # noqa: E402

_base._ROLLOUT_REGISTRY["hf", "async"] = "verl_on_cpu_rollout.Adapter"

from verl.workers.rollout.replica import RolloutReplicaRegistry  # noqa: E402


def _replica():
    from verl_on_cpu_rollout import Replica

    return Replica


RolloutReplicaRegistry.register("hf", _replica)
gc.freeze()  # what is imported: verl collects garbage up to three times at each update of weights
