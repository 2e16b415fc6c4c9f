"""Whether a schedule can run: every computation once, forward before backward, and no stage stuck."""

from __future__ import annotations

from perseus_ds.errors import InvalidScheduleError
from perseus_ds.schedule.dag import Dag, dag_of
from perseus_ds.schedule.grid import order_grid
from perseus_ds.schedule.instruction import Instruction, Kind
from perseus_ds.schedule.order import Order, Schedule


def validate(schedule: Schedule) -> None:
    """Return if the schedule runs to its end.

    Raises:
        InvalidScheduleError: with the whole grid and, where one cell is to blame, an arrow at it.
    """
    if not schedule.orders:
        raise InvalidScheduleError(f"schedule {schedule.name!r} has no stage")
    for stage, order in enumerate(schedule.orders):
        _check_order(schedule, stage, order)
    cycle = _joined(schedule).cycle()
    if cycle:
        stuck = cycle[0]
        cell = (stuck.stage, schedule.orders[stuck.stage].index(stuck))
        _refuse(schedule, cell, f"the schedule never ends: {' waits for '.join(map(str, cycle))}")


def _joined(schedule: Schedule) -> Dag:
    try:
        return dag_of(schedule)
    except InvalidScheduleError as error:
        raise InvalidScheduleError(f"{error.message}\n{order_grid(schedule)}") from error


def _check_order(schedule: Schedule, stage: int, order: Order) -> None:
    seen: set[Instruction] = set()
    for position, instruction in enumerate(order):
        forward = Instruction(stage, Kind.FORWARD, instruction.microbatch)
        if instruction.stage != stage:
            _refuse(schedule, (stage, position), f"{instruction} stands in the order of stage {stage}")
        if instruction.kind.is_computation and instruction.microbatch >= schedule.microbatches:
            _refuse(
                schedule, (stage, position), f"{instruction} is beyond {schedule.microbatches} microbatches"
            )
        if instruction in seen:
            _refuse(schedule, (stage, position), f"{instruction} runs twice")
        if instruction.kind is Kind.BACKWARD and forward not in seen:
            _refuse(schedule, (stage, position), f"{instruction} runs before {forward}")
        seen.add(instruction)
    for microbatch in range(schedule.microbatches):
        for kind in (Kind.FORWARD, Kind.BACKWARD):
            if Instruction(stage, kind, microbatch) not in seen:
                _refuse(schedule, (stage, len(order)), f"{stage}{kind.value}{microbatch} never runs")


def _refuse(schedule: Schedule, cell: tuple[int, int], why: str) -> None:
    raise InvalidScheduleError(f"{why}\n{order_grid(schedule, bad=cell)}")
