"""What an emulated job did, iteration by iteration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from perseus_ds.simulation.emulator.program import JobProgram
from perseus_ds.simulation.emulator.records import CAUSES, Floats, Ints, PowerTrace
from perseus_ds.straggler import StragglerDecision


@dataclass(frozen=True, slots=True, eq=False)
class Emulated:
    """Times and energies of the whole job, decisions, and one pipeline's last iteration node by node.

    ``job_s`` is from release to release of the first rank; ``own_s`` without the wait for other pipelines
    (NaN: it took no part). Energy is that of all GPUs. ``answers_cost_pct`` is the time that answers to
    stragglers cost in the last 1 000 iterations, in percent of these.

    Shape: ``job_s``, ``changes`` [iterations]; ``own_s``, ``plan`` [iterations, pipelines]; ``energy_j``
    [iterations, causes]; ``begun_s``, ``ended_s`` [pipelines, nodes] of the last iteration, from its start.
    """

    job: JobProgram
    gpus: int
    job_s: Floats
    own_s: Floats
    plan: Ints
    energy_j: Floats
    changes: Ints
    decisions: tuple[StragglerDecision, ...]
    trace: PowerTrace
    begun_s: Floats
    ended_s: Floats
    answers_cost_pct: float = 0.0

    @property
    def iterations(self) -> int:
        """How many were run."""
        return len(self.job_s)

    @property
    def total_j(self) -> float:
        """Energy of all GPUs over all iterations."""
        return float(self.energy_j.sum())

    @property
    def by_cause_j(self) -> Mapping[str, float]:
        """The same, by what it went into."""
        return dict(zip(CAUSES, self.energy_j.sum(axis=0).tolist(), strict=True))

    @property
    def power_w(self) -> Floats:
        """Mean power of the job in every whole bin of its trace."""
        whole = int(self.job_s.sum() / self.trace.bin_s)
        power: Floats = self.trace.energy_j[:whole] / self.trace.bin_s
        return power

    def changes_per_s(self) -> float:
        """Changes of clock per second and GPU."""
        return float(self.changes.sum() / self.gpus / self.job_s.sum())


def means(found: Emulated) -> tuple[float, float]:
    """Mean iteration time and energy, the first iteration (which fills the pipeline's clocks) left out."""
    after = slice(1, None) if found.iterations > 1 else slice(None)
    return float(np.mean(found.job_s[after])), float(np.mean(found.energy_j[after].sum(axis=1)))
