"""Validation of a schedule: every computation once, forward before backward, and no rank stuck."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from perseus_ds.errors import ScheduleError
from perseus_ds.schedule.dag import Dag, dag_of
from perseus_ds.schedule.instruction import Instruction, Kind
from perseus_ds.schedule.schedule import Schedule

# A schedule as a text grid: ranks down, unit time steps across.


def grid(schedule: Schedule) -> str:
    """Draw the computations as if each took one step.

    Raises:
        ScheduleError: the schedule cannot run.
    """
    dag, ranks = dag_of(schedule), schedule.rank_of_stages()
    starts = dag.earliest_starts([1.0 if node.kind.is_computation else 0.0 for node in dag.nodes])
    cells = {
        (ranks[n.stage], int(t)): n for n, t in zip(dag.nodes, starts, strict=True) if n.kind.is_computation
    }
    width = 1 + max((step for _, step in cells), default=-1)
    rows = [[cells.get((rank, step)) for step in range(width)] for rank in range(schedule.ranks)]
    return _lines(schedule, [[_cell(schedule, instruction) for instruction in row] for row in rows])


def order_grid(schedule: Schedule, *, bad: tuple[int, int] | None = None) -> str:
    """Draw the orders side by side without timing them, with an arrow at a bad (rank, position)."""
    rows = [[_cell(schedule, instruction) for instruction in order] for order in schedule.orders]
    if bad is not None and bad[1] < len(rows[bad[0]]):
        rows[bad[0]][bad[1]] = "→" + rows[bad[0]][bad[1]]
    elif bad is not None:
        rows[bad[0]].append("→?")
    return _lines(schedule, rows)


def _cell(schedule: Schedule, instruction: Instruction | None) -> str:
    """Name an instruction; the stage goes without stating where a rank runs one."""
    if instruction is None:
        return "."
    if schedule.has_chunks:
        return str(instruction)
    return "+".join(f"{part.kind.value}{part.microbatch}" for part in instruction.parts)


def _lines(schedule: Schedule, rows: list[list[str]]) -> str:
    width = max((len(cell) for row in rows for cell in row), default=1)
    name = "rank" if schedule.has_chunks else "stage"
    return "\n".join(
        f"{name} {rank} | " + " ".join(cell.ljust(width) for cell in row).rstrip()
        for rank, row in enumerate(rows)
    )


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
    cycle = _joined(schedule).cycle()
    if cycle:
        _refuse(schedule, _cell_of(schedule, cycle), f"the schedule never ends: {_waits(cycle)}")


def _homes(schedule: Schedule) -> Mapping[int, int]:
    """The rank where most of each stage runs: what runs elsewhere is out of place."""
    counts = Counter((i.stage, rank) for rank, order in enumerate(schedule.orders) for i in order)
    return {stage: rank for (stage, rank), _ in reversed(counts.most_common())}


def _joined(schedule: Schedule) -> Dag:
    try:
        return dag_of(schedule)
    except ScheduleError as error:
        raise ScheduleError(f"{error.message}\n{order_grid(schedule)}") from error


def _check_order(schedule: Schedule, rank: int, homes: Mapping[int, int]) -> None:
    seen: set[Instruction] = set()
    for position, instruction in enumerate(schedule.orders[rank]):
        for part in instruction.parts:
            why = _fault(schedule, rank, part, homes) or _out_of_turn(part, seen)
            if why:
                _refuse(schedule, (rank, position), why)
        seen.update(instruction.parts)
    for stage in (stage for stage, home in sorted(homes.items()) if home == rank):
        for missing in _missing(stage, schedule.microbatches, seen):
            _refuse(schedule, (rank, len(schedule.orders[rank])), f"{missing} never runs")
    if rank not in homes.values():
        _refuse(schedule, (rank, 0), f"rank {rank} runs no stage")


def _fault(schedule: Schedule, rank: int, instruction: Instruction, homes: Mapping[int, int]) -> str | None:
    """Return what is wrong with an instruction wherever it stands in its order."""
    home = homes[instruction.stage]
    if home != rank:
        where = f"stands in the order of rank {rank}, but stage {instruction.stage} runs on rank {home}"
        return f"{instruction} {where}"
    if instruction.kind in _COUNTED and instruction.microbatch >= schedule.microbatches:
        return f"{instruction} is beyond {schedule.microbatches} microbatches"
    return None


def _out_of_turn(instruction: Instruction, seen: set[Instruction]) -> str | None:
    """Return what is wrong with an instruction after those before it."""

    def of_kind(kind: Kind) -> Instruction:
        return Instruction(instruction.stage, kind, instruction.microbatch)

    if instruction in seen:
        return f"{instruction} runs twice"
    before = _BEFORE.get(instruction.kind)
    if before is not None and of_kind(before) not in seen:
        return f"{instruction} runs before {of_kind(before)}"
    twice = [of_kind(kind) for kind in _OTHER_WAY.get(instruction.kind, ()) if of_kind(kind) in seen]
    return f"{instruction} runs twice: {twice[0]} did its work" if twice else None


def _missing(stage: int, microbatches: int, seen: set[Instruction]) -> list[Instruction]:
    missing = []
    for microbatch in range(microbatches):
        split = Instruction(stage, Kind.BACKWARD_INPUT, microbatch) in seen
        backward = Kind.BACKWARD_WEIGHT if split else Kind.BACKWARD
        wanted = (Instruction(stage, kind, microbatch) for kind in (Kind.FORWARD, backward))
        missing += [instruction for instruction in wanted if instruction not in seen]
    return missing


def _cell_of(schedule: Schedule, cycle: list[Instruction]) -> tuple[int, int]:
    """Find an instruction of the circle in the orders: a transfer's node may bear its other end's name."""
    return next(
        (rank, order.index(stuck))
        for stuck in cycle
        for rank, order in enumerate(schedule.orders)
        if stuck in order
    )


def _waits(cycle: list[Instruction]) -> str:
    return " waits for ".join(map(str, cycle))


def _refuse(schedule: Schedule, cell: tuple[int, int], why: str) -> None:
    raise ScheduleError(f"{why}\n{order_grid(schedule, bad=cell)}")
