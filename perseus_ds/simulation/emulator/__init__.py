"""Jobs of thousands of GPUs in virtual time, instruction by instruction, with the product's own decisions."""

from perseus_ds.simulation.emulator.cluster import ClusterShape
from perseus_ds.simulation.emulator.disturbance import Disturbance, Trouble, parse_disturbance
from perseus_ds.simulation.emulator.emulator import Emulator
from perseus_ds.simulation.emulator.lengths import EmulatedLoads, parse_loads
from perseus_ds.simulation.emulator.records import CAUSES
from perseus_ds.simulation.emulator.result import Emulated, means
from perseus_ds.simulation.emulator.world import DEFAULT_CLOCKS, Conditions

__all__ = [
    "CAUSES",
    "DEFAULT_CLOCKS",
    "ClusterShape",
    "Conditions",
    "Disturbance",
    "Emulated",
    "EmulatedLoads",
    "Emulator",
    "Trouble",
    "means",
    "parse_disturbance",
    "parse_loads",
]
