"""A counter that moves in steps, read between them."""

import pytest

from perseus_ds.errors import IncompleteProfileError
from perseus_ds.profile import CounterTrace

TRACE = CounterTrace([1.0, 2.0, 4.0], [100.0, 200.0, 300.0])


@pytest.mark.parametrize(
    ("start_s", "end_s", "energy_j"),
    [(1.0, 4.0, 200.0), (1.5, 2.0, 50.0), (1.5, 3.0, 100.0), (2.0, 2.0, 0.0)],
)
def test_energy_is_interpolated_between_steps(start_s: float, end_s: float, energy_j: float) -> None:
    assert TRACE.energy_between(start_s, end_s) == pytest.approx(energy_j)


def test_parts_add_up() -> None:
    parts = TRACE.energy_between(1.2, 1.9) + TRACE.energy_between(1.9, 3.7)
    assert parts == pytest.approx(TRACE.energy_between(1.2, 3.7))


@pytest.mark.parametrize(("start_s", "end_s"), [(0.9, 2.0), (2.0, 4.1), (0.0, 9.0)])
def test_what_was_not_watched_is_refused(start_s: float, end_s: float) -> None:
    assert not TRACE.covers(start_s, end_s)
    with pytest.raises(IncompleteProfileError, match="3 times"):
        TRACE.energy_between(start_s, end_s)


@pytest.mark.parametrize("trace", [CounterTrace([], []), CounterTrace([1.0], [5.0])], ids=["none", "one"])
def test_a_counter_that_hardly_moved_covers_nothing(trace: CounterTrace) -> None:
    assert not trace.covers(1.0, 1.0)
    with pytest.raises(IncompleteProfileError):
        trace.energy_between(1.0, 1.0)
