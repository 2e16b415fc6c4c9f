"""CPU runs as if on GPUs: real instructions that take a simulated GPU's time. Off the product's path."""

from perseus_ds.runtime.emulation.carried_time import CarriedTime, CoupledTime, Neighbours
from perseus_ds.runtime.emulation.emulated_work import EmulatedWork, StageWork, works_of
from perseus_ds.runtime.emulation.emulation import Emulation
from perseus_ds.runtime.emulation.routes import routes_of
from perseus_ds.runtime.emulation.time_messages import TimeMessages

__all__ = [
    "CarriedTime",
    "CoupledTime",
    "EmulatedWork",
    "Emulation",
    "Neighbours",
    "StageWork",
    "TimeMessages",
    "routes_of",
    "works_of",
]
