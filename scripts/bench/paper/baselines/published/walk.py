"""From the slowest plan to the fastest in steps of tau: the cheapest cut of the critical graph is sped up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from baselines.graph import ends, latest_ends
from baselines.instance import Choices, Instance
from baselines.price import Priced
from baselines.published.cut import minimum_cut
from baselines.published.exponential import FittedCurve, fitted_curve

TAU_S = 0.001

Ticks = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PublishedPlans:
    """A frontier as Perseus plans it: what it thinks each plan costs, and the clocks that come of it.

    ``planned`` counts as the paper does: durations in whole tau, energies on the fitted curves. What the
    clocks really take is `price` of ``choice``: up to 0.3 % longer.

    Shape: ``choice`` [plans, nodes], slowest first.
    """

    choice: Choices
    planned: Priced


def published_perseus(
    instance: Instance, *, tau_s: float = TAU_S, progress: Callable[[float], None] | None = None
) -> PublishedPlans:
    """Walk the whole frontier and round every plan to real clocks.

    Cost: a minimum cut per tau between T* and T_min.
    """
    walk = PublishedWalk(instance, tau_s=tau_s)
    choice, time_s, effective_j = [], [], []
    for ticks in walk.steps():
        choice.append(walk.rounded(ticks))
        time_s.append(walk.length(ticks) * tau_s)
        effective_j.append(walk.cost_j(ticks))
        if progress is not None:
            progress(walk.behind(ticks))
    waiting_w = instance.blocking_power_w * instance.schedule.ranks
    return PublishedPlans(np.array(choice), Priced(np.array(time_s), np.array(effective_j), waiting_w))


@dataclass(frozen=True, slots=True, eq=False)
class _Critical:
    """Nodes without slack, and the arcs between their beginnings and ends.

    Shape: ``node`` [critical nodes]; ``tail``, ``head`` [arcs], first those of the nodes themselves.
    """

    node: NDArray[np.int64]
    tail: NDArray[np.int64]
    head: NDArray[np.int64]


class PublishedWalk:
    """The steps of algorithm 1 on one instance."""

    def __init__(self, instance: Instance, *, tau_s: float = TAU_S) -> None:
        self._graph = instance.graph._replace(delay=np.floor(instance.graph.delay / tau_s))
        curves = [
            fitted_curve(
                instance.time_s[row, : instance.options[row]],
                instance.energy_j[row, : instance.options[row]],
                blocking_power_w=instance.blocking_power_w if kind.is_computation else 0.0,
                tau_s=tau_s,
            )
            for row, (_, kind) in enumerate(instance.rows)
        ]
        self.curve: list[FittedCurve] = [curves[row] for row in instance.row]
        self.shortest = np.array([one.shortest for one in self.curve])
        self.longest = np.array([one.longest for one in self.curve])
        self._least, self._most = self.length(self.shortest), self.length(self.longest)

    def steps(self) -> Iterator[Ticks]:
        """Yield the planned durations of every step; the first is all at least effective energy."""
        ticks = self.longest.copy()
        yield ticks.copy()
        while self.length(ticks) > self._least:
            self._speed_up(ticks)
            yield ticks.copy()

    def rounded(self, ticks: Ticks) -> Choices:
        """Return every node's slowest option that is no slower than planned."""
        return np.array([curve.rounded(int(t)) for curve, t in zip(self.curve, ticks, strict=True)])

    def behind(self, ticks: Ticks) -> float:
        """Return the share of the way that lies behind."""
        return (self._most - self.length(ticks)) / max(1, self._most - self._least)

    def cost_j(self, ticks: Ticks) -> float:
        """Return the fitted effective energy of planned durations."""
        return sum(float(c.cost_j[t - c.shortest]) for c, t in zip(self.curve, ticks, strict=True))

    def length(self, ticks: Ticks) -> int:
        """Return the iteration time in ticks."""
        return int(ends(self._graph, ticks.astype(np.float64)).max())

    def _speed_up(self, ticks: Ticks) -> None:
        """Shorten what leaves the cut's source side by a tick, lengthen what comes back into it.

        Source: arXiv 2312.06902, algorithm 2, lines 3 to 9.
        """
        critical = self._critical(ticks)
        lower, upper = self._bounds(critical, ticks)
        side = minimum_cut(critical.tail, critical.head, lower, upper, nodes=2 + 2 * len(critical.node))
        own = slice(0, len(critical.node))
        begins, finishes = side[critical.tail[own]], side[critical.head[own]]
        ticks[critical.node[begins & ~finishes]] -= 1
        back = critical.node[~begins & finishes]
        ticks[back] = np.minimum(ticks[back] + 1, self.longest[back])

    def _critical(self, ticks: Ticks) -> _Critical:
        duration = ticks.astype(np.float64)
        end = ends(self._graph, duration)
        latest = latest_ends(self._graph, duration, float(end.max()))
        tight = end == latest
        node = np.flatnonzero(tight)
        place = np.full(len(ticks), -1)
        place[node] = np.arange(len(node))
        before, after = self._graph.before, self._graph.after
        begins = end - duration
        joined = tight[before] & tight[after] & (end[before] + self._graph.delay == begins[after])
        first, last = node[begins[node] == 0.0], node[end[node] == end.max()]
        tails = [2 + 2 * np.arange(len(node)), 3 + 2 * place[before[joined]]]
        heads = [3 + 2 * np.arange(len(node)), 2 + 2 * place[after[joined]]]
        tails += [np.zeros(len(first), dtype=np.int64), 3 + 2 * place[last]]
        heads += [2 + 2 * place[first], np.ones(len(last), dtype=np.int64)]
        return _Critical(node, np.concatenate(tails), np.concatenate(heads))

    def _bounds(self, critical: _Critical, ticks: Ticks) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What a tick less costs, and what a tick more saves; nothing where no tick can be given back."""
        lower, upper = np.zeros(len(critical.tail)), np.full(len(critical.tail), np.inf)
        for arc, node in enumerate(critical.node):
            cost_j = self.curve[node].cost_j
            at = ticks[node] - self.shortest[node]
            if at > 0:
                upper[arc] = cost_j[at - 1] - cost_j[at]
            if at < len(cost_j) - 1:
                lower[arc] = cost_j[at] - cost_j[at + 1]
        return lower, upper
