"""The edges of an iteration written down from definitions, without the product's graph.

Works on text alone: every order is a list of words like ``2F0``. A word follows the one before it in its
order; forwards pass the model downwards, gradients upwards, weight gradients come after input gradients.
"""

from __future__ import annotations

import re
from itertools import pairwise


def edges_by_definition(orders: list[list[str]]) -> set[tuple[str, str]]:
    words = [word for order in orders for word in order]
    last = max(stage for stage, _, _ in map(split, words))
    found = {pair for order in orders for pair in pairwise(order)}
    gradient = {
        (stage, microbatch): f"{stage}{letter}{microbatch}"
        for stage, letter, microbatch in map(split, words)
        if letter in "BI"
    }
    for (stage, microbatch), word in gradient.items():
        found.add(
            (f"{stage}F{microbatch}", word) if stage == last else (gradient[stage + 1, microbatch], word)
        )
        if word == f"{stage}I{microbatch}":
            found.add((word, f"{stage}W{microbatch}"))
        if stage < last:
            found.add((f"{stage}F{microbatch}", f"{stage + 1}F{microbatch}"))
    return found


def split(word: str) -> tuple[int, str, int]:
    match = re.fullmatch(r"(\d+)([A-Z])(\d+)", word)
    assert match, word
    return int(match[1]), match[2], int(match[3])
