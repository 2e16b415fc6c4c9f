import pytest
from schedules import schedule

from perseus_ds.errors import ScheduleError
from perseus_ds.schedule import Schedule, validate

GOOD_1 = "1F0 1B0 1F1 1B1"
BAD = [
    ("0F0 0F1 0F0 0B0 0B1", "0F0 runs twice", "stage 0 | F0  F1  →F0 B0  B1"),
    ("0B0 0F0 0F1 0B1", "0B0 runs before 0F0", "stage 0 | →B0 F0  F1  B1"),
    ("0F0 0F1 0B0", "0B1 never runs", "stage 0 | F0 F1 B0 →?"),
    ("0F0 0F1 0B0 0B1 0F2", "0F2 is beyond 2 microbatches", "stage 0 | F0  F1  B0  B1  →F2"),
    ("0F0 0F1 0I0 0B0 0W0 0B1", "0B0 runs twice: 0I0 did its work", "stage 0 | F0  F1  I0  →B0 W0  B1"),
    (
        "0F0 1F1 0B0 0B1",
        "1F1 stands in the order of rank 0, but stage 1 runs on rank 1",
        "rank 0 | 0F0  →1F1 0B0  0B1",
    ),
]


@pytest.mark.parametrize(("order", "why", "row"), BAD)
def test_refusal_shows_the_whole_grid_with_an_arrow_at_the_bad_cell(order: str, why: str, row: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        validate(schedule(order, GOOD_1, microbatches=2))
    first, *drawn = str(caught.value).splitlines()
    assert first == why
    assert drawn[0] == row
    assert [cell.removeprefix("1") for cell in drawn[1].split()[3:]] == ["F0", "B0", "F1", "B1"]


def test_stages_that_wait_for_each_other_are_named_in_a_circle() -> None:
    # Stage 0 wants the gradient of microbatch 1 first, stage 1 can only give that of microbatch 0 first.
    deadlock = schedule("0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1", microbatches=2)
    with pytest.raises(ScheduleError, match="never ends") as caught:
        validate(deadlock)
    first, *drawn = str(caught.value).splitlines()
    circle = first.removeprefix("the schedule never ends: ").split(" waits for ")
    assert circle[0] == circle[-1]
    assert set(circle) == {"0F1", "0B0", "1B0", "1F1"}
    assert "→" in "".join(drawn)


def test_a_transfer_without_its_other_end_is_refused_with_the_grid() -> None:
    forwards_only = ("0F0 0SA0 0B0", "1F0 1B0")
    with pytest.raises(ScheduleError, match="0SA0") as caught:
        validate(schedule(*forwards_only, microbatches=1))
    assert "SA0 B0" in str(caught.value)
    with pytest.raises(ScheduleError, match=r"1RA0.*0SA0"):
        validate(schedule("0F0 0B0", "1RA0 1F0 1B0", microbatches=1))


def test_a_schedule_without_stages_is_refused() -> None:
    with pytest.raises(ScheduleError, match="no stage"):
        validate(Schedule("empty", 1, ()))
