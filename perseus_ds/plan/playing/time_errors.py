"""What the errors of a profile's times do to an iteration: how much longer it is, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.plan.record import FrequencyPlan
from perseus_ds.plan.splits import Portion
from perseus_ds.profile import Computation, Profile, drawn_shares, time_factor
from perseus_ds.schedule import Dag, Instruction

_LEAST_DRAWS, _MOST_DRAWS = 20, 200
_MOST_NUMBERS = 250_000  # nodes times draws, for each of four runs

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TimeErrors:
    """What a profile's errors of time mean for a plan and its baseline.

    ``before_s`` and ``after_s`` are by how much longer iterations of either side last on average. Of paths
    that are alike as profiled one really is the longest. ``ratio`` is the standard error that is left to the
    plan's time over the baseline's. ``slower`` is by what share the plan's iterations last longer than the
    baseline's on average, its reserve counted.
    """

    before_s: float
    after_s: float
    ratio: float
    slower: float


def time_errors(
    plan: FrequencyPlan, profile: Profile, dag: Dag, factor: Floats, variation: Mapping[Computation, float]
) -> TimeErrors:
    """Draw every point's error, and run both sides with and without.

    A point is off alike wherever it is run, and those of one curve are off together. A timeline was brought
    to what was measured at the highest clock, and is off as that is.

    Shape: ``factor`` [nodes, any] is what durations are multiplied by, as they vary.
    Cost: one pass over the graph for all draws.
    """
    draws = int(np.clip(_MOST_NUMBERS // len(dag.nodes), _LEAST_DRAWS, _MOST_DRAWS))
    random = np.random.default_rng(1)
    exact, off = {}, {}
    for key in plan.of.options:
        time_s = np.array([point.time_s for point in profile.of(*key)])
        exact[key] = np.ones((len(time_s), draws))
        factor_of = time_factor(profile, key, variation.get(key, 0.0))
        off[key] = drawn_shares(time_s, factor_of, random.standard_normal(exact[key].shape))
    highest = dict.fromkeys(plan.of.computations(), (Portion(0, 1.0),))
    drawn = factor[:, np.arange(draws) % factor.shape[1]]
    lasts_s = np.hstack(
        [
            _lasts_s(plan, dag, portions, times, drawn)
            for portions in (highest, plan.portions())
            for times in (exact, off)
        ]
    )
    ends_s = (dag.starts_of_many(lasts_s, plan.of.fixed_s) + lasts_s).max(axis=0)
    before_s, before_off_s, after_s, after_off_s = ends_s.reshape(4, draws)
    return TimeErrors(
        before_s=float((before_off_s - before_s).mean()),
        after_s=float((after_off_s - after_s).mean()),
        ratio=float((after_off_s / before_off_s - after_s / before_s).std()),
        slower=float(after_off_s.mean() / before_off_s.mean() - 1.0),
    )


def _lasts_s(
    plan: FrequencyPlan,
    dag: Dag,
    portions: Mapping[Instruction, Sequence[Portion]],
    times: Mapping[Computation, Floats],
    drawn: Floats,
) -> Floats:
    """How long every node lasts.

    Shape: ``times`` [points, draws]; the answer [nodes, draws].
    """
    lasts_s = np.empty_like(drawn)
    for row, node in enumerate(dag.nodes):
        key = node.stage, node.kind
        if not node.kind.is_computation:
            lasts_s[row] = plan.of.fixed_s[key]
            continue
        options, known = plan.of.options[key], times[key]
        clocks = min(len(options.clock_mhz), len(known))
        lasts_s[row] = drawn[row] * sum(
            share * options.time_s[option] * known[option if option < clocks else 0]
            for option, share in portions[node]
        )
    return lasts_s
