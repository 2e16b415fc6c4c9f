"""How much work a simulated GPU gets for one computation of a model stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from perseus_ds.device.simulated import (
    KernelSequence,
    SimulatedSettings,
    Work,
    model_named,
    work_of_operator,
)
from perseus_ds.errors import ConfigError
from perseus_ds.kernels import KernelTrace, read_trace
from perseus_ds.schedule import Kind

_HALF = 0.5  # each is one of the two products that a linear layer's backward consists of
_LEAST_SHARE = 0.01  # assumed: a stage of embeddings alone still takes a hundredth of the mean stage


@dataclass(frozen=True, slots=True)
class StageWork:
    """The work of one microbatch on one stage."""

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
