"""Where a job loses time to imbalance, by cause: what if one of them were not there?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from perseus_ds.plan import PlanSet
from perseus_ds.schedule import Dag, dag_of

_Floats = NDArray[np.float64]

_FEWEST = 8  # iterations


def top_s(plans: PlanSet, dag: Dag, *, even: bool = False) -> _Floats:
    """What each node takes at its highest clock; ``even``: what it takes in the mean of all stages.

    Shape: [nodes].
    """
    means: dict[object, float] = {}
    if even:
        kinds = {kind for _, kind in plans.options}
        means = {
            of: float(np.mean([one.time_s[0] for (_, kind), one in plans.options.items() if kind is of]))
            for of in kinds
        }
    lasts_s = [
        means.get(node.kind, float(plans.options[node.stage, node.kind].time_s[0]))
        if node.kind.is_computation
        else plans.fixed_s.get((node.stage, node.kind), 0.0)
        for node in dag.nodes
    ]
    return np.array(lasts_s)


def lost_to_stages_pct(plans: PlanSet) -> float:
    """Percent of an iteration at the highest clocks that goes where all stages take the mean of them."""
    dag = dag_of(plans.schedule)
    own_s, even_s = (
        float(np.max(np.array(dag.earliest_starts(lasts_s.tolist(), plans.fixed_s)) + lasts_s))
        for lasts_s in (top_s(plans, dag), top_s(plans, dag, even=True))
    )
    return max(0.0, 100.0 * (1.0 - even_s / own_s))


class LostTime:
    """Percent of the job's time that goes when one cause goes, over all iterations that replicas reported.

    An iteration lasts as long as the longest replica needs at its objective's plan. ``workers``: nobody is
    slower than its plan by proof. ``data``: every replica has the mean load. ``scatter``: nothing varies
    beyond that. Causes overlap.

    Source: the what-if analysis of stragglers, OSDI'25 (github.com/ByteDance-Seed/StragglerAnalysis).
    """

    def __init__(self) -> None:
        self._iterations, self._by_load = 0, False
        self._whole_s = self._workers_s = self._data_s = self._scatter_s = 0.0

    def observe(self, needs_s: _Floats, *, load: _Floats | None, slow: Mapping[int, float]) -> None:
        """Take in one iteration; ``slow`` is how slow some replicas are by proof.

        ``needs_s`` is what each needs at its objective's plan and the usual load, ``load`` its load (None:
        usual).

        Shape: ``needs_s`` [replicas], positive where it is known; ``load`` [replicas].
        """
        if len(needs_s) < 2 or not needs_s.min() > 0.0:  # noqa: PLR2004  # nobody is compared; NaN: unknown
            return
        worker = np.ones(len(needs_s))
        for replica, slowdown in slow.items():
            worker[replica] = slowdown
        data = np.ones(len(needs_s)) if load is None else load
        self._by_load |= load is not None
        self._iterations += 1
        self._whole_s += float((needs_s * data).max())
        self._workers_s += float((needs_s / worker * data).max())
        self._data_s += float(needs_s.max() * data.mean())
        self._scatter_s += float((np.median(needs_s / worker) * worker * data).max())

    @property
    def account(self) -> Mapping[str, float]:
        """For the summary's facts; empty where too little was seen. Without loads, scatter has the data's."""
        if self._iterations < _FEWEST:
            return {}
        without = {"workers": self._workers_s, "scatter": self._scatter_s}
        if self._by_load:
            without["data"] = self._data_s
        return {
            f"lost_to_{cause}_pct": max(0.0, 100.0 * (1.0 - left_s / self._whole_s))
            for cause, left_s in without.items()
        }
