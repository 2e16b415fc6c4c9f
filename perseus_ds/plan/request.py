"""What a planning process is asked: the schedule of a job, its fingerprint and its blocking power."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, cast

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
    """Write the request as JSON."""
    content = {
        "schedule": request.schedule.name,
        "microbatches": request.schedule.microbatches,
        "orders": [" ".join(map(str, order)) for order in request.schedule.orders],
        "unknown": list(request.schedule.unknown),
        "fingerprint": dict(request.fingerprint),
        "blocking_power_w": request.blocking_power_w,
        "reserve_pct": request.reserve_pct,
        "split": request.split,
        "waits": request.waits,
        "budget": asdict(request.budget),
        "timelines": request.timelines,
        "objective": None if request.objective is None else asdict(request.objective),
        "change": None if request.change is None else asdict(request.change),
    }
    write_json(path, content)


def read_request(path: Path) -> PlanRequest:
    """Read what ``write_request`` wrote.

    Raises:
        PlanError: naming the file and what is wrong in it.
    """
    try:
        return _request(cast("dict[str, Any]", read_json(path, most_bytes=_MOST_BYTES)))
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}") from error
    except (PerseusError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise PlanError(f"{path} is not a planning request: {type(error).__name__} {error}") from error


def _request(written: dict[str, Any]) -> PlanRequest:
    content, objective = _in_full(written), written.get("objective")
    reserve = content["reserve_pct"]
    orders = tuple(tuple(map(Instruction.parse, order.split())) for order in content["orders"])
    unknown = tuple(map(str, content.get("unknown", [])))
    return PlanRequest(
        Schedule(str(content["schedule"]), int(content["microbatches"]), orders, unknown),
        fingerprint={str(key): str(value) for key, value in content["fingerprint"].items()},
        blocking_power_w=float(content["blocking_power_w"]),
        reserve_pct=reserve if reserve == "automatic" else float(reserve),
        split=content["split"],
        waits=content["waits"],
        budget=_budget(content.get("budget", {})),
        timelines=content.get("timelines"),
        objective=None if objective is None else Objective(**_in_full(objective)),
        change=None if content.get("change") is None else ClockChange(**content["change"]),
    )


def _in_full(row: Mapping[str, Any]) -> dict[str, Any]:
    """Write "auto", as earlier releases wrote it, as "automatic"."""
    return {key: "automatic" if value == "auto" else value for key, value in row.items()}


def _budget(row: Mapping[str, Any]) -> ChangeBudget:
    """Read a budget; what earlier releases stated besides is ignored."""
    return ChangeBudget(
        **{field.name: row[field.name] for field in fields(ChangeBudget) if field.name in row}
    )
