"""The frontier of a few activities, by hand, where plans stand on it, refused problems, whole ticks."""

import numpy as np
import pytest
from textbook_gpu import textbook_profile

from perseus_ds.errors import InfeasibleError, SolverError
from perseus_ds.plan import build
from perseus_ds.plan.problem import Switching
from perseus_ds.schedule import dag_of, textbook
from perseus_ds.solver import frontier as trails
from perseus_ds.solver.discretise import discretise
from perseus_ds.solver.frontier import REACH, solve_frontier
from perseus_ds.solver.network import LARGEST, LONGEST, network_of, unit_for, whole_of
from perseus_ds.solver.problem import OptionTable, Problem
from perseus_ds.solver.sweep import HIGH, HIGHEST, room_for, start_of, sweep


def chain(length: int = 4) -> Problem:
    """Activities in a row, each 1 s or 2 s; what a second less costs is 1 W, 2 W, and so on."""
    tables = tuple(OptionTable(np.array([1.0, 2.0]), np.array([2.0 + which, 1.0])) for which in range(length))
    number = np.arange(length, dtype=np.int32)
    return Problem(tables, number, number[:-1], number[1:], np.zeros(length - 1))


def test_the_cheapest_second_goes_first_and_the_part_up_to_a_time_is_the_same() -> None:
    frontier = solve_frontier(chain())
    assert frontier.time_s.tolist() == [4.0, 5.0, 6.0, 7.0, 8.0]
    assert frontier.cost_j.tolist() == pytest.approx([14.0, 10.0, 7.0, 5.0, 4.0])
    assert frontier.price_w.tolist() == pytest.approx([4.0, 3.0, 2.0, 1.0])
    assert frontier.durations_at(6.5).tolist() == pytest.approx([1.0, 1.5, 2.0, 2.0])
    whole, part = solve_frontier(chain()), solve_frontier(chain(), until_s=5.5)
    assert part.time_s.tolist() == [4.0, 5.0, 6.0]
    assert part.cost_j.tolist() == whole.cost_j[:3].tolist()
    for time_s in (4.0, 4.3, 5.0, 5.5):
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
def test_where_memory_is_short_fewer_snapshots_are_kept(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
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


# Problems of one table: the least that there is to solve, and what is refused.

QUICK_OR_CHEAP = OptionTable(np.array([1.0, 2.0]), np.array([5.0, 1.0]))


def problem(
    count: int, pairs: list[tuple[int, int]], table: OptionTable = QUICK_OR_CHEAP, delay_s: float = 0.0
) -> Problem:
    before, after = np.array(pairs, dtype=np.int32).reshape(-1, 2).T
    return Problem((table,), np.zeros(count, dtype=np.int32), before, after, np.full(len(pairs), delay_s))


def test_two_share_the_time_one_option_leaves_no_choice_and_dominated_ones_are_never_chosen() -> None:
    frontier = solve_frontier(problem(2, [(0, 1)], delay_s=0.5))
    assert (frontier.t_min_s, frontier.t_star_s) == (2.5, 4.5)
    assert frontier.durations_at(3.5).sum() == pytest.approx(3.0)
    frontier = solve_frontier(problem(2, [(0, 1)], OptionTable(np.array([1.0]), np.array([3.0]))))
    assert frontier.time_s.tolist() == [2.0]
    assert frontier.cost_j.tolist() == [6.0]
    one = problem(1, [], OptionTable(np.array([3.0, 1.0, 2.0]), np.array([9.0, 1.0, 5.0])))
    assert discretise(solve_frontier(one), np.array([3.0])).choice.tolist() == [[1]]
    heard: list[float] = []
    solve_frontier(problem(3, [(0, 1), (1, 2)]), progress=heard.append)
    assert heard[-1] == 1.0


def test_a_cycle_is_walked_in_the_message_and_too_early_a_deadline_says_t_min() -> None:
    with pytest.raises(SolverError, match=" -> ".join("0120")):
        solve_frontier(problem(3, [(0, 1), (1, 2), (2, 0)]))
    with pytest.raises(InfeasibleError, match=r"\b1 s"):
        discretise(solve_frontier(problem(1, [])), np.array([0.9]))


@pytest.mark.parametrize(
    ("duration_s", "cost_j", "said"),
    [
        ([], [], "empty"),
        ([np.nan], [1.0], "duration 0"),
        ([1.0, -1.0], [1.0, 2.0], "duration 1"),
        ([1.0], [np.inf], "cost 0"),
        ([1.0, 2.0], [1.0], "one length"),
    ],
)
def test_a_bad_table_is_named(duration_s: list[float], cost_j: list[float], said: str) -> None:
    with pytest.raises(SolverError, match=said):
        OptionTable(np.array(duration_s), np.array(cost_j))


def test_a_bad_problem_is_named_and_durations_that_no_scale_holds_with_the_limit() -> None:
    with pytest.raises(SolverError, match="no activities"):
        problem(0, [])
    with pytest.raises(SolverError, match=r"before.* 5"):
        problem(1, [(5, 0)])
    with pytest.raises(SolverError, match=r"delay.* -1"):
        problem(2, [(0, 1)], delay_s=-1.0)
    with pytest.raises(SolverError, match="limit"):
        solve_frontier(problem(1, [], OptionTable(np.array([1e-9, 1e9]), np.array([1.0, 0.0]))))


# A problem in whole ticks, and the levels of its nodes.

ONE_OR_TWO = OptionTable(np.array([1.0, 2.0]), np.array([4.0, 1.0]))


def test_a_time_is_kept_to_the_tick_and_none_is_given_away() -> None:
    """A float says a time more finely than a tick (1e-14 s) does: the nearest tick may lie beyond it."""
    none = np.zeros(0, dtype=np.int32)
    whole = whole_of(Problem((ONE_OR_TWO,), np.zeros(1, dtype=np.int32), none, none, np.zeros(0)))
    for time_s in np.random.default_rng(1).uniform(1.1, 1.9, 200).tolist():
        kept_s, beyond_s = whole.tick.real(np.array([0, 1]) + whole.within(time_s))
        assert kept_s <= time_s < beyond_s
    chain = np.array([0, 1], dtype=np.int32), np.array([1, 2], dtype=np.int32)
    whole = whole_of(Problem((ONE_OR_TWO,), np.zeros(3, dtype=np.int32), *chain, np.array([0.1, 0.2])))
    assert whole.within(3.3 * (1.0 - 1e-15)) == whole.longest(whole.fastest), "the shortest time"


@pytest.mark.parametrize(("total", "digits"), [(1.0, 15), (100.0, 15), (1e6, 12), (9e9, 8)])
def test_a_unit_leaves_room_for_the_longest_path(total: float, digits: int) -> None:
    """One value below 10**15 units, and all of them one after the other below 2**61 = 2.3 * 10**18."""
    unit = unit_for("durations", np.array([1.0, 0.5]), total=total)
    assert unit.digits == digits
    assert unit.whole(np.array(1.0)) <= LARGEST
    assert total * 10**digits <= LONGEST


# Levels of nodes begin anew where they would outgrow their field.


def pipeline(stages: int, microbatches: int) -> Problem:
    """A pipeline of like stages, whose paths tie."""
    dag = dag_of(textbook("1f1b", stages=stages, microbatches=microbatches))
    table = OptionTable(np.array([1.0, 1.2, 1.5]), np.array([9.0, 6.0, 5.0]))
    before, after = np.array(dag.edges, np.int32).T
    return Problem((table,), np.zeros(len(dag.nodes), np.int32), before, after, np.zeros(len(before)))


def swept(ground: int) -> tuple[list[list[int]], int]:
    whole = whole_of(pipeline(3, 4))
    network, _ = network_of(whole)
    state, found = start_of(whole, network), room_for(64, network)
    state.tally[HIGH] = ground
    many = sweep(state, whole.longest(whole.fastest), found, 1, 1)
    assert 0 < many < len(found.total)
    return [column[:many].tolist() for column in found], int(state.tally[HIGH])


@pytest.mark.parametrize("below", [0, 5, 40])
def test_levels_that_would_outgrow_their_field_begin_anew(below: int) -> None:
    anew, ground = swept(HIGHEST - below)
    assert anew == swept(0)[0]
    assert 0 < ground < HIGHEST // 2
