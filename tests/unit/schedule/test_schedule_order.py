import pytest

from perseus_ds.errors import InvalidScheduleError
from perseus_ds.schedule import grid, order_grid, textbook

# Checked by eye against figure 4 of arXiv 2006.09503 (1F1B) and figure 2 of arXiv 1811.06965 (GPipe),
# with a backward as long as a forward.
ONE_F_ONE_B = """
stage 0 | F0 F1 F2 F3 .  .  .  B0 F4 B1 F5 B2 .  B3 .  B4 .  B5
stage 1 | .  F0 F1 F2 .  .  B0 F3 B1 F4 B2 F5 B3 .  B4 .  B5 .
stage 2 | .  .  F0 F1 .  B0 F2 B1 F3 B2 F4 B3 F5 B4 .  B5 .  .
stage 3 | .  .  .  F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 .  .  .
"""

GPIPE = """
stage 0 | F0 F1 F2 .  .  .  .  B2 B1 B0
stage 1 | .  F0 F1 F2 .  .  B2 B1 B0 .
stage 2 | .  .  F0 F1 F2 B2 B1 B0 .  .
"""

FEWER_MICROBATCHES_THAN_STAGES = """
stage 0 | F0 F1 .  .  .  B0 .  B1
stage 1 | .  F0 F1 .  B0 .  B1 .
stage 2 | .  .  F0 B0 F1 B1 .  .
"""


def trimmed(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


@pytest.mark.parametrize(
    ("name", "stages", "microbatches", "triangle"),
    [
        ("1f1b", 4, 6, ONE_F_ONE_B),
        ("gpipe", 3, 3, GPIPE),
        ("1f1b", 3, 2, FEWER_MICROBATCHES_THAN_STAGES),
        ("1f1b", 1, 2, "stage 0 | F0 B0 F1 B1"),
        ("gpipe", 1, 2, "stage 0 | F0 F1 B1 B0"),
    ],
)
def test_triangle(name: str, stages: int, microbatches: int, triangle: str) -> None:
    assert trimmed(grid(textbook(name, stages=stages, microbatches=microbatches))) == trimmed(triangle)


def test_orders_side_by_side_without_timing() -> None:
    assert trimmed(order_grid(textbook("1f1b", stages=2, microbatches=2))) == [
        "stage 0 | F0 F1 B0 B1",
        "stage 1 | F0 B0 F1 B1",
    ]


@pytest.mark.parametrize(("stages", "microbatches"), [(0, 1), (1, 0), (-1, 4)])
def test_refuses_sizes_that_make_no_pipeline(stages: int, microbatches: int) -> None:
    with pytest.raises(InvalidScheduleError, match="do not make a pipeline"):
        textbook("1f1b", stages=stages, microbatches=microbatches)


def test_refuses_an_unknown_name_and_says_the_known_ones() -> None:
    with pytest.raises(InvalidScheduleError, match=r"'1f2b' is not known \(known: 1f1b, gpipe, gpipe-fifo, "):
        textbook("1f2b", stages=2, microbatches=2)
