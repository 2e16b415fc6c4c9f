"""The request to a planning process: the schedule of a job, its fingerprint and its blocking power."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pydantic

from perseus_ds.config import Objective
from perseus_ds.device.clock_change import ClockChange
from perseus_ds.errors import PerseusError, PlanError
from perseus_ds.files import read_json
from perseus_ds.plan.problem import Split, Wait
from perseus_ds.plan.record import ChangeBudget
from perseus_ds.plan.reserve import Reserve
from perseus_ds.run_directory.paths import write_json
from perseus_ds.schedule import Instruction, Schedule

_MOST_BYTES = 64 << 20  # a million instructions are 10 MB


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A profile comes beside it, as its own file; ``timelines`` names another, of kernel timelines.

    ``objective`` names the plan whose expectation is worked out (None: no plan). The latest time that it
    allows gets a plan of its own. GPUs change clocks as ``change`` states (None: as the profile's).
    """

    schedule: Schedule
    fingerprint: Mapping[str, str]
    blocking_power_w: float
    reserve_pct: Reserve
    split: Split = "automatic"
    waits: Wait = "never"
    budget: ChangeBudget = field(default_factory=ChangeBudget)
    timelines: str | None = None
    objective: Objective | None = None
    change: ClockChange | None = None


def write_request(path: Path, request: PlanRequest) -> None:
    """Write the request as JSON, the instructions of a rank as one text."""
    schedule = request.schedule
    orders = [" ".join(map(str, order)) for order in schedule.orders]
    bare = asdict(replace(request, schedule=replace(schedule, orders=())))
    write_json(path, bare | {"schedule": bare["schedule"] | {"orders": orders}})


def read_request(path: Path) -> PlanRequest:
    """Read what ``write_request`` wrote.

    Raises:
        PlanError: naming the file and what is wrong in it.
    """
    try:
        content = cast("dict[str, Any]", read_json(path, most_bytes=_MOST_BYTES))
        orders = content["schedule"]["orders"]
        content["schedule"]["orders"] = [tuple(map(Instruction.parse, order.split())) for order in orders]
        return pydantic.TypeAdapter(PlanRequest).validate_python(content)
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}") from error
    except (PerseusError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        why = " ".join(str(error).split())[:300]
        raise PlanError(f"{path} is not a planning request: {type(error).__name__} {why}") from error
