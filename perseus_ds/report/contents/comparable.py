"""Measured energies brought to one pipeline, where that is possible: what the frontier can be compared to."""

from __future__ import annotations

from dataclasses import dataclass

from perseus_ds.plan import PlanSet
from perseus_ds.run_directory import Measured, Summary

TimeAndEnergy = tuple[float, float]


@dataclass(frozen=True, slots=True)
class PerPipeline:
    """Measured points of one pipeline.

    Units: (seconds, joules).
    """

    baseline: TimeAndEnergy
    perseus: TimeAndEnergy


def per_pipeline(summary: Summary, plans: PlanSet) -> PerPipeline | None:
    """Divide the job's energy by its pipelines; None if the number of GPUs is not known.

    A plan speaks of one GPU per pipeline rank: a job of ``gpus`` runs ``gpus / ranks`` of them, data-parallel
    replicas and the GPUs of a tensor-parallel rank alike.
    """
    gpus = summary.facts.get("gpus")
    if not isinstance(gpus, int) or gpus < plans.schedule.ranks or gpus % plans.schedule.ranks:
        return None
    pipelines = gpus // plans.schedule.ranks
    return PerPipeline(_of_one(summary.baseline, pipelines), _of_one(summary.perseus, pipelines))


def _of_one(measured: Measured, pipelines: int) -> TimeAndEnergy:
    return measured.iteration_time_s, measured.energy_j / pipelines
