"""What a plan takes when clocks change late and durations vary: the figure to hold a measurement against."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perseus_ds.device import ClockChange
from perseus_ds.plan.playing.pipeline import PaperPipeline
from perseus_ds.plan.playing.saving_errors import TWICE, error_of_saving
from perseus_ds.plan.playing.time_errors import time_errors
from perseus_ds.plan.record import Expected, FrequencyPlan, PlanSet
from perseus_ds.profile import Computation, Profile, smoothed
from perseus_ds.profile.loads.sizes import log_normal
from perseus_ds.schedule import Dag, dag_of

_MOST_NODES = 30_000  # played in all: about half a second
_LEAST_DRAWS, _MOST_DRAWS = 6, 200
_LEAST_FACTOR = 0.5
LEFT_OUT = 0.0005
"""What this model leaves out, as a standard error of the saving: found on jobs whose truth is known."""
LEFT_OUT_OF_TIME = 0.0004
"""The same of the iteration time."""

Floats = NDArray[np.float64]
_PLAYED_NODES = 30_000  # played in all: about half a second
_FEWEST, _MOST = 2, 12


@dataclass(frozen=True, slots=True)
class _PaperSide:
    """Iterations of one side: how long each lasts, and what each GPU takes in one on average.

    ``waiting_w`` is what each takes while it waits at the end.

    Shape: ``time_s`` [draws]; ``energy_j``, ``waiting_w`` [ranks].
    """

    time_s: Floats
    energy_j: Floats
    waiting_w: Floats

    def beside(self, replicas: int, longer_s: float = 0.0) -> tuple[float, Floats]:
        """Time and energy of an iteration that lasts as long as the slowest of all replicas' iterations.

        And ``longer_s`` beyond that: all ranks wait for as long.
        """
        ordered, count = np.sort(self.time_s), len(self.time_s)
        slowest = np.diff((np.arange(count + 1) / count) ** replicas)
        time_s = float(slowest @ ordered) + longer_s
        return time_s, self.energy_j + (time_s - float(ordered.mean())) * self.waiting_w


def expected(
    plan: FrequencyPlan,
    profile: Profile,
    change: ClockChange,
    *,
    variation: Mapping[Computation, float] | None = None,
    replicas: int = 1,
) -> Expected:
    """Run the plan and its baseline on paper, iteration after iteration, with durations that vary.

    The plan itself counts every wait at one power, every computation at its own clock and every duration as
    its mean. Really a lower clock comes into force when its computation has begun, and a GPU waits at the
    clock of what follows. An iteration lasts as long as the longest of paths that vary: the reserve lets a
    part of that through. A GPU that runs slower is cooler and leaks less (``profile.leakage``).
    ``variation`` is by what share each computation's duration varies; ``replicas`` wait for each other at
    the end of an iteration.

    The profile's own errors of time make an iteration longer too: of paths that are alike as profiled one
    really is the longest. They are drawn as the durations are.

    The intervals come from the profile's errors, how many iterations were drawn, and what is left out.

    Cost: a pass over the schedule's graph for every draw, `_MOST_NODES` nodes in all.
    """
    dag, profile = dag_of(plan.of.schedule), smoothed(profile)
    factor = _factors(dag, variation or {}, profile.size_variation)
    errors = time_errors(plan, profile, dag, factor, variation or {})
    before, after = _baseline(plan, dag, factor), _planned(plan, profile, change, dag, factor)
    before_s, before_j = before.beside(replicas, errors.before_s)
    after_s, after_j = after.beside(replicas, errors.after_s)
    whole_j, leakage = float(before_j.sum()), 0.0 if _has_cool_timelines(plan) else profile.leakage
    spared_j = after_s * float(spared_w(before_j / before_s, after_j / after_s, leakage).sum())
    saving = 1.0 - (float(after_j.sum()) - spared_j) / whole_j
    leaked = spared_j / whole_j * profile.leakage_se / leakage if leakage else 0.0
    error = math.hypot(error_of_saving(plan, profile, whole_j, 1.0 - saving), leaked, LEFT_OUT)
    drawn = _error_of_mean(after.time_s / before.time_s)
    return Expected(
        saving_pct=100.0 * saving,
        slowdown_pct=100.0 * (after_s / before_s - 1.0),
        within_pct=100.0 * TWICE * error,
        slowdown_within_pct=100.0 * TWICE * math.hypot(errors.ratio, drawn, LEFT_OUT_OF_TIME),
    )


def _factors(dag: Dag, variation: Mapping[Computation, float], size_variation: float) -> Floats:
    """Iterations as they might turn out: what every node's work is multiplied by, alike for both sides.

    A microbatch has one size on all stages.

    Shape: [nodes, draws].
    """
    share = np.array([variation.get((node.stage, node.kind), 0.0) for node in dag.nodes])
    draws = int(np.clip(_MOST_NODES // len(dag.nodes), _LEAST_DRAWS, _MOST_DRAWS)) if share.any() else 1
    random = np.random.default_rng(0)
    factor = np.maximum(1.0 + share[:, None] * random.standard_normal((len(dag.nodes), draws)), _LEAST_FACTOR)
    if size_variation:
        microbatch = np.array([node.microbatch for node in dag.nodes])
        sizes = log_normal(size_variation, random.standard_normal((microbatch.max() + 1, draws)))
        factor *= sizes[microbatch]
    return factor


def _baseline(plan: FrequencyPlan, dag: Dag, factor: Floats) -> _PaperSide:
    """Everything at its highest clock; what waits takes the power of waiting there."""
    plans = plan.of
    rank_of = plans.schedule.rank_of_stages()
    lasts_s, takes_j = np.zeros_like(factor), np.zeros_like(factor)
    for row, node in enumerate(dag.nodes):
        key = node.stage, node.kind
        if node.kind.is_computation:
            lasts_s[row] = plans.options[key].time_s[0] * factor[row]
            takes_j[row] = plans.options[key].energy_j[0] * factor[row]
        else:
            lasts_s[row] = plans.fixed_s[key]
    time_s = (dag.starts_of_many(lasts_s, plans.fixed_s) + lasts_s).max(axis=0)
    waiting_w = plans.baseline.blocking_power_w
    energy_j = np.full(plans.schedule.ranks, waiting_w * float(time_s.mean()))
    for row, node in enumerate(dag.nodes):
        if node.kind.is_computation:
            energy_j[rank_of[node.stage]] += float((takes_j[row] - waiting_w * lasts_s[row]).mean())
    return _PaperSide(time_s, energy_j, np.full(plans.schedule.ranks, waiting_w))


def _planned(
    plan: FrequencyPlan, profile: Profile, change: ClockChange, dag: Dag, factor: Floats
) -> _PaperSide:
    """The plan again and again; the first iteration brings every clock to where one leaves it."""
    pipeline = PaperPipeline(plan, profile, change, dag)
    pipeline.iterate(np.ones(len(dag.nodes)))
    ends_s, begin_j = [pipeline.now_s], pipeline.energy_j
    for drawn in factor.T:
        pipeline.iterate(drawn)
        ends_s.append(pipeline.now_s)
    takes_j = (pipeline.energy_j - begin_j) / factor.shape[1]
    return _PaperSide(np.diff(ends_s), takes_j, np.array([gpu.waiting_power_w for gpu in pipeline.gpus]))


def _has_cool_timelines(plan: FrequencyPlan) -> bool:
    """Whether something runs along kernels' clocks that were measured cool, each by itself."""
    options = plan.of.options
    return any(
        portions[-1].option >= len(options[i.stage, i.kind].clock_mhz)
        and not options[i.stage, i.kind].leaks_alike
        for i, portions in plan.portions().items()
    )


def spared_w(before_w: Floats, after_w: Floats, leakage: float) -> Floats:
    """What each GPU leaks less under the plan, whose profile was brought to the baseline's temperature.

    It is cooler by what it takes less, that included.
    """
    return leakage * (before_w - after_w) / (1.0 - leakage)


def _error_of_mean(values: Floats) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def with_power_ratio(plans: PlanSet, profile: Profile, change: ClockChange) -> PlanSet:
    """Add expected by planned power of every plan, for power caps; of some, and between them by a line.

    GPUs wait at the clock of what follows.

    Cost: a pass over the schedule's graph for each of these, `_PLAYED_NODES` nodes in all; nothing of a
    profile without a power of waiting. Not for the training's own thread.
    """
    if not profile.blocking_w:
        return plans
    profile = smoothed(profile)  # once: it takes longer than all that follows
    points = int(np.clip(_PLAYED_NODES // len(dag_of(plans.schedule).nodes), _FEWEST, _MOST))
    baseline, ratios = plans.baseline, {}
    for index in sorted(set(np.linspace(0, len(plans) - 1, points).astype(int).tolist())):
        hope = expected(plans.plan(index), profile, change)
        energy_j = baseline.energy_j * (1.0 - hope.saving_pct / 100.0)
        time_s = baseline.iteration_time_s * (1.0 + hope.slowdown_pct / 100.0)
        planned_w = plans.effective_energy_j[index] / time_s + plans.blocking_total_w
        ratios[index] = float(energy_j / time_s / planned_w)
    return replace(plans, power_ratio=np.interp(np.arange(len(plans)), [*ratios], [*ratios.values()]))
