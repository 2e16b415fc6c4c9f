"""What not every driver and GPU answers: power just now, who works on it, whether memory clocks lock."""

from __future__ import annotations

from contextlib import suppress
from types import ModuleType

_AMPERE, _HOPPER = 7, 9  # nvml.h, NVML_DEVICE_ARCH_*
_OF_GPU = 0  # nvml.h, NVML_POWER_SCOPE_GPU
_LEAST_USED_BYTES = 256 << 20  # assumed: less than any training job, more than a driver keeps for itself


def instant_power_w(nvml: ModuleType, handle: object) -> float | None:
    """Read the power of the GPU itself at this instant; ``None`` where binding or driver know no such field.

    `nvmlDeviceGetPowerUsage` is a mean over a second on most GPUs since Ampere.

    Source: nvml.h 13, ``NVML_FI_DEV_POWER_INSTANT`` (milliwatts), ``scopeId`` 0: the GPU, 1: its module.
    """
    field = getattr(nvml, "NVML_FI_DEV_POWER_INSTANT", None)
    if field is None:
        return None
    (answer,) = nvml.nvmlDeviceGetFieldValues(handle, [(field, _OF_GPU)])
    return None if answer.nvmlReturn != 0 else answer.value.uiVal / 1000


def chip_temperature_c(nvml: ModuleType, handle: object) -> float:
    """Read the chip's temperature by its present name, or by the older one.

    Source: nvml.h 13, ``nvmlDeviceGetTemperatureV``; ``nvmlDeviceGetTemperature`` goes with CUDA 14.
    """
    if hasattr(nvml, "nvmlDeviceGetTemperatureV"):
        with suppress(nvml.NVMLError_FunctionNotFound):
            return float(nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU))
    return float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))


def why_no_memory_clock(nvml: ModuleType, handle: object, memory_clocks_mhz: tuple[int, ...]) -> str | None:
    """Return why the memory clock cannot be locked, as far as it shows without trying; ``None``: it can.

    It is not tried: NVML informs nobody which memory clock an operator has locked, so that a trial could not
    put it back.

    Source: nvml.h 13, ``nvmlDeviceSetMemoryLockedClocks`` ("Ampere or newer"); Hopper: ``nvidia-smi -lmcd``.
    """
    if len(memory_clocks_mhz) <= 1:
        return "there is one memory clock only" if memory_clocks_mhz else "it lists no memory clocks"
    architecture = int(nvml.nvmlDeviceGetArchitecture(handle))
    if architecture < _AMPERE:
        return "that needs Ampere or newer"
    if architecture == _HOPPER:
        return "Hopper takes one only at the next load of the driver"
    return None


def process_on(nvml: ModuleType, handle: object) -> str:
    """Return which process computes on a GPU; empty: none that is visible from here."""
    processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return f"process {processes[0].pid} computes on it" if processes else ""


def load_on(nvml: ModuleType, handle: object) -> str:
    """Return how busy a GPU is; empty: not at all."""
    load_pct = int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    return f"its load is {load_pct} %" if load_pct else ""


def memory_used_on(nvml: ModuleType, handle: object) -> str:
    """Return how much memory of a GPU is in use, beyond what a driver takes; empty: none to report of."""
    used_bytes = int(nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2).used)
    return f"{used_bytes >> 20} MiB of it are in use" if used_bytes >= _LEAST_USED_BYTES else ""


SIGNS_OF_WORK = (process_on, load_on, memory_used_on)
"""All are asked: a container, for one, does not see the processes of others."""
