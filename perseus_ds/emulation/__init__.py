"""CPU runs as if on GPUs: real instructions, stretched to a simulated GPU's time. Off the product's path."""

from perseus_ds.emulation.install import emulate
from perseus_ds.emulation.stage_work import StageWork, work, work_of_stage
from perseus_ds.emulation.stretch import stretched
from perseus_ds.emulation.weight import weight_of_stage

__all__ = ["StageWork", "emulate", "stretched", "weight_of_stage", "work", "work_of_stage"]
