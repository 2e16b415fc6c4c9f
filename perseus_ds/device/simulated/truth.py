"""What really happened on a simulated GPU: for tests and oracles, never for measuring code."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from perseus_ds.device.simulated import physics
from perseus_ds.device.simulated.models import GpuModel
from perseus_ds.device.simulated.physics import Work
from perseus_ds.device.simulated.roofline import KernelWork, kernel_cost
from perseus_ds.device.simulated.timeline import Task

_KEPT_TASKS = 4096


@dataclass(frozen=True, slots=True)
class TruthNow:
    """The true state at one moment."""

    time_s: float
    energy_j: float
    busy_s: float
    power_w: float
    clock_mhz: float
    temperature_c: float


@dataclass(slots=True)
class Truth:
    """Everything that happened: the last tasks, and how often the host was slower than the GPU.

    ``locks`` counts the clocks that were asked for since the first task.
    """

    model: GpuModel
    tasks: deque[Task] = field(default_factory=lambda: deque(maxlen=_KEPT_TASKS))
    count: int = 0
    locks: int = 0
    overruns: int = 0
    overrun_s: float = 0.0

    @property
    def overrun_share(self) -> float:
        """Of how many tasks the host was slower than the GPU; in virtual time of none."""
        return self.overruns / self.count if self.count else 0.0

    def record(self, task: Task) -> None:
        """Take in a task that has ended."""
        self.tasks.append(task)
        self.count += 1
        if task.overrun_s > 0:
            self.overruns += 1
            self.overrun_s += task.overrun_s

    def duration_s(self, work: Work, clock_mhz: int) -> float:
        """The duration that work has at a clock, without noise."""
        return physics.duration_s(self.model, clock_mhz, work)

    def energy_j(self, work: Work, clock_mhz: int) -> float:
        """The energy that work has at a clock, without noise, at the reference temperature."""
        return physics.energy_j(self.model, clock_mhz, work)

    def kernel_cost(self, work: KernelWork, clock_mhz: int, memory_mhz: int) -> tuple[float, float]:
        """The duration and energy that a kernel has at a pair of clocks, without noise."""
        return kernel_cost(self.model, clock_mhz, memory_mhz, work)

    def blocking_power_w(self, clock_mhz: int) -> float:
        """The power while waiting at a clock, at the reference temperature."""
        return physics.power_w(self.model, clock_mhz, 0.0)
