"""Microbatches of log-normal lengths, known before each iteration, and the simulated work that they are."""

from __future__ import annotations

import numpy as np

from perseus_ds.config.load_function import LoadFunction

SEQUENCES, MEDIAN, SIGMA = 4, 512.0, 0.6
_MEAN = MEDIAN * float(np.exp(SIGMA**2 / 2.0))
_MEAN_SQUARE = MEDIAN**2 * float(np.exp(2.0 * SIGMA**2))

SIMULATED = {
    "mean_forward_s": 0.1,
    "load_terms": [0.1, 0.7, 0.2],
    "mean_load": [SEQUENCES * _MEAN, SEQUENCES * _MEAN_SQUARE],
}
"""Settings by which simulated GPUs take as long as these loads ask for."""


def lengths_of(replica: int, *, period: int | None = None) -> LoadFunction:
    """What one replica trains: four sequences in each microbatch, other ones each iteration.

    After ``period`` iterations the same ones come again, so that the mean of as many is always the same.
    """

    def lengths(iteration: int, microbatches: int) -> list[list[float]]:
        random = np.random.default_rng([replica, iteration % period if period else iteration])
        drawn = np.round(MEDIAN * random.lognormal(0.0, SIGMA, (microbatches, SEQUENCES)))
        return [[float(length) for length in one] for one in drawn]

    return lengths
