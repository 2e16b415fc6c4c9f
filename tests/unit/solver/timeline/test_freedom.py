"""Which changes may move into an activity: first those that the price is most indifferent about."""

import numpy as np
import pytest

from perseus_ds.solver.network import whole_of
from perseus_ds.solver.prices import Lanes, leveled
from perseus_ds.solver.problem import Ints, OptionTable, Problem
from perseus_ds.solver.timeline import Freedom, freedom_of

TABLE = OptionTable(np.array([1.0, 2.0, 4.0]), np.array([9.0, 4.0, 1.0]))
LEVELS = np.array([0, 1, 2], dtype=np.int32)


def freed(
    option: list[int], *, price: list[float], spare: int, lanes: int = 1, end: list[int] | None = None
) -> Freedom:
    """Activities of one table in lanes of the same length; prices are per second."""
    count = len(option)
    every = np.arange(count, dtype=np.int32)
    none = np.zeros(0, np.int32)
    whole = whole_of(Problem((TABLE,), np.zeros(count, np.int32), none, none, np.zeros(0)))
    own = Lanes(tuple(np.split(every, lanes)), (LEVELS,))
    choices, levels = leveled(whole, own)
    places = tuple(np.array(at, np.int32) for at in (option, option if end is None else end))
    per_tick = np.array(price) * float(whole.tick.real(np.array(1)))
    left: Ints = np.full(lanes, spare)
    return freedom_of(choices, own, levels, places, price=per_tick, spare=left)


def options(freedom: Freedom) -> list[tuple[int, int]]:
    return list(zip(*(column.tolist() for column in freedom), strict=True))


@pytest.mark.parametrize(
    ("price", "expected"),
    [
        ([5.0, 4.0, 4.0], [(0, 1), (1, 1), (1, 1)]),  # at 5 a second both options are worth the same
        ([4.0, 5.0, 4.0], [(0, 0), (0, 1), (1, 1)]),
    ],
)
def test_a_change_falls_into_the_neighbour_that_is_more_indifferent(
    price: list[float], expected: list[tuple[int, int]]
) -> None:
    assert options(freed([0, 1, 1], price=price, spare=0)) == expected


@pytest.mark.parametrize(
    ("spare", "expected"), [(0, [(1, 1)] * 3), (1, [(1, 1)] * 3), (2, [(1, 0), (1, 1), (1, 1)])]
)
def test_where_a_lane_has_changes_to_spare_one_goes_on_beside_its_own_level(
    spare: int, expected: list[tuple[int, int]]
) -> None:
    """There and back are two changes; the last activity of a lane makes none into the next iteration."""
    assert options(freed([1, 1, 1], price=[5.0, 6.0, 5.0], spare=spare)) == expected


def test_the_level_beside_is_the_one_that_the_price_is_nearer_to() -> None:
    assert options(freed([1, 1], price=[1.5, 9.0], spare=2))[0] == (1, 2)


def test_what_is_split_stays_so() -> None:
    assert options(freed([0, 1, 1], price=[5.0] * 3, spare=9, end=[0, 2, 1]))[1] == (1, 2)


def test_a_boundary_is_taken_once() -> None:
    """The first could take the change behind it, the second the same one."""
    freedom = freed([0, 1], price=[5.0, 5.0], spare=0)
    assert sum(begin != end for begin, end in options(freedom)) == 1


def test_lanes_share_nothing() -> None:
    """Each moves its own change, though one ends where the next begins."""
    freedom = freed([0, 1, 1, 0], price=[5.0] * 4, spare=0, lanes=2)
    assert options(freedom) == [(0, 1), (1, 1), (1, 0), (0, 0)]
