"""A plan of one's own: clocks from rows or a CSV, priced with a profile; nothing is optimised."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from perseus_ds.errors import PlanError, ProfileError, ScheduleError
from perseus_ds.files import read_table
from perseus_ds.files.table import Row
from perseus_ds.plan.playing.play import play
from perseus_ds.plan.record import PlanSet
from perseus_ds.plan.solving.order import narrow
from perseus_ds.plan.solving.problem import PlanProblem, problem_of
from perseus_ds.plan.splits import Splits
from perseus_ds.profile import Profile
from perseus_ds.schedule import Instruction, Kind, Schedule, validate

COLUMNS = ("stage", "microbatch", "kind", "clock_mhz")
_MOST_BYTES = 64 << 20
_MOST_PARTS = 2  # of one computation


@dataclass(frozen=True, slots=True)
class ClockRow:
    """One computation at one clock; of two rows of one computation the first comes first in time.

    ``duration_s`` states how long it is at that clock where there are two; ``where`` names the row in errors.
    """

    stage: int
    microbatch: int
    kind: Kind
    clock_mhz: int
    duration_s: float | None = None
    where: str = "a row"


def read_clock_rows(path: Path) -> list[ClockRow]:
    """Read a CSV with the columns stage, microbatch, kind (F, B, I, W) and clock_mhz; others may stand there.

    ``duration_s`` is read where it stands: ``perseus-ds show --format csv`` writes such files.

    Raises:
        PlanError: naming the file, the row (the header is row 1) and the column.
    """
    try:
        return [_row(row, where) for where, row in read_table(path, COLUMNS, most_bytes=_MOST_BYTES)]
    except ProfileError as error:
        raise PlanError(error.message, hint=error.hint) from error


def plan_of_clocks(
    profile: Profile, schedule: Schedule, rows: Sequence[ClockRow], *, blocking_power_w: float | None = None
) -> PlanSet:
    """Price the clocks of every computation of a schedule: a frontier of this one plan.

    Its bounds hold and are weak: no computation needs less than at its cheapest clock, no plan is faster than
    all clocks at maximum. ``blocking_power_w`` is the profile's own unless it is given.

    Raises:
        IncompleteProfileError: a stage of the schedule was not measured.
        PlanError: a clock that was not measured, a computation without a clock, or with more than two.
    """
    validate(schedule)
    waiting_w = profile.blocking_power_w if blocking_power_w is None else blocking_power_w
    if waiting_w is None:
        raise PlanError("the profile does not record what a waiting GPU takes", hint="give blocking_power_w")
    plans = _unplaced(problem_of(profile, schedule, waiting_w), rows, waiting_w)
    played = play(plans.plan(0))
    lasts_s = max(one.end_s for one in played)
    effective_j = sum(one.energy_j - waiting_w * one.duration_s for one in played if one.parts)
    return replace(
        plans,
        iteration_time_s=np.array([lasts_s]),
        effective_energy_j=np.array([effective_j]),
        t_star_s=max(lasts_s, plans.t_min_s),
    )


def _unplaced(problem: PlanProblem, rows: Sequence[ClockRow], waiting_w: float) -> PlanSet:
    """Build the set whose only plan has these clocks, before it is known how long that plan lasts."""
    choice, splits = _chosen(problem, _by_instruction(problem, rows))
    baseline = problem.baseline(waiting_w)
    least_j = _least_j(problem, waiting_w)
    unplaced = np.array([baseline.iteration_time_s])
    return PlanSet(
        fingerprint={},
        schedule=problem.schedule,
        blocking_power_w=waiting_w,
        options=problem.options,
        fixed_s=problem.fixed_s,
        iteration_time_s=unplaced,
        effective_energy_j=unplaced,
        lower_bound_j=np.array([least_j + waiting_w * problem.schedule.ranks * baseline.iteration_time_s]),
        effective_bound_j=np.array([least_j]),
        choice=narrow(choice[None, :]),
        splits=splits,
        baseline=baseline,
        t_min_s=baseline.iteration_time_s,
        t_star_s=baseline.iteration_time_s,
        solve_time_s=0.0,
    )


def _row(row: Row, where: str) -> ClockRow:
    if row.get("memory_mhz"):
        raise PlanError(f"{where} has a memory clock", hint="only core clocks can be given")
    try:
        kind = Kind((row["kind"] or "").strip())
    except ValueError:
        raise PlanError(f"{where}: kind is {row['kind']!r}", hint="expected F, B, I or W") from None
    if not kind.is_computation:
        raise PlanError(f"{where}: {kind.words} has no clock", hint="expected F, B, I or W")
    numbers = {name: _whole(row[name], name, where) for name in ("stage", "microbatch", "clock_mhz")}
    seconds = (row.get("duration_s") or "").strip()
    return ClockRow(
        **numbers, kind=kind, duration_s=_seconds(seconds, where) if seconds else None, where=where
    )


def _whole(text: str | None, name: str, where: str) -> int:
    text = (text or "").strip()
    if not (text.isascii() and text.isdecimal()):
        raise PlanError(f"{where}: {name} is {text!r}", hint="expected a whole number from 0 on")
    return int(text)


def _seconds(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 < value < float("inf"):
        raise PlanError(f"{where}: duration_s is {text!r}", hint="expected seconds above 0")
    return value


def _by_instruction(problem: PlanProblem, rows: Sequence[ClockRow]) -> dict[Instruction, list[ClockRow]]:
    """The rows of every computation.

    Raises:
        PlanError: a row of something that the schedule does not run, too many rows, or none.
    """
    wanted = [problem.dag.nodes[column] for column in problem.columns]
    known, found = frozenset(wanted), defaultdict[Instruction, list[ClockRow]](list)
    for row in rows:
        try:
            instruction = Instruction(row.stage, row.kind, row.microbatch)
        except ScheduleError as error:
            raise PlanError(f"{row.where}: {error.message}") from error
        if instruction not in known:
            raise PlanError(f"{row.where}: the schedule does not run {instruction}", hint=_extent(wanted))
        if len(found[instruction]) == _MOST_PARTS:
            raise PlanError(f"{row.where}: {instruction} has more than two clocks")
        found[instruction].append(row)
    if missing := [str(one) for one in wanted if one not in found]:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise PlanError(f"no row gives a clock for {missing[0]}{more}", hint="give one for every computation")
    return found


def _extent(wanted: Sequence[Instruction]) -> str:
    kinds = "".join(sorted({one.kind.value for one in wanted}))
    stages, microbatches = max(one.stage for one in wanted), max(one.microbatch for one in wanted)
    return f"its stages are 0 to {stages}, its microbatches 0 to {microbatches}, its kinds {kinds}"


def _chosen(
    problem: PlanProblem, rows: Mapping[Instruction, Sequence[ClockRow]]
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], Splits]:
    """Options in running order, and the computations that change their clock."""
    instructions = [problem.dag.nodes[column] for column in problem.columns]
    parts = [[_option(problem, row) for row in rows[one]] for one in instructions]
    choice = np.array([options[0] for options in parts])
    split = [column for column, options in enumerate(parts) if len(set(options)) > 1]
    shares = [
        _share(problem, instructions[column], rows[instructions[column]], parts[column]) for column in split
    ]
    splits = Splits(
        np.zeros(len(split), np.int32),
        np.array(split, np.int32),
        np.array([parts[column][1] for column in split], np.uint16),
        np.array(shares, np.float64),
    )
    return choice, splits


def _option(problem: PlanProblem, row: ClockRow) -> int:
    clocks = [int(mhz) for mhz in problem.options[row.stage, row.kind].clock_mhz]
    if row.clock_mhz not in clocks:
        near = min(clocks, key=lambda clock: abs(clock - row.clock_mhz))
        raise PlanError(
            f"{row.where}: {row.kind.words} of stage {row.stage} was not measured at {row.clock_mhz} MHz",
            hint=f"the nearest measured clock is {near} MHz",
        )
    return clocks.index(row.clock_mhz)


def _share(
    problem: PlanProblem, instruction: Instruction, rows: Sequence[ClockRow], options: Sequence[int]
) -> float:
    """What share of the work is done at the first clock."""
    whole_s = problem.options[instruction.stage, instruction.kind].time_s
    done = []
    for row, option in zip(rows, options, strict=True):
        if row.duration_s is None:
            raise PlanError(f"{row.where}: {instruction} has two clocks", hint="give duration_s of both")
        done.append(row.duration_s / float(whole_s[option]))
    return done[0] / sum(done)


def _least_j(problem: PlanProblem, waiting_w: float) -> float:
    """What all computations need at least beyond waiting: each at its own cheapest clock."""
    nodes = [problem.dag.nodes[column] for column in problem.columns]
    spent = {key: own.energy_j - waiting_w * own.time_s for key, own in problem.options.items()}
    return float(sum(spent[node.stage, node.kind].min() for node in nodes))
