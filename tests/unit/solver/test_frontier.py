"""The frontier of a few activities, by hand, and where plans stand on it."""

import numpy as np
import pytest
from textbook_gpu import textbook_profile

from perseus_ds.plan import build
from perseus_ds.plan.problem import Switching
from perseus_ds.schedule import textbook
from perseus_ds.solver import frontier as trails
from perseus_ds.solver.frontier import REACH, solve_frontier
from perseus_ds.solver.problem import OptionTable, Problem


def chain(length: int = 4) -> Problem:
    """Activities in a row, each 1 s or 2 s; what a second less costs is 1 W, 2 W, and so on."""
    tables = tuple(OptionTable(np.array([1.0, 2.0]), np.array([2.0 + which, 1.0])) for which in range(length))
    number = np.arange(length, dtype=np.int32)
    return Problem(tables, number, number[:-1], number[1:], np.zeros(length - 1))


def test_the_cheapest_second_goes_first() -> None:
    frontier = solve_frontier(chain())
    assert frontier.time_s.tolist() == [4.0, 5.0, 6.0, 7.0, 8.0]
    assert frontier.cost_j.tolist() == pytest.approx([14.0, 10.0, 7.0, 5.0, 4.0])
    assert frontier.price_w.tolist() == pytest.approx([4.0, 3.0, 2.0, 1.0])
    assert frontier.durations_at(6.5).tolist() == pytest.approx([1.0, 1.5, 2.0, 2.0])


def test_the_part_of_a_frontier_up_to_a_time_is_the_same_there() -> None:
    whole, part = solve_frontier(chain()), solve_frontier(chain(), until_s=5.5)
    assert part.time_s.tolist() == [4.0, 5.0, 6.0]
    for time_s in (4.0, 4.3, 5.0, 5.5):
        assert part.cost_at(time_s) == whole.cost_at(time_s)
        assert part.durations_at(time_s).tolist() == whole.durations_at(time_s).tolist()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8, 1.0, 1.2])
def test_a_sweep_that_ends_early_is_the_whole_ones_longer_part(share: float) -> None:
    problem = chain()
    whole = solve_frontier(problem)
    wanted_s = whole.t_min_s + share * (whole.t_star_s - whole.t_min_s)
    part = solve_frontier(problem, down_to_s=wanted_s)
    same = len(part)
    assert part.t_min_s == whole.t_min_s
    assert same == len(whole) or part.time_s[0] > part.t_min_s
    for name in ("time_s", "cost_j", "event", "flow"):
        np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[-same:])
    assert part.time_s[0] <= min(wanted_s, whole.t_star_s)
    assert same < 2 or part.time_s[1] >= wanted_s - 1e-9


@pytest.mark.parametrize("wanted_s", [[4.0], [5.2, 5.4], [6.0], [7.5, 4.5], [8.0, 9.0], [3.0, 5.0]])
def test_breakpoints_keep_snapshots_on_either_side_of_wanted_times_alone(wanted_s: list[float]) -> None:
    whole, part = solve_frontier(chain()), solve_frontier(chain(), around_s=np.array(wanted_s))
    np.testing.assert_array_equal(part.time_s, whole.time_s)
    assert len(part.kept) <= 3 * len(wanted_s) + 1 < len(whole.kept) + 3
    for time_s in np.clip(wanted_s, 4.0, 8.0):
        assert part.durations_at(time_s).tolist() == whole.durations_at(time_s).tolist()
        (left, _, share), (all_left, _, all_share) = part.bracket(time_s), whole.bracket(time_s)
        assert share == all_share
        np.testing.assert_array_equal(part.flow[left], whole.flow[all_left])


def test_a_sweep_to_shortly_before_the_least_time_ends_there_where_paths_tie() -> None:
    """At the least time a path has no arc left that could be shortened: no flow is sought there."""
    table, none = OptionTable(np.array([1.0, 1.5, 2.0]), np.array([4.0, 2.0, 1.0])), np.zeros(0, np.int32)
    beside = Problem((table,), np.zeros(3, np.int32), none, none, np.zeros(0))
    part = solve_frontier(beside, down_to_s=1.2)
    assert part.time_s.tolist() == [1.0, 1.5, 2.0]
    assert part.price_w.tolist() == pytest.approx([12.0, 6.0])


@pytest.mark.parametrize("rows", [3, 6, 20, 100])
def test_where_memory_is_short_fewer_snapshots_are_kept_and_those_are_the_same(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = solve_frontier(chain(50))
    monkeypatch.setattr(trails, "MEMORY", rows * 8 * (51 + 50))  # of a row: 51 nodes, 50 arcs
    part = solve_frontier(chain(50))
    np.testing.assert_array_equal(part.time_s, whole.time_s)
    assert {0, len(whole) - 1} <= set(part.kept.tolist())
    assert min(len(whole), rows) / 2 - 1 <= len(part.kept) <= min(len(whole), rows + 1)
    np.testing.assert_array_equal(part.event, whole.event[part.kept])
    np.testing.assert_array_equal(part.flow, whole.flow[part.kept])


# Where plans stand on a frontier.


@pytest.mark.thorough
@pytest.mark.parametrize(("split", "times"), [("automatic", 2.0), ("never", 2.1)])
def test_plans_stand_closest_where_the_cost_falls_most(split: str, times: float) -> None:
    """From one to the next by twice what a look-up may lose at most; evenly in time it were four times.

    Plans of whole clocks are found and not computed: one of them is 2.05 times above the next.
    """
    schedule = textbook("1f1b", stages=3, microbatches=4)
    profile = textbook_profile([1.0, 1.05, 1.2])
    plans = build(profile, schedule, blocking_power_w=60.0, switching=Switching(split=split))
    fall_j = -np.diff(plans.effective_energy_j)
    assert (fall_j <= times * REACH * plans.energy_j[1:]).all()
