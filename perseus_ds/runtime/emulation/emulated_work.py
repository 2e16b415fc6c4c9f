"""Make every computation last as long as a simulated GPU would need for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from perseus_ds.device.simulated.gpu import SimulatedGpu, Task
from perseus_ds.device.simulated.models import model_named
from perseus_ds.device.simulated.operators import work_of_operator
from perseus_ds.device.simulated.physics import KernelSequence, Work
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.errors import ConfigError
from perseus_ds.kernels import KernelTrace, read_trace
from perseus_ds.runtime.adapter import Batch, InstructionListener, PassingListener
from perseus_ds.runtime.emulation.load_share import LoadShare
from perseus_ds.schedule import Instruction, Kind, Load

_HALF = 0.5  # each is one of the two products that a linear layer's backward consists of
_LEAST_SHARE = 0.01  # assumed: a stage of embeddings alone still takes a hundredth of the mean stage


@dataclass(frozen=True, slots=True)
class StageWork:
    """The work that a simulated GPU gets for one microbatch on one stage."""

    forward: Work | KernelSequence
    backward: Work | KernelSequence

    def of(self, kind: Kind) -> Work | KernelSequence:
        """Return the work of a computation; input and weight gradient are half a backward each."""
        if kind is Kind.FORWARD:
            return self.forward
        return self.backward if kind is Kind.BACKWARD else self.backward.scaled(_HALF)


def works_of(weights: Mapping[int, float], settings: SimulatedSettings) -> dict[int, StageWork]:
    """Work in proportion to each stage's weight, unless the user listed ``forward_s`` or gave the kernels.

    Shape: ``weights`` [model stages], of the whole pipeline.

    Raises:
        ConfigError: ``forward_s`` has another number of entries.
        ProfileError: the kernels of a stage are not in the trace, or it cannot be read.
    """
    if settings.kernels is not None:
        trace = read_trace(Path(settings.kernels))
        return {stage: _of_kernels(trace, stage, settings.gpu) for stage in weights}
    listed = settings.forward_s
    if listed is not None and len(listed) != len(weights):
        raise ConfigError(
            f"perseus.simulated.forward_s has {len(listed)} entries and the job {len(weights)} stages"
        )
    mean = fmean(weights.values())
    works = {}
    for stage, weight in weights.items():
        share = max(_LEAST_SHARE, weight / mean if mean > 0 else 1.0)
        forward_s = settings.mean_forward_s * share if listed is None else listed[stage]
        forward = Work(forward_s, settings.memory_bound, settings.intensity)
        works[stage] = StageWork(forward, forward.scaled(settings.backward_over_forward))
    return works


def _of_kernels(trace: KernelTrace, stage: int, gpu: str) -> StageWork:
    """The launch sequences of one stage, every class with the work that its operator asks for."""
    model = model_named(gpu)
    works = [work_of_operator(model, one.name, one.shapes, one.dtype) for one in trace.classes]
    forward, backward = (
        KernelSequence(tuple(works[kernel] for kernel in trace.of(stage, kind).kernels))
        for kind in (Kind.FORWARD, Kind.BACKWARD)
    )
    return StageWork(forward, backward)


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
