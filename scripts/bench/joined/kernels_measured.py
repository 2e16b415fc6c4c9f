"""The kernels of GPT-3 XL on a simulated GPU, measured as the command does."""

from __future__ import annotations

from perseus_ds.device import SimulatedGpu, SimulatedSettings
from perseus_ds.device.simulated import VirtualTime
from perseus_ds.kernels import KernelProfile, KernelTrace
from perseus_ds.kernels.measure import WindowPatience
from perseus_ds.kernels.measure_trace import measure_trace
from perseus_ds.kernels.simulated_replay import simulated_replay

STAGES, BATCH = 4, 16
NOISE = 0.005


def measured(gpu: str, trace: KernelTrace, seed: int) -> KernelProfile:
    """Measure all classes at all pairs, and again what would be chosen."""
    settings = SimulatedSettings(gpu=gpu, noise=NOISE, counter_noise=NOISE / 2, seed=seed)
    device = SimulatedGpu(settings, time=VirtualTime())
    patience = WindowPatience(window_s=0.5, windows=2)
    return measure_trace(device, trace, lambda kernel: simulated_replay(device, kernel), patience=patience)
