"""Every metric by name, and samples of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum


class Form(Enum):
    """Whether a value only grows, or goes up and down."""

    COUNTER = "counter"
    GAUGE = "gauge"


class Metric(Enum):
    """What there is to know, in base units: the name's end, its form, and its meaning."""

    ENERGY = "gpu_energy_joules_total", "Energy that the GPU took since the process started."
    POWER = "gpu_power_watts", "Mean power of the GPU in the iterations measured last."
    ITERATION_ENERGY = "gpu_iteration_energy_joules", "Energy of the GPU in one of these iterations."
    REQUESTED = "gpu_requested_clock_hertz", "Core clock that was requested last; absent at default clocks."
    ACHIEVED = "gpu_achieved_clock_hertz", "Core clock that was read last."
    REQUESTS = "gpu_clock_changes_total", "Changes of clock that reached the driver."
    LATE = "gpu_late_clock_changes_total", "Changes of clock that reached the driver late."
    OVERTAKEN = "gpu_overtaken_clock_requests_total", "Requests that a later one overtook at their moment."
    CONTROL = "gpu_clock_control", "1 while requested clocks are set, 0 while they are not."
    CONFLICTS = "gpu_conflicts_total", "Sightings of others at work on the GPU's clock or power."
    POWER_LIMIT = "gpu_power_limit_watts", "Power limit that the driver enforces."
    RUNNING = "running", "1 while the job runs, 0 after its end."
    ITERATIONS = "iterations_total", "Training iterations since the process started."
    ITERATION_TIME = "iteration_time_seconds", "Duration of the last iteration, of the slowest rank."
    PLAN = "plan", "Number of the plan in force; 0 is the fastest."
    PLANS = "plans", "How many plans there are."
    PLANNED_TIME = "planned_iteration_time_seconds", "Iteration time that the objective's plan predicts."
    SYNC_TIME = "sync_time_seconds", "Iteration time T' at which replicas meet a straggler; absent without."
    STRAGGLER = "straggler_slowdown_ratio", "How many times longer a straggler takes than its peers."
    SAVED = (
        "energy_saved_joules",
        "Energy that plans saved since the process started, all GPUs, as measured.",
    )
    SAVED_ERROR = "energy_saved_error_joules", "Half of the 95 % interval of energy_saved_joules."
    SAVING = "saving_ratio", "Share of an iteration's energy that the plan saves, as measured."
    SAVING_ERROR = "saving_error_ratio", "Half of the 95 % interval of saving_ratio."
    SLOWDOWN = "slowdown_ratio", "Share by which an iteration lasts longer at the plan, as measured."
    SLOWDOWN_ERROR = "slowdown_error_ratio", "Half of the 95 % interval of slowdown_ratio."
    PROFILE_AGE = "profile_age_seconds", "Time since the profile was written."

    def __init__(self, ending: str, text: str) -> None:
        self.title = f"perseus_{ending}"
        self.text = text
        self.form = Form.COUNTER if ending.endswith("_total") else Form.GAUGE
        self.of_gpu = ending.startswith("gpu_")


LASTING = frozenset({Metric.SAVED, Metric.SAVED_ERROR})
"""Gauges that still hold after the end of a job, as every counter does."""


@dataclass(frozen=True, slots=True)
class MetricSample:
    """One value of a metric; ``labels`` beside those of its GPU, or of the job."""

    metric: Metric
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Labels:
    """What all samples of a GPU have in common, and all of the job."""

    gpu: Mapping[str, str]
    job: Mapping[str, str]

    def of(self, sample: MetricSample) -> dict[str, str]:
        """Return all labels of a sample."""
        return {**(self.gpu if sample.metric.of_gpu else self.job), **sample.labels}


def lasting(samples: Iterable[MetricSample]) -> list[MetricSample]:
    """Return what still holds after the end of the job."""
    return [one for one in samples if one.metric.form is Form.COUNTER or one.metric in LASTING]
