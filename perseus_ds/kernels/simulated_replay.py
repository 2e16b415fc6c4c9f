"""Replays on a simulated GPU: a kernel class is the work that its operator asks for on its shapes."""

from __future__ import annotations

from dataclasses import dataclass

from perseus_ds.device.simulated.gpu import SimulatedGpu
from perseus_ds.device.simulated.operators import work_of_operator
from perseus_ds.device.simulated.physics import KernelWork
from perseus_ds.kernels.trace import KernelClass


@dataclass(frozen=True, slots=True)
class SimulatedReplay:
    """Launches of one class on a simulated GPU."""

    gpu: SimulatedGpu
    work: KernelWork

    def run(self, launches: int) -> None:
        """Launch it so often, back to back."""
        task = self.gpu.begin(self.work.scaled(launches))
        self.gpu.release(task)
        self.gpu.wait(task)


def simulated_replay(gpu: SimulatedGpu, kernel: KernelClass) -> SimulatedReplay:
    """Find the replay of a class."""
    return SimulatedReplay(gpu, work_of_operator(gpu.model, kernel.name, kernel.shapes, kernel.dtype))
