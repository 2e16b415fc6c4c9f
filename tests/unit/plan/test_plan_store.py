import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from schedules import hand_made

from perseus_ds.errors import PlanError
from perseus_ds.files import KEY, digest_of
from perseus_ds.plan import PlanSet, dumps, loads, read_plans, write_plans
from perseus_ds.plan.file import PackedMatrix, pack_matrix, unpack_matrix


def assert_same(read: PlanSet, written: PlanSet) -> None:
    for name in ("fingerprint", "schedule", "blocking_power_w", "fixed_s", "baseline"):
        assert getattr(read, name) == getattr(written, name)
    for name in ("t_min_s", "t_star_s", "solve_time_s", "reserve_pct", "time_error_pct"):
        assert getattr(read, name) == getattr(written, name)
    for name in ("iteration_time_s", "effective_energy_j", "lower_bound_j", "effective_bound_j", "choice"):
        np.testing.assert_array_equal(getattr(read, name), getattr(written, name), strict=True)
    assert list(read.options) == list(written.options)
    for key, options in written.options.items():
        for name in ("clock_mhz", "time_s", "energy_j"):
            np.testing.assert_array_equal(getattr(read.options[key], name), getattr(options, name))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run" / "plan.json"
    write_plans(hand_made(), path)
    return path


def test_reads_back_what_it_wrote(file: Path) -> None:
    assert_same(read_plans(file), hand_made())
    assert_same(loads(dumps(hand_made())), hand_made())


def test_reads_a_plan_of_an_earlier_release_without_its_corrections() -> None:
    content = json.loads(dumps(hand_made())) | {"feedback": {"plan": 1, "of": "f" * 16}}
    del content[KEY]
    assert_same(loads(json.dumps(content | {KEY: digest_of(content)})), hand_made())


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


def test_every_truncation_is_refused_in_one_line(file: Path) -> None:
    whole = file.read_text()
    for length in range(0, len(whole), 7):
        file.write_text(whole[:length])
        with pytest.raises(PlanError, match="JSON") as caught:
            read_plans(file)
        assert str(caught.value).startswith(str(file))
        assert "\n" not in str(caught.value)


def change(*path: str | int, to: object) -> Callable[[dict[str, Any]], None]:
    def damage(content: Any) -> None:  # noqa: ANN401  # JSON, going down
        for step in path[:-1]:
            content = content[step]
        content[path[-1]] = to

    return damage


PACKED = "zlib_b85_row_differences"
DAMAGE = {
    "another format": (change("format", to="else"), 'is not a plan (expected "format": "perseus-plan")'),
    "an older version": (change("version", to=1), "is a plan of version 1, we read 3"),
    "a version that was never released": (change("version", to=2), "is a plan of version 2, we read 3"),
    "no version": (lambda content: content.pop("version"), "is a plan of version None"),
    "a key is missing": (lambda content: content.pop("t_min_s"), "is damaged: t_min_s: Field required"),
    "a number is text": (change("blocking_power_w", to="hot"), "is damaged: blocking_power_w"),
    "a number is null": (change("t_star_s", to=None), "is damaged: t_star_s"),
    "an unknown kind": (change("options", 0, "kind", to="Q"), "options.0.kind"),
    "an unknown instruction": (
        change("schedule", "orders", 0, to="0F0 0Q0"),
        "is damaged: ScheduleError instruction '0Q0' is not",
    ),
    "an instruction too many": (
        change("schedule", "orders", 0, to="0F0 0F1 0B0"),
        "choices are (3, 4) for 3 plans of 5 computations",
    ),
    "a stage without options": (lambda content: content["options"].pop(0), "is damaged: KeyError"),
    "options of unequal length": (
        change("options", 0, "time_s", to=[1.0]),
        "0F options: columns of unequal length",
    ),
    "a time is not a number": (
        change("options", 0, "time_s", to=[1.0, float("nan")]),
        "has NaN where a number should be",
    ),
    "columns of unequal length": (
        change("frontier", "lower_bound_j", to=[1.0]),
        "frontier: columns of unequal length",
    ),
    "times out of order": (
        change("frontier", "iteration_time_s", to=[7.0, 6.0, 9.0]),
        "iteration times do not ascend",
    ),
    "no plan": (
        change(
            "frontier",
            to={
                "iteration_time_s": [],
                "effective_energy_j": [],
                "lower_bound_j": [],
                "effective_bound_j": [],
            },
        ),
        "for 0 plans",
    ),
    "a baseline that is doubled": (
        change("baseline", "energy_j", to=3200.0),
        "the baseline states an energy of 3200 J; recomputed it is 1600 J",
    ),
    "choices of another type": (change("choice", "dtype", to="object"), "choice.dtype"),
    "choices of another shape": (
        change("choice", "shape", to=[2, 4]),
        "is damaged: choices that are not 2x4",
    ),
    "choices that do not unpack": (change("choice", PACKED, to="0" * 40), "is damaged: error"),
    "choices that are no base 85": (change("choice", PACKED, to="\u00e9"), "is damaged: ValueError"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_refused_in_one_line_with_the_file(
    file: Path, damage: Callable[[dict[str, Any]], None], message: str
) -> None:
    content = json.loads(file.read_text())
    damage(content)
    file.write_text(json.dumps(content))
    with pytest.raises(PlanError) as caught:
        read_plans(file)
    assert str(caught.value).startswith(f"{file} ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_choice_that_its_options_do_not_have_is_refused(file: Path) -> None:
    content = json.loads(file.read_text())
    backward = content["options"][1]
    for column in ("clock_mhz", "time_s", "energy_j"):
        backward[column] = backward[column][:2]
    file.write_text(json.dumps(content))
    with pytest.raises(PlanError, match="option 2"):
        read_plans(file)


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes.json").write_bytes(b"\x80\x81\x00")
    (tmp_path / "list.json").write_text("[]")
    for name, message in [
        ("bytes.json", "bytes.json is not text"),
        ("list.json", "list.json is not a plan"),
        ("nowhere.json", "nowhere.json: No such file"),
    ]:
        with pytest.raises(PlanError, match=message):
            read_plans(tmp_path / name)
