"""How much a microbatch works on: what its computations' durations depend on beside the clock."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perseus_ds.errors import ConfigError

MOST_LOAD = 1e30
"""Tokens, squares: what is more is no length of anything, and its sums are not finite."""


@dataclass(frozen=True, slots=True)
class Load:
    """What one microbatch works on, counted before it is computed.

    ``tokens`` is the sum of its sequences' lengths; elements where nothing states what a sequence is.
    ``squares`` is the sum of the squared lengths, with which attention grows.

    Raises:
        ConfigError: a number that is negative or not finite.
    """

    tokens: float
    squares: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("tokens", self.tokens), ("squares", self.squares)):
            if not 0.0 <= value <= MOST_LOAD:
                raise ConfigError(f"a load's {name} are {value}", hint="expected a finite number, 0 or more")

    @classmethod
    def of_lengths(cls, lengths: Iterable[float]) -> Load:
        """Count sequences of these lengths (tokens)."""
        known = list(lengths)
        if min(known, default=0.0) < 0.0:
            raise ConfigError(f"a length is {min(known)}", hint="expected 0 or more")
        return cls(math.fsum(known), math.fsum(length * length for length in known))

    @classmethod
    def of_shape(cls, shape: Iterable[int]) -> Load:
        """Count a tensor [samples, ...] whose samples are sequences as long as they have elements."""
        samples, *rest = (*shape, 1)
        length = float(math.prod(rest))
        return cls(samples * length, samples * length * length)

    def __add__(self, other: Load) -> Load:
        return Load(self.tokens + other.tokens, self.squares + other.squares)

    def times(self, share: float) -> Load:
        """Return so many times as much of everything."""
        return Load(share * self.tokens, share * self.squares)


def mean_load(loads: Sequence[Load]) -> Load:
    """Return the mean of some loads."""
    return Load(
        math.fsum(load.tokens for load in loads) / len(loads),
        math.fsum(load.squares for load in loads) / len(loads),
    )
