"""The dynamic program over the rows that matter: partial choices, pruned by what they must still cost."""
# ruff: noqa: PLR0917 - flat arrays by position: compiled code takes no records of arrays

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.kernels.choose.rest import Curve, cost_of, curve_from, steps_of
from perseus_ds.solver.compiling.compiled import allocating, compiled, inner
from perseus_ds.solver.problem import Floats, Ints

FEWEST_STATES, WIDER = 256, 8


class Departures(NamedTuple):
    """Where the best choice departs from the base, and how far it may be from the best there is.

    Shape: ``row``, ``option`` [departures].
    """

    row: Ints
    option: Ints
    gap_j: float


class _States(NamedTuple):
    """Partial choices of one layer: time and cost above the base, the state before, the option taken.

    Shape: [states]; ``via`` is -1 where the row keeps its base.
    """

    longer_s: Floats
    cost_j: Floats
    parent: Ints
    via: Ints


def expand(
    longer_s: Floats, reduced_j: Floats, price_w: float, slack_s: float, tolerance_j: float, most_states: int
) -> Departures:
    """Find the choice of least reduced cost plus price of the time left unused.

    ``longer_s`` is an option's time above that of its row's base, ``slack_s`` the time that the base leaves.
    A few states side by side find a good choice soon. With its cost for a limit, wider searches prove it or
    find a better one.

    Shape: ``longer_s``, ``reduced_j`` [rows, options].
    Cost: rows that matter x states x their options; states are at most ``most_states``.
    """
    none = np.empty(0, dtype=np.int64)
    limit_j, states = price_w * slack_s, FEWEST_STATES
    found = Departures(none, none, limit_j)
    while True:
        states = min(states, most_states)
        row, option, spans = _that_matter(longer_s, reduced_j, limit_j)
        taken, limit_j, proven_j = _search(
            spans,
            longer_s[row, option],
            reduced_j[row, option],
            price_w,
            slack_s,
            limit_j,
            tolerance_j,
            states,
        )
        if len(taken):
            found = Departures(row[taken], option[taken], 0.0)
        if proven_j >= limit_j or states == most_states:
            return found._replace(gap_j=max(0.0, limit_j - proven_j))
        states *= WIDER


def _that_matter(longer_s: Floats, reduced_j: Floats, limit_j: float) -> tuple[Ints, Ints, Ints]:
    """Rows and options cheap enough, and each row's span: the greatest first, so that the small fill up.

    Shape: two vectors [options that matter]; spans [rows that matter, 2].
    """
    row, option = np.nonzero((reduced_j < limit_j) & ((longer_s != 0.0) | (reduced_j > 0.0)))
    if not len(row):
        return row, option, np.empty((0, 2), dtype=np.int64)
    by_row = np.lexsort((reduced_j[row, option], row))
    row, option = row[by_row], option[by_row]
    first = np.unique(row, return_index=True)[1]
    spans = np.stack((first, np.append(first[1:], len(row))), axis=1)
    greatest_s = np.maximum.reduceat(np.abs(longer_s[row, option]), first)
    return row, option, spans[np.argsort(-greatest_s, kind="stable")]


@compiled
def _search(
    spans: Ints,
    longer_s: Floats,
    reduced_j: Floats,
    price_w: float,
    slack_s: float,
    limit_j: float,
    tolerance_j: float,
    most_states: int,
) -> tuple[Ints, float, float]:
    """Decide row after row; return the options taken, their cost, and what is proven to be the least."""
    slower = steps_of(spans, longer_s, reduced_j, 1.0)
    faster = steps_of(spans, longer_s, reduced_j, -1.0)
    nothing = np.zeros(1, dtype=np.int64)
    layers = [_States(np.zeros(1), np.zeros(1), nothing, nothing - 1)]
    best_j, best_layer, best_state, proven_j = limit_j, 0, 0, np.inf
    for layer in range(len(spans)):
        more, less = curve_from(slower, layer + 1, price_w), curve_from(faster, layer + 1, np.inf)
        next_ = _followers(layers[layer], spans[layer], longer_s, reduced_j, best_j - tolerance_j)
        left_s = slack_s - next_.longer_s
        total_j = next_.cost_j + price_w * left_s
        for state in range(len(left_s)):
            if left_s[state] >= 0.0 and next_.via[state] >= 0 and total_j[state] < best_j:
                best_j, best_layer, best_state = total_j[state], layer + 1, state
        least_j = np.empty(len(left_s))
        for state in range(len(left_s)):
            least_j[state] = next_.cost_j[state] + _rest(more, less, left_s[state], price_w)
        keep = _undominated(next_, least_j, price_w, best_j - tolerance_j)
        if len(keep) > most_states:
            by_least = keep[np.argsort(least_j[keep])]
            proven_j = min(proven_j, least_j[by_least[most_states]])
            keep = np.sort(by_least[:most_states])
        if best_layer == layer + 1:
            keep, best_state = _with(keep, best_state)
        layers.append(_States(next_.longer_s[keep], next_.cost_j[keep], next_.parent[keep], next_.via[keep]))
    return _walk_back(layers, best_layer, best_state), best_j, min(best_j, proven_j)


@inner
def _rest(more: Curve, less: Curve, left_s: float, price_w: float) -> float:
    """The least that the rows to come add: time left is used up or paid for, time lacking made up."""
    return cost_of(more, left_s, price_w) if left_s >= 0.0 else cost_of(less, -left_s, np.inf)


@allocating
def _followers(states: _States, span: Ints, longer_s: Floats, reduced_j: Floats, limit_j: float) -> _States:
    """Every state with the row's base or one of its options, in ascending time."""
    most = len(states.cost_j) * (span[1] - span[0] + 1)
    time, cost = np.empty(most), np.empty(most)
    parent, via = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
    count = 0
    for state in range(len(states.cost_j)):
        for one in range(span[0] - 1, span[1]):
            extra_j = 0.0 if one < span[0] else reduced_j[one]
            if states.cost_j[state] + extra_j >= limit_j:
                break
            time[count] = states.longer_s[state] + (0.0 if one < span[0] else longer_s[one])
            cost[count] = states.cost_j[state] + extra_j
            parent[count], via[count] = state, -1 if one < span[0] else one
            count += 1
    order = np.argsort(time[:count])
    return _States(time[order], cost[order], parent[order], via[order])


@allocating
def _undominated(states: _States, least_j: Floats, price_w: float, limit_j: float) -> Ints:
    """States that no other beats in time and energy, and that can still end below the limit."""
    keep = np.empty(len(least_j), dtype=np.int64)
    count, lowest_j = 0, np.inf
    for state in range(len(least_j)):
        energy_j = states.cost_j[state] - price_w * states.longer_s[state]
        if energy_j < lowest_j and least_j[state] < limit_j:
            lowest_j = energy_j
            keep[count] = state
            count += 1
    return keep[:count]


@allocating
def _with(keep: Ints, state: int) -> tuple[Ints, int]:
    """Keep this state too; return where it stands then."""
    at = int(np.searchsorted(keep, state))
    if at < len(keep) and keep[at] == state:
        return keep, at
    return np.append(keep, state), len(keep)


@allocating
def _walk_back(layers: list[_States], layer: int, state: int) -> Ints:
    taken = np.empty(layer, dtype=np.int64)
    count = 0
    while layer > 0:
        if layers[layer].via[state] >= 0:
            taken[count] = layers[layer].via[state]
            count += 1
        state = layers[layer].parent[state]
        layer -= 1
    return taken[:count]
