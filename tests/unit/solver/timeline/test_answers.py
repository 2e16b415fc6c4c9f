"""The cheapest answer of a lane to prices and a toll, beside all answers tried; flow by length of path."""

from itertools import pairwise, product

import numpy as np
import pytest

from perseus_ds.solver.beam import Choices, Levels
from perseus_ds.solver.compiled import compiled
from perseus_ds.solver.network import Graph, Whole, whole_of
from perseus_ds.solver.prices import (
    Lanes,
    LaneTable,
    Rung,
    Spread,
    follow,
    leveled,
    look_back,
    packed,
    priced,
    spread_out,
)
from perseus_ds.solver.problem import Floats, Indices, Ints, OptionTable, Problem

COUNT = 4


def a_row(seed: int) -> tuple[Whole, Lanes, Choices, Levels]:
    """Four activities of two tables in one lane, three levels."""
    draw = np.random.default_rng(seed)
    tables = tuple(
        OptionTable(np.array([1.0, 2.0, 4.0]), np.array([9.0, 4.0, 1.0]) * (1.0 + draw.random()))
        for _ in range(2)
    )
    every = np.arange(COUNT, dtype=np.int32)
    problem = Problem(tables, every % 2, every[:-1], every[1:], np.zeros(COUNT - 1))
    whole = whole_of(problem)
    lanes = Lanes((every,), (np.arange(3, dtype=np.int32),) * 2)
    return whole, lanes, *leveled(whole, lanes)


@compiled
def answered(lane: LaneTable, price: Floats, toll: float, home: int, duration: Floats) -> float:
    """Look back, then follow."""
    look_back(lane, price, toll, home)
    return follow(lane, home, duration)


@compiled
def spread_over(graph: Graph, delay: Ints, duration: Floats, sharp: float, found: Spread) -> int:
    """As the game calls it."""
    spread_out(graph, delay, duration, sharp, found)
    return 0


@pytest.mark.parametrize("seed", range(3))
def test_no_row_of_levels_is_cheaper_than_the_answer(seed: int) -> None:
    whole, lanes, choices, levels = a_row(seed)
    draw = np.random.default_rng(seed)
    price, toll, home = draw.random(COUNT) * 4.0 / float(whole.tick.whole(np.array(1.0))), draw.random(), 1
    lane = LaneTable(
        lanes.orders[0], choices, levels, np.empty((COUNT + 1, 3)), np.empty((COUNT, 3), np.int32)
    )
    duration = np.zeros(COUNT)
    changes = answered(lane, price, toll, home, duration)

    def cost(row: Indices) -> float:
        place = levels.place[levels.table, row]
        moved = sum(a != b for a, b in pairwise([home, *row, home]))
        return float((choices.cost[place] + price * choices.length[place]).sum() + toll * moved)

    rows = [np.array(row, np.int32) for row in product(range(3), repeat=COUNT)]
    best = min(rows, key=cost)
    assert lane.ahead[0, home] == pytest.approx(cost(best))
    assert changes == sum(a != b for a, b in pairwise([home, *best, home]))
    assert duration.tolist() == choices.length[levels.place[levels.table, best]].tolist()


def test_flow_prefers_the_longer_path_by_the_exponential_of_its_length() -> None:
    """Two side by side between a first and a last: by 1 s the longer at sharpness ln 3, three quarters."""
    table = OptionTable(np.array([1.0]), np.array([0.0]))
    problem = Problem(
        (table,), np.zeros(4, np.int32), np.array([0, 0, 1, 2]), np.array([1, 2, 3, 3]), np.zeros(4)
    )
    whole = whole_of(problem)
    found = Spread(np.empty(4), np.empty(4), np.empty(4))
    spread_over(whole.graph, whole.delay, np.array([1.0, 2.0, 1.0, 1.0]), float(np.log(3.0)), found)
    assert found.through.tolist() == pytest.approx([1.0, 0.75, 0.25, 1.0])
    assert found.over.tolist() == pytest.approx([0.75, 0.25, 0.75, 0.25])


def test_the_bound_of_a_rung_is_below_every_plan_that_it_allows() -> None:
    whole, lanes, choices, levels = a_row(0)
    wanted = whole.within(9.0)
    flat = np.full(COUNT, 3.0 / float(whole.tick.whole(np.array(1.0))))
    for most in (1, 2, 3):
        rung = Rung(most, None, np.zeros(1, np.int32))
        found = priced(whole, choices, levels, packed(lanes.orders), rung, (flat, flat[1:]), wanted)
        costs = []
        for row in product(range(3), repeat=COUNT):
            place = levels.place[levels.table, np.array(row)]
            changes = sum(a != b for a, b in pairwise([row[-1], *row]))
            if changes <= most and choices.length[place].sum() <= wanted:
                costs.append(float(choices.cost[place].sum()))
        assert found.bound <= min(costs) + 1e-9
        assert found.bound > 0.5 * min(costs)


def test_prices_are_the_same_whatever_stood_in_memory_before() -> None:
    """Arrays of the same size are full of what is no number, and are freed, before prices are asked for."""
    whole, lanes, choices, levels = a_row(0)
    rung, wanted = Rung(2, None, np.zeros(1, np.int32)), whole.within(9.0)
    flat = np.full(COUNT, 3.0 / float(whole.tick.whole(np.array(1.0))))
    for _ in range(3):
        soiled = [np.full(COUNT, np.nan) for _ in range(50)]
        del soiled
        found = priced(whole, choices, levels, packed(lanes.orders), rung, (flat, flat[1:]), wanted)
        assert np.isfinite(found.price).all()
        assert (found.mean > 0).all()
