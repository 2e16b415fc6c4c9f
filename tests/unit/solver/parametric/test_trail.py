"""Breakpoints of a sweep: which keep a snapshot, and that snapshots are in memory once."""

import numpy as np
import pytest

from perseus_ds.solver import frontier
from perseus_ds.solver.frontier import Trail
from perseus_ds.solver.network import network_of, whole_of
from perseus_ds.solver.problem import OptionTable, Problem
from perseus_ds.solver.sweep import Breakpoints, start_of

EVERY = [100, 90, 80, 70, 60, 50, 40]


def stretch(totals: list[int]) -> Breakpoints:
    """Breakpoints of a network with two events and one arc; each row has its own total."""
    total = np.array(totals, np.int64)
    return Breakpoints(total, 200 - total, np.column_stack((0 * total, total)), total[:, None].copy())


def trail(until: int) -> Trail:
    table = OptionTable(np.array([1.0, 2.0]), np.array([4.0, 1.0]))
    none = np.zeros(0, np.int32)
    whole = whole_of(Problem((table,), np.zeros(1, np.int32), none, none, np.zeros(0)))
    network, _ = network_of(whole)
    return Trail(lambda shorter, _: shorter < until, start_of(whole, network))


@pytest.mark.parametrize("cut", [0, 1, 3, 6])
@pytest.mark.parametrize(("until", "kept"), [(1000, [1, 2, 3, 4, 5, 6, 7]), (75, [3, 4, 5, 6, 7]), (0, [7])])
def test_beyond_the_wanted_time_only_the_last_is_kept_however_stretches_fall(
    until: int, kept: list[int], cut: int
) -> None:
    found = trail(until)
    for totals in filter(None, (EVERY[:cut], EVERY[cut:])):
        found.add(stretch(totals), len(totals))
    assert found.total[1:] == EVERY
    assert [number for number in found.kept if number] == kept
    event, flow = found.snapshots()
    assert event[: len(kept), 1].tolist() == flow[: len(kept), 0].tolist() == EVERY[::-1][: len(kept)]


@pytest.mark.parametrize(("rows", "copied"), [(10, False), (1000, True)])
def test_a_stretch_may_be_written_anew_and_few_snapshots_do_not_hold_all_the_memory(
    rows: int,
    copied: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frontier, "MEMORY", 24 * rows)
    found, written = trail(1000), stretch(EVERY)
    found.add(written, len(EVERY))
    written.event[:], written.flow[:] = -1, -1
    event, flow = found.snapshots()
    assert flow[:-1, 0].tolist() == EVERY[::-1]
    assert (event.base is None, flow.base is None) == (copied, copied)


def test_where_snapshots_would_fill_the_memory_every_second_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontier, "MEMORY", 24 * 5)
    found, rows = trail(1000), stretch(EVERY)
    found.add(rows, len(EVERY))
    assert found.kept == [0, 2, 4, 6, 7]
    assert found.snapshots()[1][:4, 0].tolist() == [40, 50, 70, 90]
