"""The plan file: what is written is read again, and the loader refuses whatever was changed in one line.

Every corruption is tried twice: as it is, and with a digest that was made anew, as somebody would who wants
to deceive. Then only what the file says of itself can contradict it; bounds are left to ``verify``.
"""

import base64
import dataclasses
import json
import os
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from schedules import hand_made
from textbook_gpu import HIGHEST_MHZ, textbook_profile

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.errors import PerseusError, PlanError, SolverError
from perseus_ds.files import KEY, digest_of
from perseus_ds.plan import PlanSet, build, read_plans, write_plans
from perseus_ds.plan.check import check_bounds_by_lp, check_times_by_networkx
from perseus_ds.plan.clock_requests import play, play_baseline
from perseus_ds.plan.file import PackedMatrix, dumps, loads, pack_matrix, unpack_matrix
from perseus_ds.plan.problem import Switching
from perseus_ds.plan.record import Splits
from perseus_ds.plan.reserve import doubt
from perseus_ds.plan.verify import verify
from perseus_ds.plan.waits import Waits
from perseus_ds.schedule import Kind, textbook

Content = dict[str, Any]
Damage = Callable[[Content], object]
PACKED = "zlib_b85_row_differences"


@pytest.fixture(scope="module")
def plans() -> PlanSet:
    profile = dataclasses.replace(textbook_profile([1.0, 1.1, 1.3]), blocking_w={1410: 70.0, 705: 50.0})
    switching = Switching(ClockChange(0.002, 0.004, 0.003), waits="automatic")
    schedule = textbook("1f1b", stages=3, microbatches=4)
    fingerprint = {"gpu": "A100", "stages": "3"}
    return build(profile, schedule, blocking_power_w=70.0, switching=switching, fingerprint=fingerprint)


def sealed(content: Content) -> str:
    """The file with a digest that fits."""
    return json.dumps(content | {KEY: digest_of(content)})


def refusal(text: str) -> str:
    """The line with which the loader refuses a text."""
    with pytest.raises(PlanError) as caught:
        loads(text)
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 400
    return line


# What is written is read again.


def test_reads_back_what_it_wrote_in_any_order_with_keys_of_others(plans: PlanSet, tmp_path: Path) -> None:
    for written in (hand_made(), plans):
        write_plans(written, tmp_path / "run" / "plan.json")
        read = read_plans(tmp_path / "run" / "plan.json")
        assert dumps(read) == dumps(written)
        assert (read.fingerprint, read.schedule) == (written.fingerprint, written.schedule)
        np.testing.assert_array_equal(read.choice, written.choice, strict=True)
    content = json.loads(dumps(plans))
    assert len(loads(json.dumps(dict(reversed(content.items())), indent=2))) == len(plans)
    del content[KEY]
    assert dumps(loads(sealed(content | {"feedback": {"plan": 1}}))) == dumps(plans)


choices = st.sampled_from([np.uint8, np.uint16]).flatmap(
    lambda dtype: st_numpy.arrays(dtype, st.tuples(st.integers(1, 9), st.integers(1, 9)))
)


@given(choices)
def test_packing_loses_nothing(choice: np.ndarray[tuple[int, int], np.dtype[np.uint8 | np.uint16]]) -> None:
    packed = PackedMatrix.model_validate_json(json.dumps(pack_matrix(choice)))
    np.testing.assert_array_equal(unpack_matrix(packed), choice, strict=True)


def test_a_large_plan_stays_small() -> None:
    packed = pack_matrix(np.repeat(np.arange(100, dtype=np.uint8)[:, None], 10_000, axis=1))
    assert len(json.dumps(packed)) < 20_000  # a million choices


# What is no plan, or asks for too much.


def test_what_is_no_plan_is_refused_with_the_file_and_so_is_every_truncation(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "bytes.json").write_bytes(b"\x80\x81\x00")
    (tmp_path / "list.json").write_text("[]")
    for path, message in [
        (tmp_path / "fifo", "ordinary"),
        (Path("/dev/zero"), "ordinary"),
        (tmp_path, "[Dd]irectory|ordinary"),
        (tmp_path / "bytes.json", "is not text"),
        (tmp_path / "list.json", "is not a plan"),
        (tmp_path / "nowhere.json", "No such file"),
    ]:
        with pytest.raises(PlanError, match=f"^{path}.*({message})"):
            read_plans(path)
    whole = dumps(hand_made())
    for length in range(0, len(whole), 7):
        assert "JSON" in refusal(whole[:length])


@pytest.mark.thorough
def test_what_asks_for_too_much_is_refused_before_it_is_done() -> None:
    squeeze, megabyte = zlib.compressobj(9), bytes(1 << 20)
    first, again = (squeeze.compress(megabyte) + squeeze.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    content = json.loads(dumps(hand_made()))
    tracemalloc.start()
    content["choice"][PACKED] = base64.b85encode(first + again * 127).decode()
    assert "3x4" in refusal(json.dumps(content))
    content["choice"]["shape"] = [1 << 20, 1 << 10]
    assert "1073741824 bytes" in refusal(json.dumps(content))
    content["schedule"]["orders"][0] = "0F0 " * 1_000_000
    assert "1000003 instructions" in refusal(json.dumps(content))
    assert tracemalloc.get_traced_memory()[1] < 200 << 20
    tracemalloc.stop()


# What was changed.

VALUES: dict[str, Callable[[Any], object]] = {
    "more": lambda value: value * 1.2 + 0.05,
    "less": lambda value: value * 0.7 - 0.01,
    "negative": lambda value: -abs(value) - 1.0,
    "not a number": lambda _: float("nan"),
    "infinite": lambda _: float("inf"),
    "huge": lambda _: 10**17,
    "true": lambda _: True,
    "text": str,
    "nothing": lambda _: None,
    "a list": lambda value: [value],
}
BOUNDS = "lower_bound_j", "effective_bound_j"
PLACES: list[tuple[str | int, ...]] = [
    *((key,) for key in ("t_min_s", "t_star_s", "blocking_power_w", "reserve_pct")),
    *(("baseline", key) for key in ("iteration_time_s", "energy_j", "blocking_power_w")),
    *(("frontier", key, 3) for key in ("iteration_time_s", "effective_energy_j", *BOUNDS)),
    *(("options", 1, key, 0) for key in ("clock_mhz", "time_s", "energy_j")),
    *(("wait_clock", key) for key in ("power_w", "high_power_w")),
    *(("change", key) for key in ("call_s", "settle_down_s")),
]
"""Every number of the file that means something."""


def put(content: Content, path: tuple[str | int, ...], value: object) -> None:
    reduce(getitem, path[:-1], content)[path[-1]] = value  # type: ignore[arg-type, index]


@pytest.mark.parametrize(
    ("path", "how"),
    [
        pytest.param(path, how, marks=[pytest.mark.thorough] * bool((at + number) % 5))
        for at, path in enumerate(PLACES)
        for number, how in enumerate(VALUES)
    ],
)
def test_a_changed_number_is_refused(plans: PlanSet, path: tuple[str | int, ...], how: str) -> None:
    """A bound decides no clock, time or saving: a linear program judges it, which takes seconds."""
    content = json.loads(dumps(plans))
    value = VALUES[how](reduce(getitem, path, content))  # type: ignore[arg-type]
    if how == "more" and path[0] in {"t_star_s", "reserve_pct"}:
        value = -1.0 if path[0] == "t_star_s" else 3.0
    put(content, path, value)
    refusal(json.dumps(content))
    if how in {"more", "less", "negative"} and path[1:2] in [(bound,) for bound in BOUNDS]:
        read = loads(sealed(content))
        with pytest.raises(SolverError):
            check_bounds_by_lp(read, list(range(verify(read))))
    else:
        refusal(sealed(content))


def test_every_plan_is_recomputed_not_some(plans: PlanSet) -> None:
    for column in ("iteration_time_s", "effective_energy_j"):
        for index in range(1, len(plans), 13):
            content = json.loads(dumps(plans))
            content["frontier"][column][index] *= 1.0 - 1e-8
            refusal(sealed(content))


def changed(*path: str | int, to: object) -> Damage:
    return lambda content: put(content, path, to)


STRUCTURES: dict[str, tuple[Damage, str]] = {
    "another format": (changed("format", to="else"), "is not a plan"),
    "an older version": (changed("version", to=1), "is a plan of version 1, we read 3"),
    "no version": (lambda c: c.pop("version"), "is a plan of version None"),
    **{f"no {key}": (lambda c, key=key: c.pop(key), f"{key}: Field required") for key in (
        "fingerprint", "schedule", "options", "fixed_s", "frontier", "choice", "splits", "waits",
        "wait_clock", "change", "baseline", "t_min_s", "time_error_pct",
    )},
    "an unknown kind": (changed("options", 0, "kind", to="Q"), "options.0.kind"),
    "an unknown instruction": (changed("schedule", "orders", 0, to="0F0 0Q0"), "instruction '0Q0'"),
    "an instruction too many": (
        changed("schedule", "orders", 0, to="0F0 0F1 0F2 0F3 0F4 0B0 0B1 0B2 0B3"), "of 25 computations"
    ),
    "an order that deadlocks": (
        changed("schedule", "orders", 0, to="0B3 0F3 0B2 0F2 0B1 0F1 0B0 0F0"), "ScheduleError"
    ),
    "an order twice": (lambda c: c["schedule"]["orders"].append(c["schedule"]["orders"][0]), ""),
    "two instructions swapped": (
        changed("schedule", "orders", 2, to="2F0 2F1 2B0 2B1 2F2 2B2 2F3 2B3"), ""
    ),
    "a stage without options": (lambda c: c["options"].pop(0), "KeyError"),
    "another stage's options": (changed("options", 0, "stage", to=9), "KeyError"),
    "fewer options": (
        lambda c: c["options"][1].update(
            {k: c["options"][1][k][:2] for k in ("clock_mhz", "time_s", "energy_j")}
        ),
        "has no option",
    ),
    "options of unequal length": (changed("options", 0, "time_s", to=[1.0]), "columns of unequal length"),
    "options of nothing": (
        lambda c: c["options"].append(
            {"stage": 9, "kind": "F", "clock_mhz": [], "time_s": [], "energy_j": []}
        ),
        "9F options: no clock",
    ),
    "clocks reversed": (lambda c: c["options"][0]["clock_mhz"].reverse(), ""),
    "times reversed": (lambda c: c["options"][0]["time_s"].reverse(), ""),
    "0 MHz": (changed("options", 0, "clock_mhz", -1, to=0), "clock_mhz"),
    "clocks by name": (changed("options", 0, "clock_mhz", to={"0": 1400}), "options.0.clock_mhz"),
    "plans reversed": (lambda c: [column.reverse() for column in c["frontier"].values()], "plan 0's time"),
    "one plan less": (lambda c: [column.pop() for column in c["frontier"].values()], "choices are"),
    "columns of unequal length": (changed("frontier", "lower_bound_j", to=[1.0]), "unequal length"),
    "no plan": (lambda c: [column.clear() for column in c["frontier"].values()], "for 0 plans"),
    "choices of another type": (changed("choice", "dtype", to="object"), "choice.dtype"),
    "choices of another shape": (changed("choice", "shape", to=[2, 24]), "choices that are not 2x24"),
    "choices of a negative shape": (changed("choice", "shape", to=[-1, 4]), "choice.shape.0"),
    "choices of a shape of one": (changed("choice", "shape", to=[3]), "choice.shape"),
    "choices that do not unpack": (changed("choice", PACKED, to="0" * 40), "is damaged: error"),
    "choices that are no base 85": (changed("choice", PACKED, to="\u00e9"), "is damaged: ValueError"),
    "splits of another count": (lambda c: put(c, ("splits", "count"), c["splits"]["count"] + 1), ""),
    "waits of another count": (changed("waits", "count", to=0), ""),
    "no clock for the waits": (changed("wait_clock", to=None), ""),
    "a low clock of 0 MHz": (changed("wait_clock", "clock_mhz", to=0), "wait_clock.clock_mhz"),
    "a low clock that is not low": (changed("wait_clock", "clock_mhz", to=HIGHEST_MHZ), f"{HIGHEST_MHZ} MHz"),
}  # fmt: skip


@pytest.mark.parametrize("kind", STRUCTURES)
def test_a_changed_structure_is_refused(plans: PlanSet, kind: str, tmp_path: Path) -> None:
    content, (damage, message) = json.loads(dumps(plans)), STRUCTURES[kind]
    damage(content)
    (tmp_path / "plan.json").write_text(json.dumps(content))
    with pytest.raises(PlanError, match=f"^{tmp_path / 'plan.json'} "):
        read_plans(tmp_path / "plan.json")
    assert message in refusal(sealed(content))


def replaced(plans: PlanSet, part: str, **changes: Callable[[np.ndarray], np.ndarray]) -> PlanSet:
    own = getattr(plans, part)
    changed = {name: change(getattr(own, name).copy()) for name, change in changes.items()}
    return dataclasses.replace(plans, **{part: dataclasses.replace(own, **changed)})


def another_choice(plans: PlanSet) -> PlanSet:
    choice = plans.choice.copy()
    choice[2, 3] = (choice[2, 3] + 1) % 3
    return dataclasses.replace(plans, choice=choice)


TIMELINES: dict[str, Callable[[PlanSet], PlanSet]] = {
    "another choice": another_choice,
    "another share": lambda plans: replaced(plans, "splits", share=lambda s: np.append(0.5 * s[:1], s[1:])),
    "another option for the rest": lambda plans: replaced(plans, "splits", option=lambda o: o * 0),
    "no splits": lambda plans: dataclasses.replace(plans, splits=Splits.none()),
    "no waits": lambda plans: dataclasses.replace(plans, waits=Waits.none()),
    "a longer wait": lambda plans: replaced(plans, "waits", low_s=lambda s: s * 1.01),
    "a wait after another computation": lambda plans: replaced(plans, "waits", column=lambda c: c * 0),
}


@pytest.mark.parametrize("kind", TIMELINES)
def test_a_changed_timeline_is_refused(plans: PlanSet, kind: str) -> None:
    assert len(plans.splits)
    assert len(plans.waits)
    refusal(dumps(TIMELINES[kind](plans)))


FINGERPRINTS: dict[str, Damage] = {
    "another GPU": changed("fingerprint", "gpu", to="H100"),
    "one thing less": lambda c: c["fingerprint"].pop("gpu"),
    "one thing more": changed("fingerprint", "driver", to="535"),
    "another name of the schedule": changed("schedule", "name", to="gpipe"),
    "another error of the profile": changed("time_error_pct", to=50.0),
    "another solve time": changed("solve_time_s", to=0.0),
    "no digest": lambda c: c.pop(KEY),
    "another digest": changed(KEY, to="0" * 64),
    "a digest that is a list": lambda c: put(c, (KEY,), [c[KEY]]),
}
"""What nothing else in the file could contradict."""


@pytest.mark.parametrize("kind", FINGERPRINTS)
def test_a_changed_fingerprint_is_refused_by_the_digest(plans: PlanSet, kind: str) -> None:
    content = json.loads(dumps(plans))
    FINGERPRINTS[kind](content)
    with pytest.raises(PerseusError, match=f"has no {KEY}" if kind == "no digest" else KEY):
        loads(json.dumps(content))


# Plans played again: the checker passes what is right and names what is not.


@pytest.fixture(scope="module")
def small() -> PlanSet:
    schedule = textbook("1f1b", stages=2, microbatches=3)
    return build(textbook_profile([1.0, 1.2]), schedule, blocking_power_w=70.0)


@pytest.mark.parametrize("column", ["iteration_time_s", "effective_energy_j", *BOUNDS])
def test_a_wrong_figure_is_named(small: PlanSet, column: str) -> None:
    assert verify(small) == len(small)
    wrong = getattr(small, column) + np.eye(len(small))[1] * 50.0
    with pytest.raises(SolverError, match="plan 1"):
        verify(replace(small, **{column: wrong}))


@pytest.mark.parametrize("share", [0.002, -0.005])
@pytest.mark.parametrize("column", BOUNDS)
def test_a_bound_a_little_off_fails_the_linear_program(small: PlanSet, column: str, share: float) -> None:
    """Too high it claims what cannot be; far too low it claims a gap that is not there."""
    check_bounds_by_lp(small, [0, 1])
    off = replace(small, **{column: getattr(small, column) + share * small.energy_j})
    with pytest.raises(SolverError, match="linear program"):
        check_bounds_by_lp(off, [1])


@pytest.mark.parametrize("column", ["iteration_time_s", "t_min_s", "baseline"])
def test_a_time_that_is_off_does_not_pass_networkx(small: PlanSet, column: str) -> None:
    check_times_by_networkx(small, [0, len(small) - 1])
    said = getattr(small, column)
    later_s = 1.0 + 1e-6
    off = (
        replace(said, iteration_time_s=said.iteration_time_s * later_s)
        if column == "baseline"
        else said * later_s
    )
    with pytest.raises(SolverError, match="longest path"):
        check_times_by_networkx(replace(small, **{column: off}), [0])


def test_transfers_that_travel_meanwhile_are_part_of_the_longest_path() -> None:
    """Orders without transfers: what a stage hands over is on its way for a while."""
    profile = textbook_profile([1.0, 1.2])
    sends = dict.fromkeys([(0, Kind.SEND_ACTIVATION), (1, Kind.SEND_GRAD)], 0.01)
    schedule = textbook("1f1b", stages=2, microbatches=3)
    late = build(replace(profile, fixed_s=sends), schedule, blocking_power_w=70.0)
    assert late.t_min_s > build(profile, schedule, blocking_power_w=70.0).t_min_s
    check_times_by_networkx(late, list(range(0, len(late), 20)))


def test_what_is_played_ends_at_its_time_in_running_order(small: PlanSet) -> None:
    for index in range(len(small)):
        played = play(small.plan(index))
        assert max(one.end_s for one in played) == pytest.approx(small.iteration_time_s[index])
        assert [one.instruction for one in played] == small.computations()
    before = play_baseline(small)
    assert {one.clock_mhz for one in before} == {HIGHEST_MHZ}
    assert max(one.end_s for one in before) == pytest.approx(small.baseline.iteration_time_s)


def test_a_frontier_faster_than_maximum_clocks_by_more_than_the_error_is_doubtful(small: PlanSet) -> None:
    assert doubt(small) is None
    slow = replace(small.baseline, iteration_time_s=small.baseline.iteration_time_s * 1.05)
    assert "4.76 %" in str(doubt(replace(small, baseline=slow, time_error_pct=1.0)))
    assert doubt(replace(small, baseline=slow, time_error_pct=5.0)) is None


@pytest.mark.parametrize(("first_w", "second_w"), [(70.1, 0.0), (30.0, 20.0), (30.0, 30.0)])
def test_what_waiting_spares_is_less_than_it_takes(small: PlanSet, first_w: float, second_w: float) -> None:
    (first, own), (second, other), *_ = small.options.items()
    options = {first: replace(own, spared_w={810: first_w}), second: replace(other, spared_w={810: second_w})}
    spared = replace(small, options={**small.options, **options})
    if first_w == second_w:
        assert verify(spared) == len(small)
        return
    with pytest.raises(SolverError, match="810 MHz"):
        verify(spared)
