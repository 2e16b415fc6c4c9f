"""A schedule as a text grid: stages down, unit time steps across."""

from __future__ import annotations

from perseus_ds.schedule.dag import dag_of
from perseus_ds.schedule.instruction import Instruction
from perseus_ds.schedule.order import Schedule


def grid(schedule: Schedule) -> str:
    """Draw the computations as if each took one step.

    Raises:
        InvalidScheduleError: the schedule cannot run.
    """
    dag = dag_of(schedule)
    starts = dag.earliest_starts([1.0 if node.kind.is_computation else 0.0 for node in dag.nodes])
    cells = {(n.stage, int(t)): n for n, t in zip(dag.nodes, starts, strict=True) if n.kind.is_computation}
    width = 1 + max((step for _, step in cells), default=-1)
    rows = [[_cell(cells.get((stage, step))) for step in range(width)] for stage in range(schedule.stages)]
    return _lines(rows)


def order_grid(schedule: Schedule, *, bad: tuple[int, int] | None = None) -> str:
    """Draw the orders side by side without timing them, with an arrow at a bad (stage, position)."""
    rows = [[_cell(instruction) for instruction in order] for order in schedule.orders]
    if bad is not None and bad[1] < len(rows[bad[0]]):
        rows[bad[0]][bad[1]] = "→" + rows[bad[0]][bad[1]]
    elif bad is not None:
        rows[bad[0]].append("→?")
    return _lines(rows)


def _cell(instruction: Instruction | None) -> str:
    if instruction is None:
        return "."
    return f"{instruction.kind.value}{instruction.microbatch}"


def _lines(rows: list[list[str]]) -> str:
    width = max((len(cell) for row in rows for cell in row), default=1)
    return "\n".join(
        f"stage {stage} | " + " ".join(cell.ljust(width) for cell in row).rstrip()
        for stage, row in enumerate(rows)
    )
