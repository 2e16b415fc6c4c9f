"""Loads of whole iterations as windows saw them: what jobs like this one work on, all replicas at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perseus_ds.errors import PerseusError
from perseus_ds.files.fields import listed, real
from perseus_ds.schedule import Load
from perseus_ds.schedule.load import MOST_LOAD

SeenLoads = tuple[tuple[tuple[Load, ...], ...], ...]
"""Shape: [iterations][replicas][microbatches], alike in all."""
MOST = 8192
"""Microbatches that a profile keeps: 300 kB."""


def kept(seen: Sequence[tuple[tuple[Load, ...], ...]]) -> SeenLoads:
    """Return iterations of the commonest shape, as many as a profile keeps, from all of the time.

    Shape: each [replicas][microbatches], replicas alike.
    """
    shapes = [(len(one), len(one[0])) for one in seen]
    if not shapes:
        return ()
    replicas, microbatches = max(sorted(set(shapes)), key=shapes.count)
    alike = [one for one, shape in zip(seen, shapes, strict=True) if shape == (replicas, microbatches)]
    most = min(len(alike), MOST // (replicas * microbatches))
    places = np.linspace(0, len(alike) - 1, most).round().astype(int)
    return tuple(alike[place] for place in places.tolist())


def seen_rows(seen: SeenLoads) -> list[list[list[list[float]]]]:
    """Write them down: [tokens, squares] of every microbatch."""
    return [[[pair_of(load) for load in one] for one in replicas] for replicas in seen]


def seen_of(content: object) -> SeenLoads:
    """Read what `seen_rows` wrote.

    Raises:
        PerseusError: iterations of several shapes, or numbers that are no loads.
    """
    iterations = [
        [[load_of(pair) for pair in listed(one, "seen_loads")] for one in listed(replicas, "seen_loads")]
        for replicas in listed(content, "seen_loads")
    ]
    shapes = {tuple(map(len, one)) for one in iterations}
    if len(shapes) > 1 or any(len(set(shape)) > 1 for shape in shapes):
        raise PerseusError("seen_loads has iterations of several shapes", hint="profile the job again")
    return tuple(tuple(map(tuple, one)) for one in iterations)


def pair_of(load: Load) -> list[float]:
    """Write a load down: [tokens, squares]."""
    return [load.tokens, load.squares]


def load_of(pair: object) -> Load:
    """Read what `pair_of` wrote.

    Raises:
        PerseusError: it is no load.
    """
    numbers = dict(zip(("tokens", "squares"), listed(pair, "seen_loads"), strict=False))
    return Load(*(real(numbers, key, least=0.0, most=MOST_LOAD) for key in ("tokens", "squares")))
