"""A job that ends without a figure says why."""

import pytest

from perseus_ds.run_directory.events import why_unmeasured

COURSE = ("attached", "warming_up", "calibrated", "profiling", "profiled", "planning", "running", "measured")


def journal(*names: str, **facts: object) -> list[dict[str, object]]:
    return [{"event": name, **(facts if name == "attached" else {})} for name in names]


@pytest.mark.parametrize(
    ("until", "says"),
    [
        ("attached", "warm-up"),
        ("warming_up", "warm-up"),
        ("profiling", "perseus.profile.max_clocks"),
        ("planning", "profile is"),
        ("running", "first audit"),
    ],
)
def test_it_says_how_far_it_came_and_what_to_do(until: str, says: str) -> None:
    found = why_unmeasured(journal(*COURSE[: COURSE.index(until) + 1], "ended", mode="automatic"))
    assert found is not None
    assert says in found


def test_its_own_figure_a_mode_without_and_an_empty_journal_need_no_excuse() -> None:
    assert why_unmeasured([]) is None
    assert why_unmeasured(journal(*COURSE, "ended")) is None
    assert why_unmeasured([*journal(*COURSE), *journal("attached", "warming_up")]) is not None
    for mode in ("profile", "observe"):
        assert why_unmeasured(journal("attached", "warming_up", mode=mode)) is None
