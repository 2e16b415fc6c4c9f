"""Perseus as published: an exponential per computation, walked down in steps of tau by minimum cuts.

Source: Chung, Gu, Jang, Meng, Bansal, Chowdhury, "Reducing Energy Bloat in Large Model Training", SOSP'24
(arXiv 2312.06902), sections 4.1 to 4.3, algorithms 1 and 2.
Readings, where the paper leaves a detail open, are those of its public artifact (ml-energy/zeus, branch
kronos); with them the artifact's frontiers of GPT-3 175B come out to the eighth digit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from baselines import Choices, Instance, Priced, ends, latest_ends
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from perseus_ds.errors import SolverError

Ticks = NDArray[np.int64]
_STEEPEST = 12.0  # decay over the range of durations beyond which a curve is a step


@dataclass(frozen=True, slots=True, eq=False)
class FittedCurve:
    """What is planned with, and what it is rounded to.

    ``cost_j`` is the fitted effective energy at every whole number of ticks from ``shortest`` on;
    ``option_ticks`` are the floored durations of the options that were kept, ascending, and ``option``
    their positions in the computation's table.

    Shape: ``cost_j`` [ticks]; the others [options kept].
    """

    shortest: int
    cost_j: NDArray[np.float64]
    option_ticks: NDArray[np.int64]
    option: NDArray[np.int64]

    @property
    def longest(self) -> int:
        """The duration of the slowest option that was kept."""
        return self.shortest + len(self.cost_j) - 1

    def rounded(self, ticks: int) -> int:
        """Return the slowest option that is no slower than planned."""
        return int(self.option[np.searchsorted(self.option_ticks, ticks, side="right") - 1])


def fitted_curve(
    time_s: NDArray[np.float64], energy_j: NDArray[np.float64], *, blocking_power_w: float, tau_s: float
) -> FittedCurve:
    """Fit ``a exp(b t) + c``, as the published artifact prepares it.

    Options are filtered to the time-energy Pareto front, floored to ticks, the fastest of each tick kept,
    and blocking power is subtracted only afterwards (equation 4 would have it before).
    """
    ticks = np.floor(time_s / tau_s).astype(np.int64)
    kept = _pareto(time_s, energy_j)
    kept = kept[np.unique(ticks[kept], return_index=True)[1]]
    at = ticks[kept]
    effective_j = energy_j[kept] - blocking_power_w * at * tau_s
    span = np.arange(at[0], at[-1] + 1)
    return FittedCurve(int(at[0]), _exponential(at, effective_j, span), at, kept)


def _pareto(time_s: NDArray[np.float64], energy_j: NDArray[np.float64]) -> NDArray[np.int64]:
    """Positions of undominated options, fastest first."""
    order = np.lexsort((energy_j, time_s))
    before = np.concatenate(([np.inf], np.minimum.accumulate(energy_j[order])[:-1]))
    return order[energy_j[order] < before]


def _exponential(
    ticks: NDArray[np.int64], cost_j: NDArray[np.float64], span: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Least squares: linear in a and c for every b, and b by a search in one dimension."""
    if len(ticks) == 1:
        return cost_j.copy()
    scale = ticks[-1] - ticks[0]
    where, wanted = (ticks - ticks[0]) / scale, (span - ticks[0]) / scale

    def basis(decay: float, x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.column_stack([np.exp(-decay * x), np.ones(len(x))])

    def misfit(decay: float) -> float:
        weights, *_ = np.linalg.lstsq(basis(decay, where), cost_j)
        return float(((basis(decay, where) @ weights - cost_j) ** 2).sum())

    decay = float(minimize_scalar(misfit, bounds=(1e-3, _STEEPEST), method="bounded").x)
    weights, *_ = np.linalg.lstsq(basis(decay, where), cost_j)
    fitted: NDArray[np.float64] = basis(decay, wanted) @ weights
    return fitted


# The minimum cut of a graph whose arcs have lower and upper bounds.
#
# Source: arXiv 2312.06902, algorithm 2; Ahuja, Magnanti, Orlin, "Network Flows", section 6.7 (lower bounds).

_ROOM = 1 << 29  # flows are int32: twice the sum of all bounds has to fit


def minimum_cut(
    tail: Ticks, head: Ticks, lower: NDArray[np.float64], upper: NDArray[np.float64], *, nodes: int
) -> NDArray[np.bool_]:
    """Return which nodes are on the source's side; node 0 is the source, node 1 the sink.

    An upper bound may be infinite. Bounds become whole numbers, as fine as 32 bits allow.

    Raises:
        SolverError: no flow keeps the lower bounds.
    """
    finite = np.isfinite(upper)
    scale = _ROOM / max(float(lower.sum() + upper[finite].sum()), np.finfo(np.float64).tiny)
    low = np.floor(lower * scale).astype(np.int64)
    high = np.where(finite, np.floor(np.where(finite, upper, 0.0) * scale), _ROOM).astype(np.int64)
    between = _network(tail, head, np.maximum(high - low, 0), nodes)
    kept = maximum_flow(_with_demands(between, tail, head, low, nodes), nodes, nodes + 1)
    if kept.flow_value < int(low.sum()):
        raise SolverError(
            f"lower bounds of {int(low.sum())} units cannot be kept: at most {kept.flow_value}",
            hint="the costs are not convex",
        )
    flow = kept.flow[:nodes, :nodes]
    flow[1, 0] = flow[0, 1] = 0
    residual = csr_array(between - flow)
    residual.data[residual.data < 0] = 0
    residual.eliminate_zeros()
    most = maximum_flow(residual.astype(np.int32), 0, 1)
    return _reached(csr_array(residual - most.flow), nodes)


def _network(tail: Ticks, head: Ticks, capacity: Ticks, nodes: int) -> csr_array:
    """Build a square matrix; parallel arcs add up."""
    place = (tail.astype(np.int32), head.astype(np.int32))
    return csr_array(coo_array((capacity.astype(np.int32), place), shape=(nodes, nodes)).tocsr())


def _with_demands(between: csr_array, tail: Ticks, head: Ticks, low: Ticks, nodes: int) -> csr_array:
    """Add a source that brings what every arc must carry to its head, and a sink that takes it away."""
    brought = np.bincount(head, low, nodes).astype(np.int64)
    taken = np.bincount(tail, low, nodes).astype(np.int64)
    inner = between.tocoo()
    every = np.arange(nodes)
    tails = np.concatenate([inner.row, np.full(nodes, nodes), every, [1]])
    heads = np.concatenate([inner.col, every, np.full(nodes, nodes + 1), [0]])
    return _network(tails, heads, np.concatenate([inner.data, brought, taken, [2 * _ROOM]]), nodes + 2)


def _reached(residual: csr_array, nodes: int) -> NDArray[np.bool_]:
    residual.data[residual.data < 0] = 0
    residual.eliminate_zeros()
    side = np.zeros(nodes, dtype=np.bool_)
    side[breadth_first_order(residual, 0, return_predecessors=False)] = True
    return side


# From the slowest plan to the fastest in steps of tau: the cheapest cut of the critical graph is sped up.

TAU_S = 0.001


@dataclass(frozen=True, slots=True, eq=False)
class PublishedPlans:
    """A frontier as Perseus plans it: what it thinks each plan costs, and the clocks that come of it.

    ``planned`` counts as the paper does: durations in whole tau, energies on the fitted curves. What the
    clocks really take is `price` of ``choice``: up to 0.3 % longer.

    Shape: ``choice`` [plans, nodes], slowest first.
    """

    choice: Choices
    planned: Priced


def published_perseus(instance: Instance, *, tau_s: float = TAU_S) -> PublishedPlans:
    """Walk the whole frontier and round every plan to real clocks.

    Cost: a minimum cut per tau between T* and T_min.
    """
    walk = PublishedWalk(instance, tau_s=tau_s)
    choice, time_s, effective_j = [], [], []
    for ticks in walk.steps():
        choice.append(walk.rounded(ticks))
        time_s.append(walk.length(ticks) * tau_s)
        effective_j.append(walk.cost_j(ticks))
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
        self._least = self.length(self.shortest)

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
