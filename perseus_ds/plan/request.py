"""What a planning process is asked: the schedule of a job, its fingerprint and its blocking power."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perseus_ds.errors import PlanError
from perseus_ds.plan.switching import Split, Wait
from perseus_ds.run_directory import write_json
from perseus_ds.schedule import Instruction, Schedule


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A profile comes beside it, as its own file."""

    schedule: Schedule
    fingerprint: Mapping[str, str]
    blocking_power_w: float
    reserve_pct: float
    split: Split = "auto"
    waits: Wait = "never"


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
    }
    write_json(path, content)


def read_request(path: Path) -> PlanRequest:
    """Read what ``write_request`` wrote.

    Raises:
        PlanError: naming the file and what is wrong in it.
    """
    try:
        content = json.loads(path.read_text())
        orders = tuple(tuple(map(Instruction.parse, order.split())) for order in content["orders"])
        unknown = tuple(map(str, content.get("unknown", [])))
        schedule = Schedule(content["schedule"], int(content["microbatches"]), orders, unknown)
        return PlanRequest(
            schedule,
            fingerprint=dict(content["fingerprint"]),
            blocking_power_w=float(content["blocking_power_w"]),
            reserve_pct=float(content["reserve_pct"]),
            split=content["split"],
            waits=content["waits"],
        )
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise PlanError(f"{path} is not a planning request: {type(error).__name__} {error}") from error
