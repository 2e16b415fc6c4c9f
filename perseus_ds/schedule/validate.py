"""Validation of a schedule: every computation once, forward before backward, and no rank stuck."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from perseus_ds.errors import ScheduleError
from perseus_ds.schedule.dag import dag_of
from perseus_ds.schedule.schedule import Instruction, Kind, Schedule

# Orders as a text grid: ranks down, positions across.


def order_grid(schedule: Schedule, *, bad: tuple[int, int] | None = None) -> str:
    """Draw the orders side by side without timing them, with an arrow at a bad (rank, position)."""
    rows = [[_cell(schedule, instruction) for instruction in order] for order in schedule.orders]
    if bad is not None and bad[1] < len(rows[bad[0]]):
        rows[bad[0]][bad[1]] = "→" + rows[bad[0]][bad[1]]
    elif bad is not None:
        rows[bad[0]].append("→?")
    width = max((len(cell) for row in rows for cell in row), default=1)
    name = "rank" if schedule.has_chunks else "stage"
    return "\n".join(
        f"{name} {rank} | " + " ".join(cell.ljust(width) for cell in row).rstrip()
        for rank, row in enumerate(rows)
    )


def _cell(schedule: Schedule, instruction: Instruction) -> str:
    """Name an instruction; the stage goes without stating where a rank runs one."""
    if schedule.has_chunks:
        return str(instruction)
    return "+".join(f"{part.kind.value}{part.microbatch}" for part in instruction.parts)


_BEFORE = {
    Kind.BACKWARD: Kind.FORWARD,
    Kind.BACKWARD_INPUT: Kind.FORWARD,
    Kind.BACKWARD_WEIGHT: Kind.BACKWARD_INPUT,
}
_OTHER_WAY = {
    Kind.BACKWARD: (Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT),
    Kind.BACKWARD_INPUT: (Kind.BACKWARD,),
    Kind.BACKWARD_WEIGHT: (Kind.BACKWARD,),
}
_COUNTED = frozenset({Kind.FORWARD, *_BEFORE})


def validate(schedule: Schedule) -> None:
    """Return if the schedule runs to its end.

    Every stage runs on one rank, and on every microbatch once forward and once backward, whole or split.

    Raises:
        ScheduleError: with the whole grid and, where one cell is to blame, an arrow at it.
    """
    if not any(schedule.orders):
        raise ScheduleError(f"schedule {schedule.name!r} has no stage")
    homes = _homes(schedule)
    for rank in range(schedule.ranks):
        _check_order(schedule, rank, homes)
    for stage in range(schedule.stages):
        if stage not in homes:
            raise ScheduleError(f"no rank runs stage {stage}\n{order_grid(schedule)}")
    try:
        cycle = dag_of(schedule).cycle()
    except ScheduleError as error:
        raise ScheduleError(f"{error.message}\n{order_grid(schedule)}") from error
    if cycle:
        cells = {i: (rank, at) for rank, order in enumerate(schedule.orders) for at, i in enumerate(order)}
        cell = next(cells[stuck] for stuck in cycle if stuck in cells)  # transfers may bear the sender's name
        _refuse(schedule, cell, f"the schedule never ends: {' waits for '.join(map(str, cycle))}")


def _homes(schedule: Schedule) -> Mapping[int, int]:
    """The rank where most of each stage runs: what runs elsewhere is out of place."""
    counts = Counter(
        (part.stage, rank) for rank, order in enumerate(schedule.orders) for i in order for part in i.parts
    )
    return {stage: rank for (stage, rank), _ in reversed(counts.most_common())}


def _check_order(schedule: Schedule, rank: int, homes: Mapping[int, int]) -> None:
    seen: set[Instruction] = set()
    for position, instruction in enumerate(schedule.orders[rank]):
        for part in instruction.parts:
            if why := _fault(schedule, rank, part, homes[part.stage], seen):
                _refuse(schedule, (rank, position), why)
        seen.update(instruction.parts)
    end = rank, len(schedule.orders[rank])
    for stage in (stage for stage, home in sorted(homes.items()) if home == rank):
        for microbatch in range(schedule.microbatches):
            split = Instruction(stage, Kind.BACKWARD_INPUT, microbatch) in seen
            for kind in (Kind.FORWARD, Kind.BACKWARD_WEIGHT if split else Kind.BACKWARD):
                if (missing := Instruction(stage, kind, microbatch)) not in seen:
                    _refuse(schedule, end, f"{missing} never runs")
    if rank not in homes.values():
        _refuse(schedule, (rank, 0), f"rank {rank} runs no stage")


def _fault(
    schedule: Schedule, rank: int, instruction: Instruction, home: int, seen: set[Instruction]
) -> str | None:
    """Return what is wrong with an instruction at its place, after those that were ``seen``."""
    stage, kind, microbatch = instruction.stage, instruction.kind, instruction.microbatch
    if home != rank:
        return f"{instruction} stands in the order of rank {rank}, but stage {stage} runs on rank {home}"
    if kind in _COUNTED and microbatch >= schedule.microbatches:
        return f"{instruction} is beyond {schedule.microbatches} microbatches"
    if instruction in seen:
        return f"{instruction} runs twice"
    if kind in _BEFORE and (before := Instruction(stage, _BEFORE[kind], microbatch)) not in seen:
        return f"{instruction} runs before {before}"
    others = (Instruction(stage, other, microbatch) for other in _OTHER_WAY.get(kind, ()))
    twice = next((other for other in others if other in seen), None)
    return f"{instruction} runs twice: {twice} did its work" if twice else None


def _refuse(schedule: Schedule, cell: tuple[int, int], why: str) -> None:
    raise ScheduleError(f"{why}\n{order_grid(schedule, bad=cell)}")
