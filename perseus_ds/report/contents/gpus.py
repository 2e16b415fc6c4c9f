"""What every GPU took and ran at, before and after; a row per stage where there are many GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from perseus_ds.plan.playing.play import Played, play, play_baseline
from perseus_ds.report.contents.reading import Contents
from perseus_ds.run_directory import CourseRow, RankRecord

MOST_ROWS = 64
"""GPUs that have a row each; of more, those of a stage share one."""


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One GPU, or the mean of a stage's: energy and time of an iteration on both sides, and clocks.

    ``clock_mhz`` is the requested clock, the mean over the time computed, at default clocks and at the plan;
    None where no plan is there. ``temperature_c`` is the mean of either side; None where no sensor was read.
    """

    name: str
    gpus: int
    energy_j: tuple[float, float]
    time_s: tuple[float, float]
    clock_mhz: tuple[float, float] | None
    changes: int
    missed: int
    temperature_c: tuple[float, float] | None = None

    @property
    def saving_pct(self) -> float:
        """Energy saved."""
        before, after = self.energy_j
        return 100.0 * (1.0 - after / before) if before else 0.0


def gpu_rows(contents: Contents) -> list[GpuRow]:
    """Return a row per GPU that measured both sides, by replica and stage."""
    ranks = [one for one in contents.ranks if all(side.iterations for side in one.sides.values())]
    clocks = clocks_of_ranks(contents)
    if len(ranks) <= MOST_ROWS:
        ordered = sorted(ranks, key=lambda one: (one.replica, one.stage, one.rank))
        return [_row(_name(one, ranks), [one], clocks) for one in ordered]
    stages = sorted({one.stage for one in ranks})
    return [_row(f"stage {s}", [one for one in ranks if one.stage == s], clocks) for s in stages]


def clocks_of_ranks(contents: Contents) -> Mapping[int, tuple[float, float]]:
    """Mean requested clock of every pipeline rank, weighed by time: default clocks, the plan (MHz)."""
    if contents.chosen is None:
        return {}
    sides = [_clocks(played) for played in (play_baseline(contents.chosen.of), play(contents.chosen))]
    ranks = contents.chosen.of.schedule.rank_of_stages()
    found: dict[int, tuple[float, float]] = {}
    for rank in sorted(set(ranks.values())):
        stages = [stage for stage, its in ranks.items() if its == rank]
        before, after = (
            _mean_mhz([part for stage in stages for part in side.get(stage, [])]) for side in sides
        )
        found[rank] = before, after
    return found


def _clocks(played: Sequence[Played]) -> dict[int, list[tuple[int, float]]]:
    """Clock and seconds of every part of every computation, by stage."""
    found: dict[int, list[tuple[int, float]]] = {}
    for one in played:
        parts = [(part.clock_mhz, part.duration_s) for part in one.parts]
        found.setdefault(one.instruction.stage, []).extend(parts)
    return found


def _mean_mhz(parts: Sequence[tuple[int, float]]) -> float:
    whole_s = sum(duration_s for _, duration_s in parts)
    return sum(mhz * duration_s for mhz, duration_s in parts) / whole_s if whole_s else 0.0


def _name(one: RankRecord, ranks: Sequence[RankRecord]) -> str:
    replica = f", replica {one.replica}" if any(other.replica for other in ranks) else ""
    return f"GPU {one.rank}: stage {one.stage}{replica}"


def _row(name: str, ranks: Sequence[RankRecord], clocks: Mapping[int, tuple[float, float]]) -> GpuRow:
    sides = [[one.sides[side] for one in ranks] for side in ("baseline", "perseus")]
    before_j, after_j = (fmean(one.energy_j for one in side) for side in sides)
    before_s, after_s = (fmean(one.iteration_time_s for one in side) for side in sides)
    return GpuRow(
        name=name if len(ranks) == 1 else f"{name}, mean of {len(ranks)} GPUs",
        gpus=len(ranks),
        energy_j=(before_j, after_j),
        time_s=(before_s, after_s),
        clock_mhz=clocks.get(ranks[0].stage),
        changes=sum(one.changes for one in ranks),
        missed=sum(one.missed for one in ranks),
        temperature_c=_temperatures_c(ranks),
    )


def _temperatures_c(ranks: Sequence[RankRecord]) -> tuple[float, float] | None:
    """Mean temperatures of both sides, over the ranks that know both; None where none does."""
    warm = [one.temperature_c for one in ranks if len(one.temperature_c) == 2]  # noqa: PLR2004 - sides
    return (fmean(one["baseline"] for one in warm), fmean(one["perseus"] for one in warm)) if warm else None


@dataclass(frozen=True, slots=True)
class Course:
    """One side over the run: of every sample the first iteration, its time, and the power of all GPUs.

    ``clock_mhz`` is the requested clock of all GPUs, mean over the time computed; None without a plan.
    """

    side: str
    iteration: tuple[int, ...]
    time_s: tuple[float, ...]
    power_w: tuple[float, ...]
    clock_mhz: float | None


def courses(contents: Contents) -> list[Course]:
    """Join the ranks' courses, where all of them have the same samples: the slowest's time, all power."""
    clocks = list(clocks_of_ranks(contents).values())
    found = []
    for place, side in enumerate(("baseline", "perseus")):
        by_first = [{row.first: row for row in one.course[side]} for one in contents.ranks]
        shared = sorted(set.intersection(*map(set, by_first))) if by_first else []
        if shared:
            samples = [[course[first] for course in by_first] for first in shared]
            times_s = tuple(max(row.time_s for row in rows) for rows in samples)
            power_w = tuple(map(_power_w, samples, times_s))
            clock_mhz = fmean(pair[place] for pair in clocks) if clocks else None
            found.append(Course(side, tuple(shared), times_s, power_w, clock_mhz))
    return found


def _power_w(rows: Sequence[CourseRow], time_s: float) -> float:
    return sum(row.energy_j for row in rows) / time_s if time_s else 0.0
