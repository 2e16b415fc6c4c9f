"""The cheapest timelines within a budget of changes: a toll for every change, raised until it is met."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import InfeasibleError
from perseus_ds.solver.beam.beam import beam
from perseus_ds.solver.beam.choices import places_within
from perseus_ds.solver.beam.guide import BAND, Guide, guide_at
from perseus_ds.solver.frontier import Frontier, bounds_at
from perseus_ds.solver.network import longest_seconds
from perseus_ds.solver.problem import Floats, Indices, Plans, Problem, blended, undominated
from perseus_ds.solver.timeline.allowance import Allowance, Rung
from perseus_ds.solver.timeline.freedom import freedom_of
from perseus_ds.solver.timeline.lanes import Lanes, leveled
from perseus_ds.solver.timeline.moments import AS_LONG, Timelines, best_moments, changes_of, shortest_holds_s
from perseus_ds.solver.timeline.outlook import COUNTED, outlook_of
from perseus_ds.solver.timeline.prices import Prices, packed, priced
from perseus_ds.solver.timeline.turns import least_turn
from perseus_ds.solver.timeline.uniform import one_level_each

FEWEST, MOST, ACTIVITIES = 24, 64, 50_000
"""Times that are searched at, as many as make so many activities; plans between them move their changes."""
NARROWEST, WIDEST = 16, 1024
"""Partial plans side by side, at least and at most."""
WORK, FIRST_WORK = 25_000, 400_000
"""Partial plans that one beam may continue, and one for the shortest time, whose plan most users run."""
LEANING, LEANINGS = 0.3, (0.1, 0.3, 1.0)
"""Shares of the strain that beams count; those for the shortest time try all."""
ROUNDS = 3
"""How often changes are moved again from where they came to."""
POLISHED = 3
"""How many of the best searches for the shortest time get their changes moved."""
TURNS, MOST_TURNS, TURN = 14, 28, 1.25
"""How often tolls are raised where lanes change too often, from none and in all; by how much."""
FACTORS = 0.7, 1.0, 1.5
"""Of these tolls, for the shortest time."""
FEWER = 0.7
"""Share of a rung's changes that prices are made for: the others keep lanes in step."""
LADDER = 400
"""Activities up to which stricter rungs are searched for the shortest time, not the budget's own alone."""
LARGE = 2_000
"""Activities from which on only the best of these searches is moved, and once."""
REACH = 3
"""For how many anchors from its own a search is made plans of."""
_NONE = 2**62


def timelines(
    problem: Problem,
    frontier: Frontier,
    times_s: Floats,
    lanes: Lanes,
    allowance: Allowance,
    *,
    least_part_s: float = 0.0,
) -> Plans:
    """Choose levels for every wanted time, with no more changes than allowed; drop plans that another beats.

    ``choice`` is what an activity begins at, ``other`` what it ends at. No part of one that is split is
    shorter than ``least_part_s``; with an infinite one none is.

    Raises:
        InfeasibleError: a wanted time below T_min, or no plan for any of them changes so seldom.
    Cost: a beam for each of some times, more where the toll has to be found, and a small frontier for each.
    """
    frontier.refuse_below(times_s)
    wanted_s = np.unique(np.asarray(times_s))
    anchors = _anchors(len(wanted_s), min(max(ACTIVITIES // len(problem), FEWEST), MOST))
    search = _TimelineSearch(frontier, lanes, allowance, least_part_s)
    found: list[Timelines] = []
    for number, anchor in enumerate(anchors.tolist()):
        until = anchors[min(number + REACH, len(anchors) - 1)] + 1
        found += search.plans(wanted_s[anchor:until], first=number == 0)
    if not found:
        raise InfeasibleError(search.complaint(), hint="allow more changes")
    choice, other, share = (np.concatenate(column) for column in zip(*found, strict=True))
    blends = (blended(problem, *some) for some in found)  # a few at a time: they fit in the cache
    duration_s, cost_j = (np.concatenate(column) for column in zip(*blends, strict=True))
    time_s = longest_seconds(problem, frontier.whole.graph, duration_s)
    kept = search.allowed(Timelines(choice, other, share), time_s)
    if not kept.any():
        raise InfeasibleError(search.complaint(), hint="allow more changes")
    rows = np.flatnonzero(kept).astype(np.int32)
    total_j = cost_j.sum(axis=1)
    best = rows[undominated(time_s[rows], total_j[rows])]
    within = np.searchsorted(time_s[best], wanted_s * AS_LONG, side="right") - 1
    best = best[np.unique(np.maximum(within, 0))]
    bound_j = bounds_at(frontier, np.maximum(time_s, frontier.t_min_s))
    return Plans(time_s, total_j, bound_j, choice, other, share).at(best)


def _anchors(times: int, most: int) -> Indices:
    """Some of the times, the first and the last among them."""
    return np.unique(np.linspace(0, times - 1, min(times, most)).round()).astype(np.int32)


class _TimelineSearch:
    """Plans for one time after another, each by itself."""

    def __init__(self, frontier: Frontier, lanes: Lanes, allowance: Allowance, least_part_s: float) -> None:
        self._frontier, self._lanes, self._allowance = frontier, lanes, allowance
        self._choices, self._levels = leveled(frontier.whole, lanes)
        self._packed = packed(lanes.orders)
        self._least_part_s = least_part_s
        tables, options = frontier.whole.problem.tables, self._choices.option
        self._place_of = np.full((len(tables), max(map(len, tables))), -1, np.int32)
        for activity, table in enumerate(frontier.whole.problem.table_of.tolist()):
            places = np.arange(self._choices.first[activity], self._choices.last[activity] + 1)
            self._place_of[table, options[places]] = places
        span_j = max(float(np.ptp(table.cost_j)) for table in frontier.whole.problem.tables)
        self._least_toll = 1e-3 * span_j
        self._width, self._widest = (
            min(max(work // len(self._choices.first), NARROWEST), WIDEST) for work in (WORK, FIRST_WORK)
        )
        self._fewest = _NONE
        self._raised = 0  # how often tolls were raised for the plan before

    def plans(self, times_s: Floats, *, first: bool) -> list[Timelines]:
        """Plans for the first time, moved to the others: of the budget's rung, and of stricter ones as well.

        What a stricter rung finds is allowed here too. Rungs are searched alike for every caller, and left
        out only where their bound proves that they find nothing better. So a budget never gets a worse plan
        than a stricter one. So it is for the shortest time of problems that are not large. Else the budget's
        own number of changes is searched, and rungs only where that finds nothing.
        """
        time_s = float(times_s[0])
        found = self._uniform(times_s[:1])
        least_j = min(map(self._cost_j, found), default=np.inf)
        asked = self._allowance.within(time_s, len(self._lanes))
        if asked.none:
            return found
        alone = not first or len(self._choices.first) > LADDER
        for rung in asked.from_itself() if alone else asked.down():
            own = self._priced(time_s, rung) if first else None
            if own is not None and own.bound >= least_j and found:
                break
            plans = self._searched(times_s, rung, own)
            least_j = min([least_j, *map(self._cost_j, plans)])
            found += plans
            if alone and plans:
                break
        return found

    def allowed(self, found: Timelines, time_s: Floats) -> NDArray[np.bool_]:
        """Which plans change no more often than they may, and hold every level long enough.

        Shape: ``time_s`` [plans], also returned.
        """
        changes = changes_of(self._frontier.whole.problem, self._lanes, found)
        few = [
            self._allowance.within(float(lasts_s), len(self._lanes)).allows(own)
            for own, lasts_s in zip(changes, time_s, strict=True)
        ]
        held = [not self._hurried(found.row(row)).any() for row in range(len(time_s))]
        return np.array(few, np.bool_) & np.array(held, np.bool_)

    def complaint(self) -> str:
        """Return how near a plan came to what is allowed."""
        if self._fewest == _NONE:
            return "no plan changes a clock so seldom, none was found at all"
        return f"no plan changes a clock so seldom: the least found is {self._fewest} in an iteration"

    def _priced(self, time_s: float, rung: Rung) -> Prices:
        whole, guide = self._frontier.whole, self._guide(time_s)
        flows, wanted = (guide.price, guide.toll), whole.within(time_s)
        return priced(whole, self._choices, self._levels, self._packed, rung, flows, wanted)

    def _searched(self, times_s: Floats, rung: Rung, own: Prices | None) -> list[Timelines]:
        """Search at prices of fewer changes, which leave some to keep in step.

        With the rung's own prices, for the shortest time, at those as well, and widely.
        """
        time_s, first = float(times_s[0]), own is not None
        tried: list[Indices | None] = []
        fewer = self._priced(time_s, rung.part(FEWER))
        for one in (fewer,) if own is None else (fewer, own):
            guide = self._follow(time_s, one)
            place, toll, most = self._at_least_tolls(rung, guide, one, first=first)
            tried.append(place)
            for leaning, factor in product(LEANINGS, FACTORS) if first else ():
                tried.append(self._tried(rung, guide, factor * toll, one.home, most, self._widest, leaning))
        found = list({place.tobytes(): place for place in tried if place is not None}.values())
        found.sort(key=lambda place: float(self._choices.cost[place].sum()))
        many = first and len(self._choices.first) < LARGE
        rounds, best = (ROUNDS, POLISHED) if many else (1, 1)
        return [one for place in found[:best] for one in self._moved(place, times_s, rung, rounds)]

    def _at_least_tolls(
        self, rung: Rung, guide: Guide, prices: Prices, *, first: bool
    ) -> tuple[Indices | None, Floats, int | None]:
        """Places of a plan, None where lanes change too often at all tolls; the last tolls and counts tried.

        Tolls begin as often raised as they were for the plan before: times next to each other need about the
        same. They begin at the prices' own for the shortest time. So they do where levels are held for a
        dwell, since a plan may hurry at higher tolls and not at lower ones.
        """

        def attempt(turn: int) -> tuple[Indices, Floats, int | None] | None:
            toll, most = self._raised_tolls(rung, prices.toll, turn)
            place = self._tried(rung, guide, toll, prices.home, most, self._width, LEANING)
            return None if place is None else (place, toll, most)

        anew = first or self._lanes.dwell_s > 0.0
        begin, turns = (0, TURNS) if anew else (self._raised, MOST_TURNS)
        found = least_turn(attempt, begin=begin, turns=turns)
        if found is None:
            return None, *self._raised_tolls(rung, prices.toll, turns)
        self._raised = self._raised if first else found[0]
        return found[1]

    def _raised_tolls(self, rung: Rung, toll: Floats, turns: int) -> tuple[Floats, int | None]:
        """Tolls after so many turns, and how many changes are counted then.

        Changes are counted after the first try where there is room for it; else tolls rise.
        """
        most = self._counted(rung) if turns else None
        if self._lanes.dwell_s > 0.0:  # haste is a multiple of it
            toll = np.maximum(toll, self._least_toll)
        for _ in range(turns if most is None else turns - 1):
            toll = TURN * np.maximum(toll, self._least_toll)
        return toll, most

    def _tried(  # noqa: PLR0917
        self,
        rung: Rung,
        guide: Guide,
        toll: Floats,
        home: Indices,
        most: int | None,
        width: int,
        leaning: float,
    ) -> Indices | None:
        """Places of a plan; None where a lane changes too often or too hurriedly."""
        whole, choices = self._frontier.whole, self._choices
        ahead = outlook_of(
            whole.problem.tables, choices, self._lanes, self._levels, guide.price, toll, home, most
        )
        place = beam(whole.graph, whole.delay, choices, guide, width, leaning, self._levels, ahead)
        one = self._whole(place)
        changes = changes_of(whole.problem, self._lanes, one)[0]
        self._fewest = min(self._fewest, int(changes.max()))
        return place if rung.allows(changes) and not self._hurried(one.row(0)).any() else None

    def _counted(self, rung: Rung) -> int | None:
        size = len(self._lanes) * max(map(len, self._lanes.orders)) * self._levels.place.shape[1]
        return rung.lane if rung.lane is not None and (rung.lane + 1) * size <= COUNTED else None

    def _hurried(self, one: Timelines) -> NDArray[np.bool_]:
        """Lanes that hold a level for less than the dwell.

        Shape: [lanes].
        """
        if self._lanes.dwell_s == 0.0:
            return np.zeros(len(self._lanes), np.bool_)
        return shortest_holds_s(self._frontier.whole, self._lanes, one) < self._lanes.dwell_s * (1.0 - 1e-9)

    def _moved(self, place: Indices, times_s: Floats, rung: Rung, rounds: int) -> list[Timelines]:
        """The plan as it was found, and with its changes at better moments for all times.

        The best of one round for the shortest time is where the next begins.
        """
        problem, found = self._frontier.whole.problem, [self._whole(place)]
        if np.isinf(self._least_part_s):
            return found
        ends, price = (place, place), self._guide(float(times_s[0])).price
        for _ in range(rounds):
            last = found[-1].first(1)
            spare = rung.spare(changes_of(problem, self._lanes, last)[0])
            freedom = freedom_of(self._choices, self._lanes, self._levels, ends, price=price, spare=spare)
            found.append(best_moments(self._frontier, freedom, times_s, least_part_s=self._least_part_s))
            begin, end = (option[0] for option in found[-1][:2])
            ends = self._place_of[problem.table_of, begin], self._place_of[problem.table_of, end]
        return found

    def _cost_j(self, one: Timelines) -> float:
        """What the first plan costs."""
        return float(blended(self._frontier.whole.problem, *one.first(1))[1].sum())

    def _guide(self, time_s: float) -> Guide:
        return guide_at(self._frontier, self._choices, time_s, self._frontier.whole.within(time_s))

    def _follow(self, time_s: float, prices: Prices) -> Guide:
        """The relaxed optimum's times, this rung's prices, and the places of both."""
        choices, guide = self._choices, self._guide(time_s)
        mean = places_within(choices, prices.mean)
        return guide._replace(
            price=prices.price,
            toll=prices.across,
            low=np.minimum(guide.low, np.maximum(choices.first, mean - BAND)),
            high=np.maximum(guide.high, np.minimum(choices.last, mean + 1 + BAND)),
        )

    def _whole(self, place: Indices) -> Timelines:
        """One plan without splits."""
        option = self._choices.option[place][None]
        return Timelines(option, option, np.ones(option.shape))

    def _uniform(self, times_s: Floats) -> list[Timelines]:
        whole = self._frontier.whole
        places = [
            one_level_each(whole, self._choices, self._lanes, self._levels, whole.within(float(time_s)))
            for time_s in times_s
        ]
        return [self._whole(place) for place in places if place is not None]
