"""Make every computation last as long as a simulated GPU would need for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perseus_ds.device.simulated import SimulatedGpu, Task
from perseus_ds.runtime.adapter import Batch, InstructionListener, PassingListener
from perseus_ds.runtime.emulation.load_share import LoadShare
from perseus_ds.runtime.emulation.stage_work import StageWork
from perseus_ds.schedule import Instruction, Kind, Load


class EmulatedWork(PassingListener):
    """A listener in front of the session's: the GPU is busy with an instruction until its work is done.

    The session's marks lie around the GPU's work, as they would around kernels. Batches that the session
    does not want still take their time. A computation that takes the host longer keeps the GPU busy to its
    own end; `Truth` counts that as an overrun.

    A microbatch of another load is as much more or less work (`LoadShare`), in all that is done to it.
    """

    def __init__(
        self,
        listener: InstructionListener,
        gpu: SimulatedGpu,
        works: Mapping[int, StageWork],
        order: Sequence[Instruction],
        *,
        microbatches: int = 0,
        loads: LoadShare | None = None,
    ) -> None:
        super().__init__(listener)
        self._gpu = gpu
        self._works = works
        self._orders = {microbatches: _computed(order)}
        self._computations = self._orders[microbatches]
        self._loads = loads or LoadShare()
        self._position = 0
        self._wanted = False
        self._task: Task | None = None

    def iteration_begins(self, batch: Batch) -> bool:
        """Want every instruction, whether the session does or not."""
        self._position = 0
        self._computations = self._orders.get(batch.microbatches, self._computations)
        self._loads.iteration_begins(batch)
        self._wanted = super().iteration_begins(batch)
        return True

    def learn(self, order: Sequence[Instruction], *, microbatches: int) -> None:
        """Know what batches of another size run."""
        self._orders[microbatches] = _computed(order)

    def before(self, kind: Kind, load: Load | None = None) -> None:
        """Start the GPU's work where it is a computation."""
        if self._wanted:
            super().before(kind, load)
        if kind.is_computation:
            present = self._present(kind)
            work = self._works[present.stage].of(kind)
            self._task = self._gpu.begin(work.scaled(self._loads.share(present, load)))
            self._position += 1

    def after(self, kind: Kind) -> None:
        """Wait until the GPU has done it."""
        if self._task is not None:
            task, self._task = self._task, None
            self._gpu.release(task)
            self._gpu.wait(task)
        if self._wanted:
            super().after(kind)

    def iteration_broke(self) -> None:
        """Leave the GPU idle."""
        if self._task is not None:
            self._gpu.abandon(self._task)
            self._task = None
        super().iteration_broke()

    def _present(self, kind: Kind) -> Instruction:
        """The next computation; in a batch of another order, the first alike."""
        if self._position < len(self._computations) and self._computations[self._position].kind is kind:
            return self._computations[self._position]
        alike = (i for i in self._computations if i.kind is kind)
        return next(alike, Instruction(next(iter(self._works)), kind, 0))


def _computed(order: Sequence[Instruction]) -> list[Instruction]:
    return [i for i in order if i.kind.is_computation]
