"""A schedule as a text grid: ranks down, unit time steps across."""

from __future__ import annotations

from perseus_ds.schedule.instruction import Instruction
from perseus_ds.schedule.join import dag_of
from perseus_ds.schedule.schedule import Schedule


def grid(schedule: Schedule) -> str:
    """Draw the computations as if each took one step.

    Raises:
        InvalidScheduleError: the schedule cannot run.
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
    return f"{instruction.kind.value}{instruction.microbatch}"


def _lines(schedule: Schedule, rows: list[list[str]]) -> str:
    width = max((len(cell) for row in rows for cell in row), default=1)
    name = "rank" if schedule.has_chunks else "stage"
    return "\n".join(
        f"{name} {rank} | " + " ".join(cell.ljust(width) for cell in row).rstrip()
        for rank, row in enumerate(rows)
    )
