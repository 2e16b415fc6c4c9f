"""From durations to real options: for every wanted time a plan that keeps it, with its certified bound."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from perseus_ds.solver.beam.beam import beam
from perseus_ds.solver.beam.choices import Choices, choices_of
from perseus_ds.solver.beam.guide import guide_at
from perseus_ds.solver.beam.splice import Plan, convex, plan_of, spliced
from perseus_ds.solver.frontier import Frontier, bounds_at
from perseus_ds.solver.problem import Floats, Plans, Problem, blended, undominated

BEAMS, ACTIVITIES = 192, 50_000
"""Times at most that get a beam of their own, more where they make so many activities; others are spliced."""
WORK = 12_000_000
"""Partial plans that all beams together may continue, apart from what the narrowest take anyway."""
NARROWEST, WIDEST = 32, 2048
"""Partial plans that a beam keeps side by side."""
FEW = 32
"""Fewer times than that do not get wider beams."""
FIRST = 24
"""How much wider the beam for the shortest time is: that plan costs no speed, so most users run it."""
LEANING = 0.1, 0.2
"""Shares of the strain that beams count, in turn: neighbours on the frontier that search differently."""


def discretise(problem: Problem, frontier: Frontier, times_s: Floats) -> Plans:
    """Choose an option for every activity and every wanted time; drop plans that another beats.

    Raises:
        InfeasibleError: a wanted time below T_min.
    Cost: a beam for each of some times, a splice for each time.
    """
    frontier.refuse_below(times_s)
    choices = choices_of(frontier.whole)
    wanted_s = np.sort(np.asarray(times_s))
    searched = _searched(frontier, choices, wanted_s)
    plans = searched + list(_between(frontier, choices, convex(searched), wanted_s))
    time_s = frontier.whole.tick.real(np.array([plan.ticks for plan in plans], dtype=np.int64))
    places = np.array([plan.place for plan in plans], dtype=np.int32).reshape(len(plans), len(problem))
    choice = choices.option[places]
    share = np.ones(choice.shape)
    cost_j = blended(problem, choice, choice, share)[1].sum(axis=1)
    best = undominated(time_s, cost_j)
    return Plans(time_s, cost_j, bounds_at(frontier, time_s), choice, choice, share).at(best)


def _searched(frontier: Frontier, choices: Choices, wanted_s: Floats) -> list[Plan]:
    """Search with a beam at some of the times, the first and the last among them."""
    whole = frontier.whole
    count = min(len(wanted_s), max(BEAMS, ACTIVITIES // len(whole.problem)))
    chosen = np.unique(np.linspace(0, len(wanted_s) - 1, count).round().astype(np.int64))
    width = max(WORK // (max(len(chosen), FEW) * len(whole.problem)), NARROWEST)

    def searched(number: int) -> Plan:
        time_s = float(wanted_s[chosen[number]])
        guide = guide_at(frontier, choices, time_s, frontier.whole.within(time_s))
        wide = min(width if number else FIRST * width, WIDEST)
        leaning = LEANING[(number + 1) % len(LEANING)]
        return plan_of(whole, choices, beam(whole.graph, whole.delay, choices, guide, wide, leaning))

    with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as threads:
        return list(threads.map(searched, range(len(chosen))))


def _between(frontier: Frontier, choices: Choices, corners: list[Plan], wanted_s: Floats) -> Iterator[Plan]:
    """For every wanted time a splice."""
    whole = frontier.whole
    for time_s in wanted_s:
        wanted = whole.within(float(time_s))
        order = guide_at(frontier, choices, float(time_s), wanted).order
        yield spliced(whole, choices, order, corners, wanted)
