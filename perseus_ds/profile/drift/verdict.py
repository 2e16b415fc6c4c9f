"""What has moved, on whose GPUs, and why: one answer from what all ranks report, alike on all of them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from perseus_ds.device import EventReason
from perseus_ds.profile.drift.cusum import LEAST, LEAST_NOISE

PER_K = 0.004
"""What a kelvin counts for in the series of a GPU's temperature: 3 K are the least that moves it."""

_FEWEST = 4
_CERTAIN = 3.0  # standard errors
_TOGETHER = 0.015
_ALIKE = 0.01
_WARMER_K = 5.0
_LIMIT = 0.01
_CAPPED = 0.5


@dataclass(frozen=True, slots=True)
class LevelSeries:
    """The last deviations of one series from its level; ``lasted`` how many are beyond it, 0: not proved.

    Each of them is of so many iterations: ``per``.
    """

    recent: tuple[float, ...] = ()
    noise: float = LEAST_NOISE
    lasted: int = 0
    per: float = 1.0

    @property
    def iterations(self) -> int:
        """For how many iterations it is beyond its level; 0 where that is not proved."""
        return round(self.lasted * self.per)

    def over(self, iterations: int) -> float:
        """How far the last few lie from the level; 0 where that can be chance."""
        moved, error = self.beside(iterations)
        certain = bool(self.lasted) or abs(moved) > _CERTAIN * error
        return moved if certain and abs(moved) >= LEAST else 0.0

    def beside(self, iterations: int) -> tuple[float, float]:
        """How far the last few lie from the level, with the standard error; infinite of too few."""
        numbers = int(iterations / self.per)
        last = self.recent[-numbers:] if numbers else ()
        if not last or len(last) < min(_FEWEST, iterations):
            return 0.0, math.inf
        return median(last), self.noise / math.sqrt(len(last))


@dataclass(frozen=True, slots=True)
class GpuConditions:
    """What a GPU's backend reads beside time and energy; None or empty is what it does not show.

    ``capped`` is the share of iterations in which a clock was not reached, ``reasons`` are NVML's bits.
    """

    capped: float = 0.0
    reasons: int = 0
    power_limit_w: float | None = None
    temperature_c: float | None = None
    conflicts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RankLevels:
    """One rank's time and energy against their levels, and what its GPU was like then and is now.

    ``warmth`` is its temperature, a kelvin for `PER_K`.
    """

    pipeline_rank: int
    replica: int
    time: LevelSeries = field(default_factory=LevelSeries)
    energy: LevelSeries = field(default_factory=LevelSeries)
    warmth: LevelSeries = field(default_factory=LevelSeries)
    then: GpuConditions = field(default_factory=GpuConditions)
    now: GpuConditions = field(default_factory=GpuConditions)


@dataclass(frozen=True, slots=True)
class Moved:
    """By how much the computations of one pipeline rank have moved, in parts of their level.

    ``warmer_k`` is by how much their GPUs are warmer.
    """

    time: float
    energy: float
    warmer_k: float = 0.0

    @property
    def any(self) -> bool:
        """Whether anything has."""
        return bool(self.time or self.energy or self.warmer_k)

    @property
    def words(self) -> str:
        """All of it, as a log shows it."""
        told = [f"{100.0 * value:+.1f} % {name}" for name, value in self._parts() if value]
        return " and ".join(told or [f"{self.warmer_k:+.0f} K"])

    def _parts(self) -> Iterable[tuple[str, float]]:
        yield "time", self.time
        yield "energy", self.energy


@dataclass(frozen=True, slots=True)
class DriftVerdict:
    """What has moved, by pipeline rank; ``cause`` as far as the backends show it.

    ``slow_replicas`` marks that something has moved in some replicas and not in others: they are answered as
    stragglers, and their profile stands.
    """

    moved: Mapping[int, Moved] = field(default_factory=dict)
    everywhere: bool = False
    cause: str = ""
    slow_replicas: bool = False

    @property
    def where(self) -> str:
        """Which pipeline ranks, in words."""
        if self.everywhere:
            return "all stages"
        ranks = ", ".join(map(str, sorted(self.moved)))
        return f"stage {ranks}" if len(self.moved) == 1 else f"stages {ranks}"

    @property
    def line(self) -> str:
        """The finding as a sentence."""
        if self.everywhere:
            mean = Moved(
                fmean(one.time for one in self.moved.values()),
                fmean(one.energy for one in self.moved.values()),
                fmean(one.warmer_k for one in self.moved.values()),
            )
            amounts = mean.words
        else:
            amounts = "; ".join(self.moved[rank].words for rank in sorted(self.moved))
        return f"the profile is not true any more: {self.where}: {amounts} at equal load ({self.cause})"


def judge(reports: Sequence[RankLevels]) -> DriftVerdict:
    """Find what has moved; pure.

    All series are looked at over as many iterations as the one that proved a drift took. What has moved in
    every replica alike is drift, what has moved in some alone makes those slow or hungry among their like.
    """
    by_rank = _moves(reports)
    common = {rank: _common(several) for rank, several in sorted(by_rank.items())}
    moved = {rank: one for rank, one in common.items() if one.any}
    if not moved:
        return DriftVerdict(slow_replicas=any(one.any for several in by_rank.values() for one in several))
    mine = [one for one in reports if one.pipeline_rank in moved]
    return DriftVerdict(moved, _everywhere(moved, len(by_rank)), _cause(mine, moved))


def _moves(reports: Sequence[RankLevels]) -> Mapping[int, list[Moved]]:
    """By how much every replica's rank has moved."""
    of_energy = max((one.energy.iterations for one in reports), default=0)
    lasted = _lasted(reports)
    found: dict[int, list[Moved]] = defaultdict(list)
    for one in reports:
        warmer_k = one.warmth.over(one.warmth.iterations) / PER_K
        found[one.pipeline_rank].append(
            Moved(one.time.over(lasted), one.energy.over(of_energy or lasted), warmer_k)
        )
    return found


def _lasted(reports: Sequence[RankLevels]) -> int:
    """For how many iterations the first of time and energy is beyond its level."""
    return max((max(one.time.iterations, one.energy.iterations) for one in reports), default=0)


def _common(several: Sequence[Moved]) -> Moved:
    """What all replicas have in common: their mean where all moved in one direction, else nothing."""

    def shared(values: Sequence[float]) -> float:
        alike = all(value > 0.0 for value in values) or all(value < 0.0 for value in values)
        return fmean(values) if alike else 0.0

    return Moved(
        shared([one.time for one in several]),
        shared([one.energy for one in several]),
        shared([one.warmer_k for one in several]),
    )


def _everywhere(moved: Mapping[int, Moved], ranks: int) -> bool:
    """Whether every pipeline rank moved, and all by about as much."""
    if ranks == 1 or len(moved) < ranks:
        return False
    for values in ([one.time for one in moved.values()], [one.energy for one in moved.values()]):
        if max(values) - min(values) > 2.0 * _TOGETHER:
            return False
    return True


def _cause(reports: Sequence[RankLevels], moved: Mapping[int, Moved]) -> str:
    """Name what the backends show to have changed; else what the figures themselves show."""
    for told in (_conflict, _held_down, _limit, _temperature):
        if words := told(reports):
            return words
    time, energy = (
        fmean(values) for values in zip(*((m.time, m.energy) for m in moved.values()), strict=True)
    )
    if not time:
        return "more power" if energy > 0.0 else "less power"
    return f"work lasts {'longer' if time > 0.0 else 'shorter'}{_power(reports, time)}: no reason is shown"


def _power(reports: Sequence[RankLevels], time: float) -> str:
    """At which power work lasts longer; nothing where the energy of these iterations does not show it yet."""
    known = [one.energy.beside(_lasted(reports)) for one in reports]
    energy, error = fmean(value for value, _ in known), math.hypot(*(own for _, own in known)) / len(known)
    sure = _CERTAIN * error
    if abs(energy - time) > max(sure, _ALIKE + abs(time) / 2.0):
        return ", at another power"
    return " at the same power" if abs(energy) > sure else ""


def _conflict(reports: Sequence[RankLevels]) -> str:
    new = sorted({text for one in reports for text in set(one.now.conflicts) - set(one.then.conflicts)})
    return "; ".join(new)


def _held_down(reports: Sequence[RankLevels]) -> str:
    held = [one for one in reports if one.now.capped - one.then.capped >= _CAPPED]
    if not held:
        return ""
    reasons = EventReason(0)
    for one in held:
        reasons |= EventReason(one.now.reasons)
    for bits, words in _REASONS:
        if reasons & bits:
            return words
    return "clocks are not reached, and no reason is given: somebody else's lock?"


_REASONS = (
    (EventReason.SW_THERMAL | EventReason.HW_THERMAL, "heat holds the clock down"),
    (EventReason.HW_SLOWDOWN | EventReason.HW_POWER_BRAKE, "the hardware slows the GPU down"),
    (EventReason.SW_POWER_CAP, "the power cap holds the clock down"),
)


def _limit(reports: Sequence[RankLevels]) -> str:
    changed = [
        (one.then.power_limit_w, one.now.power_limit_w)
        for one in reports
        if one.then.power_limit_w
        and one.now.power_limit_w
        and abs(one.now.power_limit_w / one.then.power_limit_w - 1.0) > _LIMIT
    ]
    return f"the power limit is {changed[0][1]:.0f} W, it was {changed[0][0]:.0f} W" if changed else ""


def _temperature(reports: Sequence[RankLevels]) -> str:
    apart = [
        one.now.temperature_c - one.then.temperature_c
        for one in reports
        if one.then.temperature_c is not None and one.now.temperature_c is not None
    ]
    if not apart or abs(fmean(apart)) < _WARMER_K:
        return ""
    return f"{abs(fmean(apart)):.0f} K {'warmer' if fmean(apart) > 0.0 else 'cooler'}"
