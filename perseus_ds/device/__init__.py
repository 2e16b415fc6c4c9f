"""GPUs as this package needs them: identity, clock, energy; one backend per file.

``device.choose`` is imported by those who open a device: it brings every backend.
"""

from perseus_ds.device.changing.calibration import (
    Calibration,
    calibrate,
    calibrate_together,
    calibrating,
    measured,
)
from perseus_ds.device.changing.clock_change import ChangeQueue, ClockChange
from perseus_ds.device.changing.switches import Steps
from perseus_ds.device.clock_agenda import (
    AskedClocks,
    ClockAgenda,
    DatedClock,
    DatedClocks,
    RequestCounts,
    overdue_s,
)
from perseus_ds.device.clock_pair import ClockPair
from perseus_ds.device.conflict import ConflictKind, Sighting
from perseus_ds.device.gpu import Gpu
from perseus_ds.device.null import NullGpu
from perseus_ds.device.operator_settings import OperatorSettings
from perseus_ds.device.record import Achieved, Capabilities, EventReason, Identity
from perseus_ds.device.request import Backend, Choice, DeviceRequest
from perseus_ds.device.simulated import SimulatedGpu, SimulatedSettings, Work, simulated_settings

__all__ = [
    "Achieved",
    "AskedClocks",
    "Backend",
    "Calibration",
    "Capabilities",
    "ChangeQueue",
    "Choice",
    "ClockAgenda",
    "ClockChange",
    "ClockPair",
    "ConflictKind",
    "DatedClock",
    "DatedClocks",
    "DeviceRequest",
    "EventReason",
    "Gpu",
    "Identity",
    "NullGpu",
    "OperatorSettings",
    "RequestCounts",
    "Sighting",
    "SimulatedGpu",
    "SimulatedSettings",
    "Steps",
    "Work",
    "calibrate",
    "calibrate_together",
    "calibrating",
    "measured",
    "overdue_s",
    "simulated_settings",
]
