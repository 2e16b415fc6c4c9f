"""A GPU in software: a physical device whose truth is known, not a mock."""

from perseus_ds.device.simulated.gpu import SimulatedGpu, opened
from perseus_ds.device.simulated.models import MODELS, GpuModel, model_named
from perseus_ds.device.simulated.operators import is_product, work_of_operator
from perseus_ds.device.simulated.physics import Work
from perseus_ds.device.simulated.roofline import KernelWork
from perseus_ds.device.simulated.sequence import KernelSequence
from perseus_ds.device.simulated.settings import SimulatedSettings, simulated_settings
from perseus_ds.device.simulated.timebase import VirtualTime
from perseus_ds.device.simulated.timeline import Task
from perseus_ds.device.simulated.truth import Truth

__all__ = [
    "MODELS",
    "GpuModel",
    "KernelSequence",
    "KernelWork",
    "SimulatedGpu",
    "SimulatedSettings",
    "Task",
    "Truth",
    "VirtualTime",
    "Work",
    "is_product",
    "model_named",
    "opened",
    "simulated_settings",
    "work_of_operator",
]
