import pytest
from schedules import grid

from perseus_ds.errors import ScheduleError
from perseus_ds.schedule import Kind, order_grid, textbook

# Checked by eye against figure 4 of arXiv 2006.09503 (1F1B), figure 2 of arXiv 1811.06965 (GPipe), figure 3
# of arXiv 2401.10241 (ZB-H1), with all computations of one length. Where a rank holds several stages, a cell
# says which: 2F0 is stage 2's F of microbatch 0. Orders that torch has are held against its own: tests/e2e.
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

GPIPE_FIFO = """
stage 0 | F0 F1 F2 .  .  .  .  B0 B1 B2
stage 1 | .  F0 F1 F2 .  .  B0 B1 B2 .
stage 2 | .  .  F0 F1 F2 B0 B1 B2 .  .
"""

# Stage s owes s weight gradients at most, and pays them back in the bubble at the end.
ZB_H1 = """
stage 0 | F0 F1 F2 F3 .  .  .  B0 F4 B1 F5 B2 .  B3 .  B4 .  B5 .
stage 1 | .  F0 F1 F2 .  .  I0 F3 B1 F4 B2 F5 I3 W0 I4 W3 I5 W4 W5
stage 2 | .  .  F0 F1 .  I0 F2 I1 F3 B2 F4 B3 F5 I4 W0 I5 W1 W4 W5
stage 3 | .  .  .  F0 I0 F1 I1 F2 I2 F3 B3 F4 B4 F5 I5 W0 W1 W2 W5
"""

DUALPIPE_V_WHOLE = """
rank 0 | 0F0 0F1 0F2 3F0 3B0 3F1 0F3 3B1 3F2 0B0 0F4 3B2 3F3 0B1 3B3 .   3F4 0B2 3B4 0B3 .   0B4
rank 1 | .   1F0 2F0 1F1 2F1 1F2 2B0 2F2 1B0 1F3 2B1 2F3 1B1 1F4 2B2 2F4 1B2 2B3 1B3 2B4 1B4 .
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
        ("gpipe-fifo", 3, 3, GPIPE_FIFO),
        ("zb-h1", 4, 6, ZB_H1),
        ("dualpipe-v-whole", 4, 5, DUALPIPE_V_WHOLE),
    ],
)
def test_triangle(name: str, stages: int, microbatches: int, triangle: str) -> None:
    chunks = 1 if triangle.lstrip().startswith("stage") else 2
    schedule = textbook(name, stages=stages, microbatches=microbatches, chunks=chunks)
    assert trimmed(grid(schedule)) == trimmed(triangle)


def test_orders_side_by_side_without_timing() -> None:
    assert trimmed(order_grid(textbook("1f1b", stages=2, microbatches=2))) == [
        "stage 0 | F0 F1 B0 B1",
        "stage 1 | F0 B0 F1 B1",
    ]


@pytest.mark.parametrize(
    ("name", "sizes", "why"),
    [
        ("interleaved", {"stages": 5, "chunks": 2}, "5 stages do not fill"),
        ("1f1b", {"stages": 4, "chunks": 2}, "2 chunks"),
        ("zbv", {"stages": 6, "chunks": 3}, r"3 chunks.*it has 2"),
        ("dualpipe-v", {"stages": 8}, "needs 8 microbatches"),
        ("gpipe", {"stages": 2, "group": 2}, "no groups"),
        ("1f1b", {"stages": 0}, "do not make a pipeline"),
        ("1f1b", {"stages": 1, "microbatches": 0}, "do not make a pipeline"),
        ("interleaved", {"stages": 2, "group": 0}, "do not make a pipeline"),
        ("1f2b", {"stages": 2}, r"'1f2b'.*1f1b, gpipe"),
    ],
)
def test_refuses_what_no_order_can_run(name: str, sizes: dict[str, int], why: str) -> None:
    with pytest.raises(ScheduleError, match=why):
        textbook(name, **({"microbatches": 4} | sizes))


@pytest.mark.parametrize("ranks", range(1, 9))
def test_zero_bubble_h1_owes_no_more_than_its_rank(ranks: int) -> None:
    """Source: arXiv 2401.10241, section 2.2: the memory of 1F1B."""
    for rank, order in enumerate(textbook("zb-h1", stages=ranks, microbatches=3 * ranks).orders):
        owed = [0]
        for instruction in order:
            step = {Kind.BACKWARD_INPUT: 1, Kind.BACKWARD_WEIGHT: -1}.get(instruction.kind, 0)
            owed.append(owed[-1] + step)
        assert max(owed) <= rank + 1
        assert owed[-1] == 0


@pytest.mark.parametrize("ranks", range(2, 9))
def test_zbv_has_no_bubble_but_the_triangles_at_both_ends(ranks: int) -> None:
    """Source: arXiv 2401.10241, section 6: with F, I and W equal, idle steps are those of the V's ends."""
    microbatches = 3 * ranks
    lines = grid(textbook("zbv", stages=2 * ranks, microbatches=microbatches)).splitlines()
    for rank, line in enumerate(lines):
        cells = line.partition("|")[2].split()
        busy = [place for place, cell in enumerate(cells) if cell != "."]
        assert busy[0] == rank
        assert busy == list(range(busy[0], busy[0] + 6 * microbatches))
