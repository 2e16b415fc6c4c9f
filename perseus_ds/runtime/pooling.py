"""Every rank's estimates at one clock become one point per (stage, kind)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from statistics import fmean
from typing import TypeVar

from perseus_ds.profile import Point
from perseus_ds.profile.estimate import Estimate
from perseus_ds.profile.loads import LoadSums
from perseus_ds.profile.records import Computation
from perseus_ds.profile.sweep import slower_at
from perseus_ds.profile.temperature import Thermal, mean_thermal
from perseus_ds.schedule import Kind

T = TypeVar("T")

_LEAST_CLOCK = 0.97
_MOST_TIME = 1.05
_VARIES = 0.1  # then one replica may have had longer batches than another

_WAYS = (
    (Kind.SEND_ACTIVATION, Kind.RECV_ACTIVATION, +1),
    (Kind.SEND_GRAD, Kind.RECV_GRAD, -1),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """A rank's report on one clock; ``troubles`` are what is wrong with its energy counter."""

    replica: int
    estimate: Estimate
    troubles: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Pooled:
    """All ranks' words on one clock; ``spread`` is the widest that any rank saw (`Estimate`).

    ``larger`` and ``steady_state_c`` are means of the ranks that run a stage, ``thermal`` of all: None where
    some rank knows none.
    """

    points: Mapping[Computation, Point]
    fixed_s: Mapping[Computation, float]
    blocking_power_w: float
    spread: float = 0.0
    larger: Mapping[Computation, float] = field(default_factory=dict)
    size_variation: float = 0.0
    loads: Mapping[Computation, LoadSums] = field(default_factory=dict)
    thermal: Thermal | None = None
    steady_state_c: Mapping[Computation, float] = field(default_factory=dict)


def pool(measured: Iterable[Measured]) -> Pooled:
    """Average over the ranks that run a stage (replicas, tensor-parallel peers: one GPU stands for all).

    A fixed duration is the shortest that any rank of the stage saw, and the optimizer step's the shortest of
    all stages. (The step waits for the gradients' norm over the pipeline.) The rest was waiting.

    A GPU that is held down, or is slower for another reason, shows nothing of the others: it is left out
    where another of its stage is not. GPUs as they are made differ by a few percent: these are averaged.
    """
    everyone = list(measured)
    estimates = [one.estimate for one in _without_hindered(everyone)]
    return replace(
        _average(estimates),
        fixed_s=_fixed_s(everyone) | _transfers_s(everyone),
        thermal=mean_thermal([one.thermal for one in estimates]),
        steady_state_c=_means(
            dict.fromkeys(one.points, one.steady_state_c)
            for one in estimates
            if one.steady_state_c is not None
        ),
    )


def _average(parts: Sequence[Estimate] | Sequence[Pooled]) -> Pooled:
    return Pooled(
        points={key: _mean(group) for key, group in _group(one.points for one in parts).items()},
        fixed_s={key: min(group) for key, group in _group(one.fixed_s for one in parts).items()},
        blocking_power_w=fmean(one.blocking_power_w for one in parts),
        spread=max(one.spread for one in parts),
        larger=_means(one.larger for one in parts),
        size_variation=fmean(one.size_variation for one in parts),
        loads=joined_loads(one.loads for one in parts),
    )


def _without_hindered(everyone: Sequence[Measured]) -> list[Measured]:
    """Leave out GPUs that are slower than others of their stage; where batches vary, only by their clock."""
    stages: dict[tuple[Computation, ...], list[Measured]] = defaultdict(list)
    for one in everyone:
        stages[tuple(sorted(one.estimate.points, key=lambda key: (key[0], key[1].value)))].append(one)
    kept: set[int] = set()
    for group in stages.values():
        clocks_mhz = [_reached_mhz(one) for one in group]
        least_mhz = _LEAST_CLOCK * max(clocks_mhz, default=0.0)
        fast = [one for one, clock_mhz in zip(group, clocks_mhz, strict=True) if clock_mhz >= least_mhz]
        if (
            min((max(one.estimate.size_variation, one.estimate.spread) for one in fast), default=0.0)
            > _VARIES
        ):
            kept |= set(map(id, fast))
            continue
        lasts_s = [sum(point.time_s for point in one.estimate.points.values()) for one in fast]
        usual_s = sorted(lasts_s)[(len(fast) - 1) // 4]  # as replicas are held against each other in a run
        kept |= {id(one) for one, own_s in zip(fast, lasts_s, strict=True) if own_s <= _MOST_TIME * usual_s}
    return [one for one in everyone if id(one) in kept]


def _reached_mhz(one: Measured) -> float:
    """Return the clock that a GPU reached of the one that was asked for, which stands for one not read."""
    return min(
        (
            point.clock_mhz if point.achieved_mhz is None else min(point.clock_mhz, point.achieved_mhz)
            for point in one.estimate.points.values()
        ),
        default=one.estimate.clock_mhz,
    )


def _fixed_s(everyone: Sequence[Measured]) -> dict[Computation, float]:
    grouped = _group(one.estimate.fixed_s for one in everyone)
    fixed_s = {key: min(group) for key, group in grouped.items()}
    step_s = min((time_s for (_, kind), time_s in fixed_s.items() if kind is Kind.STEP), default=0.0)
    return fixed_s | {key: step_s for key in fixed_s if key[1] is Kind.STEP}


def both(there: Pooled, back: Pooled) -> Pooled:
    """Average two windows at one clock; what they differ by is part of the error."""
    mean = _average([there, back])
    points = dict(mean.points)
    for key in there.points.keys() & back.points:
        one, other, point = there.points[key], back.points[key], points[key]
        points[key] = replace(
            point,
            time_se_s=max(point.time_se_s, abs(one.time_s - other.time_s) / 2),
            energy_se_j=max(point.energy_se_j, abs(one.energy_j - other.energy_j) / 2),
        )
    return replace(mean, points=points)


def _transfers_s(everyone: Sequence[Measured]) -> dict[Computation, float]:
    """Mean duration of the transfers out of each stage, as its later end saw it: the earlier one waited.

    Only durations of both ends are compared, never the clocks of two hosts.
    """
    ends = {
        (one.replica, *key): durations_s
        for one in everyone
        for key, durations_s in one.estimate.transfers_s.items()
    }
    found: dict[Computation, list[float]] = defaultdict(list)
    for (replica, stage, kind), sent_s in ends.items():
        for send, receive, step in _WAYS:
            if kind is send:
                received_s = ends.get((replica, stage + step, receive), ())
                found[stage, send] += map(min, sent_s, received_s)
    return {key: fmean(durations) for key, durations in sorted(found.items(), key=_place) if durations}


def joined_loads(several: Iterable[Mapping[Computation, LoadSums]]) -> dict[Computation, LoadSums]:
    """Add up what ranks, or windows, saw of each computation and its loads."""
    found: dict[Computation, LoadSums] = {}
    for one in several:
        for key, sums in one.items():
            found[key] = found[key] + sums if key in found else sums
    return found


def _means(several: Iterable[Mapping[Computation, float]]) -> dict[Computation, float]:
    return {key: fmean(values) for key, values in _group(several).items()}


def _group(several: Iterable[Mapping[Computation, T]]) -> dict[Computation, list[T]]:
    """Put together what each reports of one computation, in their order."""
    found: dict[Computation, list[T]] = defaultdict(list)
    for one in several:
        for key, value in one.items():
            found[key].append(value)
    return dict(sorted(found.items(), key=_place))


def _place(item: tuple[Computation, object]) -> tuple[int, str]:
    (stage, kind), _ = item
    return stage, kind.value


def _mean(group: list[Point]) -> Point:
    count = len(group)
    achieved = _drop_unknown(point.achieved_mhz for point in group)
    return replace(
        group[0],
        time_s=fmean(p.time_s for p in group),
        energy_j=fmean(p.energy_j for p in group),
        time_se_s=sum(p.time_se_s**2 for p in group) ** 0.5 / count,
        energy_se_j=sum(p.energy_se_j**2 for p in group) ** 0.5 / count,
        time_sd_s=_mean_spread_s(group),
        samples=sum(p.samples for p in group),
        achieved_mhz=min(achieved, default=None),
        event_reasons=reduce(or_, (p.event_reasons for p in group)),
        temperature_c=_mean_temperature_c(group),
    )


def _mean_spread_s(group: list[Point]) -> float | None:
    spreads_s = _drop_unknown(point.time_sd_s for point in group)
    return fmean(one**2 for one in spreads_s) ** 0.5 if spreads_s else None


def _mean_temperature_c(group: list[Point]) -> float | None:
    """The mean temperature; None where one of the group is unknown."""
    temperatures = _drop_unknown(point.temperature_c for point in group)
    return fmean(temperatures) if len(temperatures) == len(group) else None


def _drop_unknown(values: Iterable[T | None]) -> list[T]:
    return [one for one in values if one is not None]


# A sweep over clocks, and the windows that were measured in it.


@dataclass(slots=True)
class MeasuredSweep:
    """The clocks of a sweep with their windows; all ranks are fed alike and so finish together.

    ``clocks_mhz`` grow while others are chosen; the one behind those with a window is measured now.

    Shape: ``windows`` [measured clocks].
    """

    clocks_mhz: tuple[int, ...]
    windows: list[Pooled] = field(default_factory=list)
    refused_mhz: frozenset[int] = frozenset()

    @property
    def clock_mhz(self) -> int:
        """The clock to measure now."""
        return self.clocks_mhz[len(self.windows)]

    @property
    def finished(self) -> bool:
        """True once every clock known so far was measured."""
        return len(self.windows) >= len(self.clocks_mhz)

    @property
    def points(self) -> dict[Computation, list[Point]]:
        """The points of each computation, in the order of windows."""
        found: dict[Computation, list[Point]] = defaultdict(list)
        for window in self.windows:
            for key, point in window.points.items():
                found[key].append(point)
        return dict(found)

    @property
    def slower(self) -> float:
        """Most times as long as usual that an iteration lasts at the clock that is measured now."""
        return 1.0 if self.finished else self.slower_at(self.clock_mhz)

    def slower_at(self, clock_mhz: int) -> float:
        """Bound the slowdown of an iteration at a clock by what was seen so far."""
        if not self.windows:
            return self.clocks_mhz[0] / clock_mhz
        return slower_at(clock_mhz, self.points, self.clocks_mhz[: len(self.windows)])

    @property
    def spread(self) -> float:
        """The widest spread in any window so far."""
        return max((one.spread for one in self.windows), default=0.0)

    def record(self, seen: Pooled | None) -> None:
        """Take one window; None is a clock that some GPU refused, which is left out."""
        if seen is not None:
            self.windows.append(seen)
            return
        refused_mhz = self.clock_mhz
        self.clocks_mhz = tuple(mhz for mhz in self.clocks_mhz if mhz != refused_mhz)
        self.refused_mhz |= {refused_mhz}

    def back(self) -> MeasuredSweep:
        """Begin the same clocks from the last to the first, each to be measured once more.

        Every clock is then measured as early as late on average. What changes steadily meanwhile (batches
        that grow, a GPU that warms up) changes no clock's mean.
        """
        return MeasuredSweep(self.clocks_mhz[: len(self.windows)][::-1])

    def join(self, back: MeasuredSweep) -> MeasuredSweep:
        """Average the windows of both ways, clock by clock; what was refused on the way back is left out."""
        refused_mhz = self.refused_mhz | back.refused_mhz
        ways = zip(self.clocks_mhz, self.windows, strict=False)
        kept = {mhz: there for mhz, there in ways if mhz not in refused_mhz}
        windows = [both(*pair) for pair in zip(kept.values(), back.windows[::-1], strict=True)]
        return MeasuredSweep(tuple(kept), windows, refused_mhz=refused_mhz)
