"""CPU runs as if on GPUs: real instructions, stretched to a simulated GPU's time. Off the product's path."""

from perseus_ds.runtime.emulation.emulated_work import EmulatedWork
from perseus_ds.runtime.emulation.stage_work import StageWork, works_of

__all__ = ["EmulatedWork", "StageWork", "works_of"]
