"""The plan file: JSON to read, with the matrix of choices packed; nothing in it can be executed.

``dumps`` writes and ``loads`` reads. `PlanFile` states every key and how large it may be; what can be
recomputed is (`plan.verify`), and the digest finds the rest. A request for plans is a file as well.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
import pydantic
from numpy.typing import NDArray
from pydantic import Field

from perseus_ds.config import Objective
from perseus_ds.device.clock_change import ClockChange
from perseus_ds.errors import PerseusError, PlanError
from perseus_ds.files import KEY, MOST, check_digest, digest_of, parse_json, read_bounded, read_json
from perseus_ds.plan.problem import Split, Wait
from perseus_ds.plan.record import Baseline, ChangeBudget, Choice, Expected, Options, PlanSet, Segment, Splits
from perseus_ds.plan.reserve import Reserve
from perseus_ds.plan.verify import check_figures
from perseus_ds.plan.waits import WaitClock, Waits
from perseus_ds.profile.loads import NotNegative
from perseus_ds.profile.records import Computation, Mhz, Positive
from perseus_ds.run_directory.paths import write_json, write_whole
from perseus_ds.schedule import Instruction, Kind, Schedule, validate
from perseus_ds.solver.problem import GRAIN

FORMAT = "perseus-plan"
VERSION = 3
MOST_BYTES = 32 << 20
MOST_INSTRUCTIONS = 400_000
MOST_INFLATED_BYTES = 64 << 20  # 100 000 computations x 640 plans
MOST_MEMORY_CLOCKS = 1000
_AGAIN = "make it again with perseus-ds plan, or let the job plan"
_DAMAGE = (KeyError, TypeError, ValueError, OverflowError, PerseusError, zlib.error)

Number = Annotated[int, Field(ge=0, le=MOST_INSTRUCTIONS)]
Size = Annotated[int, Field(ge=0, le=MOST_INFLATED_BYTES // 16)]
Real = Annotated[float, Field(ge=-MOST, le=MOST)]


class _Part(pydantic.BaseModel):
    """A part of the file; keys that earlier or later releases have besides are ignored."""

    model_config = pydantic.ConfigDict(strict=True, frozen=True, allow_inf_nan=False, defer_build=True)


class _Schedule(_Part):
    name: str
    microbatches: Annotated[int, Field(ge=1, le=MOST_INSTRUCTIONS)]
    orders: list[str]
    unknown: list[str]


class _Options(_Part):
    stage: Number
    kind: Kind
    clock_mhz: list[Mhz]
    time_s: list[Positive]
    energy_j: list[Positive]
    timelines: list[Annotated[list[tuple[Mhz, Mhz | None, Positive]], Field(min_length=1)]] = []
    spared_w: Annotated[list[tuple[Mhz, NotNegative]], Field(max_length=MOST_MEMORY_CLOCKS)] = []
    margin_s: list[NotNegative] | None = None
    leaks_alike: bool = False


class _Fixed(_Part):
    stage: Number
    kind: Kind
    time_s: NotNegative


class _Frontier(_Part):
    iteration_time_s: list[Real]
    effective_energy_j: list[Real]
    lower_bound_j: list[Real]
    effective_bound_j: list[Real]


class PackedMatrix(_Part):
    """A matrix of small numbers [plans, computations], as differences from row to row."""

    dtype: Literal["uint8", "uint16"]
    shape: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]
    zlib_b85_row_differences: str


class _Splits(_Part):
    count: Size
    steps: str
    option: str
    share_in_2_to_minus_20: str


class _Waits(_Part):
    count: Size
    steps: str
    low_s: str


class _WaitClock(_Part):
    clock_mhz: Mhz
    power_w: NotNegative
    high_power_w: NotNegative


class _Expected(_Part):
    plan: Number
    saving_pct: Annotated[float, Field(ge=-MOST, le=100.0)]
    slowdown_pct: Annotated[float, Field(ge=-100.0, le=MOST)]
    within_pct: NotNegative
    slowdown_within_pct: NotNegative


class PlanFile(_Part):
    """Every key of a plan file; `PlanSet` states what they mean."""

    fingerprint: dict[str, str]
    schedule: _Schedule
    blocking_power_w: NotNegative
    t_min_s: NotNegative
    t_star_s: NotNegative
    solve_time_s: NotNegative
    reserve_pct: NotNegative
    variation_slowdown_pct: NotNegative | None = None
    time_error_pct: NotNegative
    scatter_pct: NotNegative | None = None
    load_variation: NotNegative | None = None
    expected: list[_Expected] = []
    baseline: Baseline
    options: list[_Options]
    fixed_s: list[_Fixed]
    frontier: _Frontier
    choice: PackedMatrix
    splits: _Splits
    change: ClockChange
    budget: ChangeBudget = ChangeBudget()
    wait_clock: _WaitClock | None
    waits: _Waits
    saving_within_pct: list[NotNegative] | None = None
    power_ratio: list[NotNegative] | None = None


def write_plans(plans: PlanSet, path: str | Path) -> None:
    """Write atomically: a reader sees the old file or the new one."""
    write_whole(Path(path), dumps(plans))


def read_plans(path: str | Path) -> PlanSet:
    """Read a plan file.

    Raises:
        PlanError: naming the file and what is wrong in it.
    """
    try:
        return loads(read_bounded(Path(path), most_bytes=MOST_BYTES))
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}") from error
    except PerseusError as error:
        raise PlanError(f"{path} {error.message}", hint=error.hint) from error


# Keys of the file that are written and read as they are: numbers, and columns of all plans.
_SCALARS = (
    "blocking_power_w",
    "t_min_s",
    "t_star_s",
    "solve_time_s",
    "reserve_pct",
    "variation_slowdown_pct",
    "time_error_pct",
    "scatter_pct",
    "load_variation",
)
_COLUMNS = ("saving_within_pct", "power_ratio")


def dumps(plans: PlanSet) -> str:
    """Return the file's text; also what rank 0 sends to the others."""
    clock, count, schedule = plans.wait_clock, len(plans), plans.schedule
    content: dict[str, object] = {
        "format": FORMAT,
        "version": VERSION,
        "fingerprint": dict(plans.fingerprint),
        "schedule": {
            "name": schedule.name,
            "microbatches": schedule.microbatches,
            "orders": [" ".join(map(str, order)) for order in schedule.orders],
            "unknown": list(schedule.unknown),
        },
        **{name: getattr(plans, name) for name in _SCALARS},
        "expected": [{"plan": index, **asdict(one)} for index, one in plans.expected.items()],
        "baseline": asdict(plans.baseline),
        "options": [_options_row(key, options) for key, options in plans.options.items()],
        "fixed_s": [
            {"stage": stage, "kind": kind.value, "time_s": time_s}
            for (stage, kind), time_s in plans.fixed_s.items()
        ],
        "frontier": {name: getattr(plans, name).tolist() for name in _Frontier.model_fields},
        "choice": pack_matrix(plans.choice),
        "splits": {
            "count": len(plans.splits),
            "steps": _steps(plans.splits.column, plans.splits.plan, count),
            "option": _text(plans.splits.option.astype("<u2")),
            "share_in_2_to_minus_20": _text(np.rint(plans.splits.share * GRAIN).astype("<u4")),
        },
        "change": asdict(plans.change),
        "budget": asdict(plans.budget),
        "wait_clock": clock and {name: getattr(clock, name) for name in _WaitClock.model_fields},
        "waits": {
            "count": len(plans.waits),
            "steps": _steps(plans.waits.column, plans.waits.plan, count),
            "low_s": _text(plans.waits.low_s.astype("<f8")),
        },
    }
    for name in _COLUMNS:
        column = getattr(plans, name)
        content[name] = None if column is None else column.tolist()
    return json.dumps(content | {KEY: digest_of(content)})


def _options_row(key: Computation, options: Options) -> dict[str, object]:
    row: dict[str, object] = {
        "stage": key[0],
        "kind": key[1].value,
        "clock_mhz": options.clock_mhz.tolist(),
        "time_s": options.time_s.tolist(),
        "energy_j": options.energy_j.tolist(),
        "timelines": [[list(segment) for segment in line] for line in options.timelines],
        "spared_w": [list(row) for row in options.spared_w.items()],
    }
    if options.margin_s is not None:
        row["margin_s"] = options.margin_s.tolist()
    return row | ({"leaks_alike": True} if options.leaks_alike else {})


def loads(text: str | bytes) -> PlanSet:
    """Read what ``dumps`` wrote; sizes are checked before any work is done with them.

    What can be recomputed is, so that a message states what is wrong; the digest finds the rest.

    Raises:
        PlanError: the text is not a whole plan of our version.
    """
    try:
        content = parse_json(text)
    except PerseusError as error:
        raise PlanError(error.message, hint=_AGAIN) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise PlanError("is not a plan", hint=f'expected "format": "{FORMAT}"')
    if content.get("version") != VERSION:
        raise PlanError(
            f"is a plan of version {content.get('version')!r:.40}, we read {VERSION}", hint=_AGAIN
        )
    try:
        plans = _plan_set(PlanFile.model_validate_json(text))
        _check_shapes(plans)
        validate(plans.schedule)
        check_figures(plans)
        check_digest(content)
    except _DAMAGE as error:
        raise PlanError(f"is damaged: {_in_one_line(error)}", hint=_AGAIN) from error
    return plans


def _in_one_line(error: Exception) -> str:
    """Return what is wrong in one line that no file can make long."""
    if isinstance(error, pydantic.ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}, got {first['input']!r:.40}"
    kind = "" if type(error) is PerseusError else f"{type(error).__name__} "
    return f"{kind}{str(error).splitlines()[0]:.200}" if str(error) else kind.strip()


def _plan_set(file: PlanFile) -> PlanSet:
    schedule, (plans, computations) = file.schedule, file.choice.shape
    orders = _parsed_orders(schedule.orders)
    columns: dict[str, Any] = {name: getattr(file.frontier, name) for name in _Frontier.model_fields}
    columns |= {name: getattr(file, name) for name in _COLUMNS if getattr(file, name) is not None}
    columns = {name: np.array(column) for name, column in columns.items()}
    columns |= {name: getattr(file, name) for name in _SCALARS} | {
        "load_variation": file.load_variation or 0.0
    }
    clock = file.wait_clock
    return PlanSet(
        fingerprint=file.fingerprint,
        schedule=Schedule(schedule.name, schedule.microbatches, orders, tuple(schedule.unknown)),
        options={(row.stage, row.kind): _options_of(row) for row in file.options},
        fixed_s={(row.stage, row.kind): row.time_s for row in file.fixed_s},
        choice=unpack_matrix(file.choice),
        baseline=file.baseline,
        splits=_splits_of(file.splits, plans, computations),
        waits=_waits_of(file.waits, plans, computations + len(orders)),
        wait_clock=None if clock is None else WaitClock(**clock.model_dump(), change=file.change),
        change=file.change,
        budget=file.budget,
        expected={row.plan: Expected(**row.model_dump(exclude={"plan"})) for row in file.expected},
        **columns,
    )


def _parsed_orders(orders: Sequence[str]) -> tuple[tuple[Instruction, ...], ...]:
    count = sum(order.count(" ") + 1 for order in orders)
    if count > MOST_INSTRUCTIONS:
        raise PerseusError(f"{count} instructions, {MOST_INSTRUCTIONS} are allowed")
    return tuple(tuple(map(Instruction.parse, order.split(" ") if order else ())) for order in orders)


def _options_of(row: _Options) -> Options:
    return Options(
        np.array(row.clock_mhz, np.int64),
        np.array(row.time_s, np.float64),
        np.array(row.energy_j, np.float64),
        tuple(tuple(Segment(*segment) for segment in line) for line in row.timelines),
        dict(row.spared_w),
        None if row.margin_s is None else np.array(row.margin_s, np.float64),
        row.leaks_alike,
    )


def _check_shapes(plans: PlanSet) -> None:
    """Refuse a file whose parts do not fit together: it would crash a job later."""
    computations = plans.computations()
    if not len(plans) or plans.choice.shape != (len(plans), len(computations)):
        raise ValueError(
            f"choices are {plans.choice.shape} for {len(plans)} plans of {len(computations)} computations"
        )
    columns = [getattr(plans, name) for name in (*_Frontier.model_fields, *_COLUMNS)]
    if {len(column) for column in columns if column is not None} != {len(plans)}:
        raise ValueError("frontier: columns of unequal length")
    for (stage, kind), options in plans.options.items():
        clocks = len(options.clock_mhz)
        lengths = {clocks + len(options.timelines), len(options.time_s), len(options.energy_j)}
        if len(lengths) > 1 or (options.margin_s is not None and len(options.margin_s) != clocks):
            raise ValueError(f"{stage}{kind.value} options: columns of unequal length")
        if not clocks:
            raise ValueError(f"{stage}{kind.value} options: no clock")
    highest = plans.choice.max(axis=0)
    np.maximum.at(highest, plans.splits.column, plans.splits.option.astype(highest.dtype))
    for instruction, option in zip(computations, highest, strict=True):
        if option >= len(plans.options[instruction.stage, instruction.kind].time_s):
            raise ValueError(f"{instruction} has no option {option}")


# Matrices and vectors as text: differences, compressed, in base 85.


def pack_matrix(choice: Choice) -> dict[str, object]:
    """Store differences from row to row: neighbouring plans differ in few places."""
    little = choice.astype(choice.dtype.newbyteorder("<"))
    steps = np.diff(little, axis=0, prepend=np.zeros((1, choice.shape[1]), little.dtype))
    shape = list(choice.shape)
    return {"dtype": choice.dtype.name, "shape": shape, "zlib_b85_row_differences": _text(steps)}


def unpack_matrix(packed: PackedMatrix) -> Choice:
    """Read back what ``pack_matrix`` wrote.

    Raises:
        PerseusError: another shape. zlib.error: damaged data.
    """
    dtype = np.dtype(packed.dtype).newbyteorder("<")
    steps = _inflate(packed.zlib_b85_row_differences, packed.shape, dtype)
    return cast("NDArray[np.uint8]", np.cumsum(steps, axis=0, dtype=dtype.newbyteorder("=")))


def _splits_of(packed: _Splits, plans: int, computations: int) -> Splits:
    column, plan = _places(packed.steps, packed.count, plans, computations)
    share = _inflate(packed.share_in_2_to_minus_20, [packed.count], np.dtype("<u4")) / GRAIN
    if not ((share > 0.0) & (share < 1.0)).all():
        raise PerseusError("splits have a share that is not between 0 and 1")
    option = _inflate(packed.option, [packed.count], np.dtype("<u2")).astype(np.uint16)
    return Splits(plan, column, option, share)


def _waits_of(packed: _Waits, plans: int, columns: int) -> Waits:
    column, plan = _places(packed.steps, packed.count, plans, columns)
    low_s = _inflate(packed.low_s, [packed.count], np.dtype("<f8")).astype(np.float64)
    if not (np.isfinite(low_s) & (low_s > 0.0)).all():
        raise PerseusError("waits have a time that is not above 0")
    return Waits(plan, column, low_s)


def _steps(column: NDArray[np.int32], plan: NDArray[np.int32], plans: int) -> str:
    """Return places in the matrix, column by column, as steps from one to the next."""
    return _text(np.diff(column.astype(np.int64) * plans + plan, prepend=0).astype("<u4"))


def _places(
    packed: str, count: int, plans: int, computations: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    steps = _inflate(packed, [count], np.dtype("<u4")).astype(np.int64)
    place = np.cumsum(steps)
    if count and ((steps[1:] == 0).any() or place[-1] >= plans * computations):
        raise PerseusError("splits or waits name a computation twice, or one that is not there")
    column, plan = np.divmod(place, max(plans, 1))
    return column.astype(np.int32), plan.astype(np.int32)


def _text(values: NDArray[np.generic]) -> str:
    return base64.b85encode(zlib.compress(np.ascontiguousarray(values).tobytes(), 6)).decode()


def _inflate(packed: str, shape: Sequence[int], dtype: np.dtype[np.generic]) -> NDArray[np.uint8]:
    """Inflate what must have this shape, and not a byte more.

    Raises:
        PerseusError: the shape is too large, or not that of the data. zlib.error: the data is damaged.
    """
    wanted = math.prod(shape) * dtype.itemsize
    if wanted > MOST_INFLATED_BYTES:
        raise PerseusError(f"choices of {wanted} bytes, {MOST_INFLATED_BYTES} are allowed")
    raw = zlib.decompressobj().decompress(base64.b85decode(packed), wanted + 1)
    if len(raw) != wanted:
        raise PerseusError(f"choices that are not {'x'.join(map(str, shape))}")
    return cast("NDArray[np.uint8]", np.frombuffer(raw, dtype).reshape(shape))


# The request to a planning process: the schedule of a job, its fingerprint and its blocking power.

_MOST_REQUEST_BYTES = 64 << 20  # a million instructions are 10 MB


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Request for all plans of a job; the profile is a file beside it, and so are kernel ``timelines``.

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
        content = cast("dict[str, Any]", read_json(path, most_bytes=_MOST_REQUEST_BYTES))
        orders = content["schedule"]["orders"]
        content["schedule"]["orders"] = [tuple(map(Instruction.parse, order.split())) for order in orders]
        return pydantic.TypeAdapter(PlanRequest).validate_python(content)
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}") from error
    except (PerseusError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        why = " ".join(str(error).split())[:300]
        raise PlanError(f"{path} is not a planning request: {type(error).__name__} {why}") from error
