"""A plan file proves itself: the loader refuses whatever was changed, and most of it by recomputing it.

Every corruption is tried twice: as it is, and with a digest that was made anew, as somebody would who wants
to deceive. Then only what the file says of itself can contradict it; bounds are left to ``verify``.
"""

import copy
import dataclasses
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.errors import PerseusError, SolverError
from perseus_ds.files import KEY, digest_of
from perseus_ds.plan import PlanSet, build, dumps, loads, verify
from perseus_ds.plan.check import check_bounds_by_lp
from perseus_ds.plan.problem import Switching
from perseus_ds.plan.record import Splits
from perseus_ds.plan.waits import Waits
from perseus_ds.schedule import textbook
from perseus_ds.simulation.textbook_gpu import textbook_profile

Damage = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def plans() -> PlanSet:
    profile = dataclasses.replace(textbook_profile([1.0, 1.1, 1.3]), blocking_w={1410: 70.0, 705: 50.0})
    switching = Switching(ClockChange(0.002, 0.004, 0.003), waits="automatic")
    schedule = textbook("1f1b", stages=3, microbatches=4)
    fingerprint = {"gpu": "A100", "stages": "3"}
    return build(profile, schedule, blocking_power_w=70.0, switching=switching, fingerprint=fingerprint)


def loader_refuses(text: str) -> bool:
    """Whether the loader does, in one line."""
    try:
        loads(text)
    except PerseusError as error:
        return "\n" not in str(error)
    return False


def sealed(content: dict[str, Any]) -> str:
    """The file with a digest that fits."""
    return json.dumps(content | {KEY: digest_of(content)})


def refused(content: dict[str, Any], kind: str) -> None:
    """The loader refuses; with a new digest too, or else ``verify`` and the linear program do."""
    assert loader_refuses(json.dumps(content))
    assert loader_refuses(sealed(content)) is (kind not in LEFT_TO_VERIFY)
    if kind in LEFT_TO_VERIFY:
        read = loads(sealed(content))
        with pytest.raises(SolverError):
            check_bounds_by_lp(read, list(range(verify(read))))


def test_the_file_itself_is_passed(plans: PlanSet) -> None:
    read = loads(dumps(plans))
    assert verify(read) == len(plans)
    check_bounds_by_lp(read, [0, len(plans) // 2, len(plans) - 1])
    assert len(plans.splits)
    assert len(plans.waits)


SCALARS = ["t_min_s", "t_star_s", "blocking_power_w", "reserve_pct"]
BASELINE = ["iteration_time_s", "energy_j", "blocking_power_w"]
COLUMNS = ["iteration_time_s", "effective_energy_j", "lower_bound_j", "effective_bound_j"]
OPTIONS = ["clock_mhz", "time_s", "energy_j"]
WAIT_CLOCK = ["power_w", "high_power_w"]
VALUES: dict[str, Callable[[Any], object]] = {
    "more": lambda value: value * 1.2 + 0.05,
    "less": lambda value: value * 0.7 - 0.01,
    "negative": lambda value: -abs(value) - 1.0,
    "not a number": lambda _: float("nan"),
    "infinite": lambda _: float("inf"),
    "text": str,
    "nothing": lambda _: None,
}


def places() -> list[tuple[str, tuple[str | int, ...]]]:
    """Every number of the file that means something, by name and way."""
    found: list[tuple[str, tuple[str | int, ...]]] = [(key, (key,)) for key in SCALARS]
    found += [(f"baseline {key}", ("baseline", key)) for key in BASELINE]
    found += [(f"frontier {key}", ("frontier", key, 3)) for key in COLUMNS]
    found += [(f"option {key}", ("options", 1, key, 0)) for key in OPTIONS]
    found += [(f"wait clock {key}", ("wait_clock", key)) for key in WAIT_CLOCK]
    found += [(f"change {key}", ("change", key)) for key in ("call_s", "settle_down_s")]
    return found


CASES = [(where, how) for where, _ in places() for how in VALUES]
LEFT_TO_VERIFY = {
    f"frontier {bound} {how}"
    for bound in ("lower_bound_j", "effective_bound_j")
    for how in ("more", "less", "negative")
}
"""A bound decides no clock, time or saving: a linear program judges it, which takes seconds."""


@pytest.mark.parametrize(
    ("where", "how"),
    [
        pytest.param(*case, marks=[pytest.mark.thorough] * bool(number % 5))
        for number, case in enumerate(CASES)
    ],
)
def test_a_changed_number_is_refused(plans: PlanSet, where: str, how: str) -> None:
    content = json.loads(dumps(plans))
    way = dict(places())[where]
    part = content
    for step in way[:-1]:
        part = part[step]
    part[way[-1]] = VALUES[how](part[way[-1]])
    if where in {"t_star_s", "reserve_pct"} and how == "more":
        part[way[-1]] = -1.0 if where == "t_star_s" else 3.0
    refused(content, f"{where} {how}")


def without(content: dict[str, Any], key: str) -> None:
    del content[key]


def swapped(order: str) -> str:
    words = order.split()
    return " ".join(reversed(words))


STRUCTURES: dict[str, Damage] = {
    **{f"no {key}": (lambda c, key=key: without(c, key)) for key in (
        "format", "version", "fingerprint", "schedule", "options", "fixed_s", "frontier", "choice",
        "splits", "waits", "wait_clock", "change", "baseline", "t_min_s", "time_error_pct",
    )},
    "an order that deadlocks": lambda c: c["schedule"]["orders"].__setitem__(
        0, swapped(c["schedule"]["orders"][0])
    ),
    "an order twice": lambda c: c["schedule"]["orders"].append(c["schedule"]["orders"][0]),
    "two instructions changed places": lambda c: c["schedule"]["orders"].__setitem__(
        2, "2F0 2F1 2B0 2B1 2F2 2B2 2F3 2B3"
    ),
    "clocks reversed": lambda c: c["options"][0].__setitem__(
        "clock_mhz", c["options"][0]["clock_mhz"][::-1]
    ),
    "0 MHz": lambda c: c["options"][0]["clock_mhz"].__setitem__(-1, 0),
    "times reversed": lambda c: c["options"][0].__setitem__("time_s", c["options"][0]["time_s"][::-1]),
    "another stage's options": lambda c: c["options"][0].__setitem__("stage", 9),
    "plans reversed": lambda c: [column.reverse() for column in c["frontier"].values()],
    "one plan less": lambda c: [column.pop() for column in c["frontier"].values()],
    "splits of another count": lambda c: c["splits"].__setitem__("count", c["splits"]["count"] + 1),
    "waits of another count": lambda c: c["waits"].__setitem__("count", 0),
    "no clock for the waits": lambda c: c.__setitem__("wait_clock", None),
    "a low clock of 0 MHz": lambda c: c["wait_clock"].__setitem__("clock_mhz", 0),
}  # fmt: skip


@pytest.mark.parametrize("kind", STRUCTURES)
def test_a_changed_structure_is_refused(plans: PlanSet, kind: str) -> None:
    content = copy.deepcopy(json.loads(dumps(plans)))
    STRUCTURES[kind](content)
    refused(content, kind)


def another_choice(plans: PlanSet) -> PlanSet:
    choice = plans.choice.copy()
    choice[2, 3] = (choice[2, 3] + 1) % 3
    return dataclasses.replace(plans, choice=choice)


def another_split(plans: PlanSet, **fields: Callable[[np.ndarray], np.ndarray]) -> PlanSet:
    changed = {name: change(getattr(plans.splits, name).copy()) for name, change in fields.items()}
    return dataclasses.replace(plans, splits=dataclasses.replace(plans.splits, **changed))


def half(values: np.ndarray) -> np.ndarray:
    values[0] = 0.5 * values[0]
    return values


PACKED: dict[str, Callable[[PlanSet], PlanSet]] = {
    "another choice": another_choice,
    "another share": lambda plans: another_split(plans, share=half),
    "another option for the rest": lambda plans: another_split(plans, option=lambda o: o * 0),
    "no splits": lambda plans: dataclasses.replace(plans, splits=Splits.none()),
    "no waits": lambda plans: dataclasses.replace(plans, waits=Waits.none()),
    "a longer wait": lambda plans: dataclasses.replace(
        plans, waits=dataclasses.replace(plans.waits, low_s=plans.waits.low_s * 1.01)
    ),
    "a wait after another computation": lambda plans: dataclasses.replace(
        plans, waits=dataclasses.replace(plans.waits, column=plans.waits.column[::-1].copy()[::-1] * 0)
    ),
}


@pytest.mark.parametrize("kind", PACKED)
def test_a_changed_timeline_is_refused(plans: PlanSet, kind: str) -> None:
    refused(json.loads(dumps(PACKED[kind](plans))) | {KEY: "as it was"}, kind)


FINGERPRINTS: dict[str, Damage] = {
    "another GPU": lambda c: c["fingerprint"].__setitem__("gpu", "H100"),
    "a longer name": lambda c: c["fingerprint"].__setitem__("gpu", "A100 "),
    "one thing less": lambda c: c["fingerprint"].pop("gpu"),
    "one thing more": lambda c: c["fingerprint"].__setitem__("driver", "535"),
    "no fingerprint left": lambda c: c["fingerprint"].clear(),
    "another name of the schedule": lambda c: c["schedule"].__setitem__("name", "gpipe"),
    "another error of the profile": lambda c: c.__setitem__("time_error_pct", 50.0),
    "another solve time": lambda c: c.__setitem__("solve_time_s", 0.0),
    "no digest": lambda c: c.pop(KEY),
    "another digest": lambda c: c.__setitem__(KEY, "0" * 64),
    "a digest that is a list": lambda c: c.__setitem__(KEY, [c[KEY]]),
}
"""What nothing else in the file could contradict."""


@pytest.mark.parametrize("kind", FINGERPRINTS)
def test_a_changed_fingerprint_is_refused_by_the_digest(plans: PlanSet, kind: str) -> None:
    content = json.loads(dumps(plans))
    FINGERPRINTS[kind](content)
    with pytest.raises(PerseusError, match=KEY):
        loads(json.dumps(content))


def test_a_file_without_its_digest_is_told_that_it_has_none(plans: PlanSet) -> None:
    content = json.loads(dumps(plans))
    del content[KEY]
    with pytest.raises(PerseusError, match=f"has no {KEY}"):
        loads(json.dumps(content))


def test_how_a_file_is_laid_out_is_not_its_content(plans: PlanSet) -> None:
    content = json.loads(dumps(plans))
    assert len(loads(json.dumps(dict(reversed(content.items())), indent=2))) == len(plans)


def test_how_many_kinds_there_are() -> None:
    """172, all refused by the loader: 155 by recomputing them, 11 by the digest, 6 bounds by the digest."""
    recomputed = len(CASES) + len(STRUCTURES) + len(PACKED) - len(LEFT_TO_VERIFY)
    assert (recomputed, len(FINGERPRINTS), len(LEFT_TO_VERIFY)) == (155, 11, 6)


def test_every_plan_is_played_not_some(plans: PlanSet) -> None:
    for column in ("iteration_time_s", "effective_energy_j"):
        for index in range(1, len(plans), 13):
            content = json.loads(dumps(plans))
            content["frontier"][column][index] *= 1.0 - 1e-8
            assert loader_refuses(sealed(content))
