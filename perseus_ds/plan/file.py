"""The plan file: JSON to read, with the matrix of choices packed; nothing in it can be executed.

Writer and reader are one file: whoever adds a key sees both, and the shapes that are checked, side by side.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.errors import PerseusError, PlanFormatError
from perseus_ds.files import (
    KEY,
    check_digest,
    digest_of,
    mapping,
    parse_json,
    read_bounded,
    real,
    texts,
    whole,
)
from perseus_ds.plan.record import Baseline, ChangeBudget, Expected, Options, PlanSet, Segment, Splits
from perseus_ds.plan.verify import check_figures
from perseus_ds.plan.waits import WaitClock, Waits
from perseus_ds.profile import Computation
from perseus_ds.run_directory.paths import write_whole
from perseus_ds.schedule import Instruction, Kind, Schedule, validate
from perseus_ds.solver import GRAIN

# How large the parts of a plan file may be: asked before any work is done with them.

MOST_BYTES = 32 << 20
MOST_INSTRUCTIONS = 400_000
MOST_INFLATED_BYTES = 64 << 20  # 100 000 computations x 640 plans
MOST_MHZ = 100_000
MOST_SEGMENTS = 1_000_000  # of one computation
MOST_MEMORY_CLOCKS = 1000
MOST = 1e12  # seconds, joules, watts: the sums of what is more are not finite


def parsed_orders(orders: Sequence[str]) -> tuple[tuple[Instruction, ...], ...]:
    """Parse the stages' orders.

    Raises:
        PerseusError: too many instructions, or a text that is not an instruction.
    """
    if not isinstance(orders, list) or not all(isinstance(order, str) for order in orders):
        raise PerseusError("orders is no list of texts")
    count = sum(order.count(" ") + 1 for order in orders)
    if count > MOST_INSTRUCTIONS:
        raise PerseusError(f"{count} instructions, {MOST_INSTRUCTIONS} are allowed")
    return tuple(tuple(map(Instruction.parse, order.split(" ") if order else ())) for order in orders)


def reals(content: Mapping[str, object], key: str, *, least: float = -MOST) -> NDArray[np.float64]:
    """Return a column of finite numbers.

    Raises:
        PerseusError: naming the key.
    """
    values = _numbers(content, key)
    column = np.array(values, np.float64)
    _check_range(column, key, least, MOST)
    return column


def clocks_mhz(content: Mapping[str, object], key: str) -> NDArray[np.int64]:
    """Return a column of clocks.

    Raises:
        PerseusError: naming the key.
    """
    values = _numbers(content, key)
    column = np.array(values, np.float64)
    _check_range(column, key, 1, MOST_MHZ)
    if any(isinstance(value, float) for value in values):
        raise PerseusError(f"{key} has a clock that is no whole number of MHz")
    return np.array(values, np.int64)


def timelines_of(content: Mapping[str, object]) -> tuple[tuple[Segment, ...], ...]:
    """Return the timelines of one computation; none where the file names none.

    Raises:
        PerseusError: one that is no list of core clock, memory clock or null, and seconds.
    """
    lines = content.get("timelines", [])
    if not isinstance(lines, list) or not all(isinstance(line, list) and line for line in lines):
        raise PerseusError("timelines is no list of lists")
    if sum(map(len, lines)) > MOST_SEGMENTS:
        raise PerseusError(f"timelines of {sum(map(len, lines))} segments, {MOST_SEGMENTS} are allowed")
    return tuple(tuple(map(_segment, line)) for line in lines)


def spared_of(content: Mapping[str, object]) -> dict[int, float]:
    """Return what waiting spares by memory clock; nothing where the file states nothing.

    Raises:
        PerseusError: not a list of (MHz, watts).
    """
    rows = content.get("spared_w", [])
    if not isinstance(rows, list) or len(rows) > MOST_MEMORY_CLOCKS:
        raise PerseusError("spared_w is no list of memory clocks")
    found = {}
    for row in rows:
        if not isinstance(row, list) or len(row) != 2:  # noqa: PLR2004  # MHz and watts
            raise PerseusError("spared_w has a row that is not memory clock and watts")
        memory_mhz, watts = row
        if not (type(memory_mhz) is int and 1 <= memory_mhz <= MOST_MHZ):
            raise PerseusError(f"spared_w has a clock of {memory_mhz!r:.40}, expected whole MHz")
        if type(watts) not in {int, float} or not 0.0 <= watts <= MOST:
            raise PerseusError(f"spared_w has {watts!r:.40} W, expected 0 or more")
        found[memory_mhz] = float(watts)
    return found


def _segment(row: object) -> Segment:
    if not isinstance(row, list) or len(row) != len(Segment._fields):
        raise PerseusError("timelines has a segment that is not core clock, memory clock and seconds")
    for clock in row[:2]:
        if clock is not None and not (type(clock) is int and 1 <= clock <= MOST_MHZ):
            raise PerseusError(f"timelines has a clock of {clock!r:.40}, expected whole MHz")
    clock_mhz, memory_mhz, duration_s = row
    if clock_mhz is None or type(duration_s) not in {int, float} or not 0.0 < duration_s <= MOST:
        raise PerseusError("timelines has a segment without a core clock or without a duration above 0")
    return Segment(clock_mhz, memory_mhz, float(duration_s))


def inflated(
    packed: bytes, shape: Sequence[int], dtype: np.dtype[np.uint8] | np.dtype[np.uint16]
) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """Inflate what must have this shape, and not a byte more.

    Raises:
        PerseusError: the shape is too large, or not that of the data.
        zlib.error: the data is damaged.
    """
    if not isinstance(shape, list) or any(type(length) is not int or length < 0 for length in shape):
        raise PerseusError("shape is no list of lengths")
    wanted = math.prod(shape) * dtype.itemsize
    if wanted > MOST_INFLATED_BYTES:
        raise PerseusError(f"choices of {wanted} bytes, {MOST_INFLATED_BYTES} are allowed")
    raw = zlib.decompressobj().decompress(packed, wanted + 1)
    if len(raw) != wanted:
        raise PerseusError(f"choices that are not {'x'.join(map(str, shape))}")
    return cast("NDArray[np.uint8]", np.frombuffer(raw, dtype).reshape(shape))


def _numbers(content: Mapping[str, object], key: str) -> list[int | float]:
    values = content[key]
    if not isinstance(values, list) or any(type(value) not in {int, float} for value in values):
        raise PerseusError(f"{key} is no list of numbers")
    return values


def _check_range(column: NDArray[np.float64], key: str, least: float, most: float) -> None:
    wrong = ~((column >= least) & (column <= most))
    if wrong.any():
        raise PerseusError(f"{key} has {column[wrong][0]:g}, expected {least:g} to {most:g}")


# Matrices and vectors of a plan file as text: differences, compressed, in base 85.

Choice = NDArray[np.uint8] | NDArray[np.uint16]
_DIFFERENCES, _GRAINS = "zlib_b85_row_differences", "share_in_2_to_minus_20"


def pack_matrix(choice: Choice) -> dict[str, object]:
    """Neighbouring plans differ in few places: store differences from row to row."""
    little = choice.astype(choice.dtype.newbyteorder("<"))
    first = np.zeros((1, choice.shape[1]), little.dtype)
    steps = np.diff(little, axis=0, prepend=first)
    return {"dtype": choice.dtype.name, "shape": list(choice.shape), _DIFFERENCES: _text(steps)}


def unpack_matrix(packed: Mapping[str, object]) -> Choice:
    """Read back what ``pack_matrix`` wrote.

    Raises:
        PerseusError: another type or shape.
        zlib.error: damaged data.
    """
    name, shape = str(packed["dtype"]), cast("list[int]", packed["shape"])
    if name not in {"uint8", "uint16"}:
        raise PerseusError(f"choice is of type {name!r:.20}")
    dtype = np.dtype(name).newbyteorder("<")
    steps = inflated(base64.b85decode(cast("str", packed[_DIFFERENCES])), shape, dtype)
    return cast("NDArray[np.uint8]", np.cumsum(steps, axis=0, dtype=dtype.newbyteorder("=")))


def pack_splits(splits: Splits, plans: int) -> dict[str, object]:
    """Keep where the splits stand as steps from one to the next, shares as whole grains."""
    return {
        "count": len(splits),
        "steps": _steps(splits.column, splits.plan, plans),
        "option": _text(splits.option.astype("<u2")),
        _GRAINS: _text(np.rint(splits.share * GRAIN).astype("<u4")),
    }


def unpack_splits(packed: Mapping[str, object], plans: int, computations: int) -> Splits:
    """Read back what ``pack_splits`` wrote.

    Raises:
        PerseusError: a split that no plan has, two of one computation, or an impossible share. zlib.error:
        damaged data.
    """
    count = whole(packed, "count", least=0, most=MOST_INFLATED_BYTES // 16)
    column, plan = _places(packed, count, plans, computations)
    share = _vector(packed, _GRAINS, count, "<u4") / GRAIN
    if not ((share > 0.0) & (share < 1.0)).all():
        raise PerseusError("splits have a share that is not between 0 and 1")
    option = _vector(packed, "option", count, "<u2").astype(np.uint16)
    return Splits(plan, column, option, share)


def pack_waits(waits: Waits, plans: int) -> dict[str, object]:
    """Keep where the low waits stand, and how long each is low."""
    steps = _steps(waits.column, waits.plan, plans)
    return {"count": len(waits), "steps": steps, "low_s": _text(waits.low_s.astype("<f8"))}


def unpack_waits(packed: Mapping[str, object], plans: int, computations: int, ranks: int) -> Waits:
    """Read back what ``pack_waits`` wrote.

    Raises:
        PerseusError: a wait that no plan has, two of one, or an impossible time. zlib.error: damaged data.
    """
    count = whole(packed, "count", least=0, most=MOST_INFLATED_BYTES // 16)
    column, plan = _places(packed, count, plans, computations + ranks)
    low_s = _vector(packed, "low_s", count, "<f8").astype(np.float64)
    if not (np.isfinite(low_s) & (low_s > 0.0)).all():
        raise PerseusError("waits have a time that is not above 0")
    return Waits(plan, column, low_s)


def _steps(column: NDArray[np.int32], plan: NDArray[np.int32], plans: int) -> str:
    """Places in the matrix, column by column, as steps from one to the next."""
    return _text(np.diff(column.astype(np.int64) * plans + plan, prepend=0).astype("<u4"))


def _places(
    packed: Mapping[str, object], count: int, plans: int, computations: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    steps = _vector(packed, "steps", count, "<u4").astype(np.int64)
    place = np.cumsum(steps)
    if count and ((steps[1:] == 0).any() or place[-1] >= plans * computations):
        raise PerseusError("splits or waits name a computation twice, or one that is not there")
    column, plan = np.divmod(place, max(plans, 1))
    return column.astype(np.int32), plan.astype(np.int32)


def _text(values: NDArray[np.generic]) -> str:
    return base64.b85encode(zlib.compress(np.ascontiguousarray(values).tobytes(), 6)).decode()


def _vector(packed: Mapping[str, object], key: str, count: int, dtype: str) -> NDArray[np.uint32]:
    text = packed[key]
    if not isinstance(text, str):
        raise PerseusError(f"splits: {key} is no text")
    return cast("NDArray[np.uint32]", inflated(base64.b85decode(text), [count], np.dtype(dtype)))


FORMAT = "perseus-plan"
VERSION = 3


def write_plans(plans: PlanSet, path: str | Path) -> None:
    """Write atomically: a reader sees the old file or the new one."""
    write_whole(Path(path), dumps(plans))


def read_plans(path: str | Path, *, writers: frozenset[int] | None = None) -> PlanSet:
    """Read a plan file; with ``writers`` only one that nobody else could have written (`read_bounded`).

    Raises:
        PlanFormatError: naming the file and what is wrong in it.
    """
    try:
        return loads(read_bounded(Path(path), most_bytes=MOST_BYTES, writers=writers, shared=True))
    except OSError as error:
        raise PlanFormatError(f"{path}: {error.strerror}") from error
    except PerseusError as error:
        raise PlanFormatError(f"{path} {error.message}", hint=error.hint) from error


_DAMAGE = (KeyError, TypeError, ValueError, AttributeError, OverflowError, PerseusError, zlib.error)
_FRONTIER = "iteration_time_s", "effective_energy_j", "lower_bound_j", "effective_bound_j"
_AGAIN = "make it again with perseus-ds plan, or let the job plan"


def dumps(plans: PlanSet) -> str:
    """Return the file's text; also what rank 0 sends to the others."""
    content: dict[str, object] = {
        "format": FORMAT,
        "version": VERSION,
        "fingerprint": dict(plans.fingerprint),
        "schedule": _schedule_row(plans.schedule),
        "blocking_power_w": plans.blocking_power_w,
        "t_min_s": plans.t_min_s,
        "t_star_s": plans.t_star_s,
        "solve_time_s": plans.solve_time_s,
        "reserve_pct": plans.reserve_pct,
        "variation_slowdown_pct": plans.variation_slowdown_pct,
        "time_error_pct": plans.time_error_pct,
        "scatter_pct": plans.scatter_pct,
        "load_variation": plans.load_variation,
        "expected": _expected_rows(plans.expected),
        "baseline": asdict(plans.baseline),
        "options": [_options_row(key, options) for key, options in plans.options.items()],
        "fixed_s": [
            {"stage": stage, "kind": kind.value, "time_s": time_s}
            for (stage, kind), time_s in plans.fixed_s.items()
        ],
        "frontier": {name: getattr(plans, name).tolist() for name in _FRONTIER},
        "choice": pack_matrix(plans.choice),
        "splits": pack_splits(plans.splits, len(plans)),
        "change": asdict(plans.change),
        "budget": asdict(plans.budget),
        "wait_clock": None if plans.wait_clock is None else _wait_clock_row(plans.wait_clock),
        "waits": pack_waits(plans.waits, len(plans)),
        "saving_within_pct": _column(plans.saving_within_pct),
        "power_ratio": _column(plans.power_ratio),
    }
    return json.dumps(content | {KEY: digest_of(content)})


def loads(text: str | bytes) -> PlanSet:
    """Read what ``dumps`` wrote; sizes are checked before any work is done with them.

    What can be recomputed is, so that a message states what is wrong; the digest finds the rest.

    Raises:
        PlanFormatError: the text is not a whole plan of our version.
    """
    try:
        content = parse_json(text)
    except PerseusError as error:
        raise PlanFormatError(error.message, hint=_AGAIN) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise PlanFormatError("is not a plan", hint=f'expected "format": "{FORMAT}"')
    if content.get("version") != VERSION:
        raise PlanFormatError(
            f"is a plan of version {content.get('version')!r:.40}, we read {VERSION}",
            hint=_AGAIN,
        )
    try:
        plans = _plan_set(content)
        _check_shapes(plans)
        validate(plans.schedule)
        check_figures(plans)
        check_digest(content)
    except _DAMAGE as error:
        raise PlanFormatError(f"is damaged: {_said(error)}", hint=_AGAIN) from error
    return plans


def _key_of(row: Mapping[str, object]) -> Computation:
    return whole(row, "stage", least=0, most=MOST_INSTRUCTIONS), Kind(row["kind"])


def _column(values: NDArray[np.float64] | None) -> list[float] | None:
    return None if values is None else values.tolist()


def _said(error: Exception) -> str:
    """What is wrong, in one line that no file can make long."""
    kind = "" if type(error) is PerseusError else f"{type(error).__name__} "
    return f"{kind}{str(error).splitlines()[0]:.200}" if str(error) else kind.strip()


def _options_row(key: Computation, options: Options) -> dict[str, object]:
    return {
        "stage": key[0],
        "kind": key[1].value,
        "clock_mhz": options.clock_mhz.tolist(),
        "time_s": options.time_s.tolist(),
        "energy_j": options.energy_j.tolist(),
        "timelines": [[list(segment) for segment in line] for line in options.timelines],
        "spared_w": [list(row) for row in options.spared_w.items()],
    } | (
        ({} if options.margin_s is None else {"margin_s": options.margin_s.tolist()})
        | ({"leaks_alike": True} if options.leaks_alike else {})
    )


def _plan_set(content: dict[str, object]) -> PlanSet:
    frontier = mapping(content["frontier"], "frontier")
    options = cast("list[dict[str, object]]", content["options"])
    fixed = cast("list[dict[str, object]]", content["fixed_s"])
    baseline = mapping(content["baseline"], "baseline")
    choice = unpack_matrix(mapping(content["choice"], "choice"))
    if choice.ndim != 2:  # noqa: PLR2004  # plans and computations
        raise PerseusError(f"choice has {choice.ndim} dimensions, expected plans and computations")
    plans = PlanSet(
        fingerprint=texts(content["fingerprint"], "fingerprint"),
        schedule=_schedule_of(mapping(content["schedule"], "schedule")),
        blocking_power_w=real(content, "blocking_power_w", least=0, most=MOST),
        options={_key_of(row): _options_of(row) for row in options},
        fixed_s={_key_of(row): real(row, "time_s", least=0, most=MOST) for row in fixed},
        iteration_time_s=reals(frontier, "iteration_time_s"),
        effective_energy_j=reals(frontier, "effective_energy_j"),
        lower_bound_j=reals(frontier, "lower_bound_j"),
        effective_bound_j=reals(frontier, "effective_bound_j"),
        choice=choice,
        baseline=Baseline(*(real(baseline, one.name, least=0, most=MOST) for one in fields(Baseline))),
        t_min_s=real(content, "t_min_s", least=0, most=MOST),
        t_star_s=real(content, "t_star_s", least=0, most=MOST),
        solve_time_s=real(content, "solve_time_s", least=0, most=MOST),
    )
    return _with_changes(_with_errors(plans, content), content)


def _with_changes(plans: PlanSet, content: dict[str, object]) -> PlanSet:
    """Add what plans know of changes of clock: inside computations, in waits, and how often."""
    change = _change_of(mapping(content["change"], "change"))
    count, computations = plans.choice.shape
    return replace(
        plans,
        splits=unpack_splits(mapping(content["splits"], "splits"), count, computations),
        waits=unpack_waits(mapping(content["waits"], "waits"), count, computations, plans.schedule.ranks),
        wait_clock=_wait_clock_of(content["wait_clock"], change),
        change=change,
        budget=_budget_of(mapping(content.get("budget", {}), "budget")),
    )


def _with_errors(plans: PlanSet, content: dict[str, object]) -> PlanSet:
    """Add what plans know of how durations vary, and how wrong they may be."""

    def known(key: str) -> float | None:
        return None if content.get(key) is None else real(content, key, least=0, most=MOST)

    return replace(
        plans,
        reserve_pct=real(content, "reserve_pct", least=0, most=MOST),
        variation_slowdown_pct=known("variation_slowdown_pct"),
        time_error_pct=real(content, "time_error_pct", least=0, most=MOST),
        scatter_pct=known("scatter_pct"),
        load_variation=known("load_variation") or 0.0,
        expected=dict(map(_expected_of, cast("list[object]", content.get("expected", [])))),
        saving_within_pct=None
        if content.get("saving_within_pct") is None
        else reals(content, "saving_within_pct", least=0),
        power_ratio=None if content.get("power_ratio") is None else reals(content, "power_ratio", least=0),
    )


def _schedule_row(schedule: Schedule) -> dict[str, object]:
    return {
        "name": schedule.name,
        "microbatches": schedule.microbatches,
        "orders": [" ".join(map(str, order)) for order in schedule.orders],
        "unknown": list(schedule.unknown),
    }


def _schedule_of(row: Mapping[str, object]) -> Schedule:
    return Schedule(
        str(row["name"]),
        whole(row, "microbatches", least=1, most=MOST_INSTRUCTIONS),
        parsed_orders(cast("list[str]", row["orders"])),
        tuple(str(name) for name in cast("list[object]", row["unknown"])),
    )


def _expected_rows(known: Mapping[int, Expected]) -> list[dict[str, object]]:
    return [{"plan": index, **asdict(one)} for index, one in known.items()]


def _expected_of(row: object) -> tuple[int, Expected]:
    known = mapping(row, "expected")
    return whole(known, "plan", least=0, most=MOST_INSTRUCTIONS), Expected(
        saving_pct=real(known, "saving_pct", least=-MOST, most=100),
        slowdown_pct=real(known, "slowdown_pct", least=-100, most=MOST),
        within_pct=real(known, "within_pct", least=0, most=MOST),
        slowdown_within_pct=real(known, "slowdown_within_pct", least=0, most=MOST),
    )


def _options_of(row: Mapping[str, object]) -> Options:
    return Options(
        clocks_mhz(row, "clock_mhz"),
        reals(row, "time_s", least=0),
        reals(row, "energy_j", least=0),
        timelines_of(row),
        spared_of(row),
        reals(row, "margin_s", least=0) if "margin_s" in row else None,
        row.get("leaks_alike") is True,
    )


def _wait_clock_row(clock: WaitClock) -> dict[str, object]:
    return {
        "clock_mhz": clock.clock_mhz,
        "power_w": clock.power_w,
        "high_power_w": clock.high_power_w,
    }


def _wait_clock_of(row: object, change: ClockChange) -> WaitClock | None:
    if row is None:
        return None
    fields_ = mapping(row, "wait_clock")
    low_w, high_w = (real(fields_, key, least=0, most=MOST) for key in ("power_w", "high_power_w"))
    return WaitClock(whole(fields_, "clock_mhz", least=1, most=MOST_MHZ), low_w, high_w, change)


def _budget_of(row: Mapping[str, object]) -> ChangeBudget:
    """A file without one has none."""
    if not row:
        return ChangeBudget()
    gpu_per_s, node_per_s = (
        None if row[key] is None else real(row, key, least=0, most=MOST)
        for key in ("per_gpu_per_s", "per_node_per_s")
    )
    return ChangeBudget(
        gpu_per_s,
        node_per_s,
        gpus_per_node=whole(row, "gpus_per_node", least=1, most=MOST_INSTRUCTIONS),
    )


def _change_of(row: Mapping[str, object]) -> ClockChange:
    return ClockChange(*(real(row, field.name, least=0, most=MOST) for field in fields(ClockChange)))


def _check_shapes(plans: PlanSet) -> None:
    """Refuse a file whose parts do not fit together: it would crash a job later."""
    computations = plans.computations()
    if not len(plans) or plans.choice.shape != (len(plans), len(computations)):
        raise ValueError(
            f"choices are {plans.choice.shape} for {len(plans)} plans of {len(computations)} computations"
        )
    bounds_j = (plans.lower_bound_j, plans.effective_bound_j)
    _check_columns("frontier", plans.iteration_time_s, plans.effective_energy_j, *bounds_j)
    for name in ("saving_within_pct", "power_ratio"):
        column = getattr(plans, name)
        if column is not None:
            _check_columns(name, plans.iteration_time_s, column)
    for (stage, kind), options in plans.options.items():
        whole = options.time_s[: len(options.time_s) - len(options.timelines)]
        _check_columns(f"{stage}{kind.value} options", options.clock_mhz, whole)
        _check_columns(f"{stage}{kind.value} options", options.time_s, options.energy_j)
        if options.margin_s is not None:
            _check_columns(f"{stage}{kind.value} options", options.clock_mhz, options.margin_s)
    if (np.diff(plans.iteration_time_s) < 0).any():
        raise ValueError("iteration times do not ascend")
    highest = plans.choice.max(axis=0)
    np.maximum.at(highest, plans.splits.column, plans.splits.option.astype(highest.dtype))
    for instruction, option in zip(computations, highest, strict=True):
        if option >= len(plans.options[instruction.stage, instruction.kind].time_s):
            raise ValueError(f"{instruction} has no option {option}")


def _check_columns(what: str, *columns: NDArray[np.float64] | NDArray[np.int64]) -> None:
    if len({column.shape for column in columns}) > 1 or columns[0].ndim != 1:
        raise ValueError(f"{what}: columns of unequal length")
    if not all(np.isfinite(column).all() for column in columns):
        raise ValueError(f"{what}: a number that is not finite")
