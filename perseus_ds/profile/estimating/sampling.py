"""When within its period an energy counter looks at the power: found from the window itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.profile.estimating.window import Interval

_WIDTHS = (1.0, 0.5, 0.25)
_COARSE, _FINE = 0.1, 0.02
_LAGS = 5
_PARAMETERS = 2


@dataclass(frozen=True, slots=True)
class Sampling:
    """A counter that looks during ``width`` of its period, until ``lag`` of it before its step is seen.

    Data-centre GPUs look during a quarter of it and take that for the whole: a step states what ran then, not
    what ran on average. Its date is off by up to a quarter of a period, because readers look now and then.

    Source: arXiv 2312.02741 (25 of every 100 ms on A100 and H100).
    """

    width: float = 1.0
    lag: float = 0.0

    def busy_s(self, intervals: Sequence[Interval], ticks_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds of every step that intervals account for, as far as the counter could see them.

        Shape: ``ticks_s`` [steps + 1]; the answer [steps].
        """
        if not intervals:
            return np.zeros(len(ticks_s) - 1)
        starts = np.array([i.start_s for i in intervals])
        ends = np.array([i.end_s for i in intervals])
        edges = np.column_stack([starts, ends]).ravel()
        done = np.column_stack([np.zeros(len(starts)), ends - starts]).ravel().cumsum()
        periods_s = np.diff(ticks_s)
        until_s = ticks_s[1:] - self.lag * periods_s
        seen_s = np.interp(until_s, edges, done) - np.interp(until_s - self.width * periods_s, edges, done)
        busy_s: NDArray[np.float64] = seen_s / self.width
        return busy_s


WHOLE = Sampling()


def best_sampling(residual: Callable[[Sampling], float], *, steps: int) -> Sampling:
    """Choose what explains the steps best; a part of the period only where that is no chance.

    ``residual`` is the sum of squares that a sampling leaves unexplained. Two more parameters must pay for
    themselves (Akaike's criterion).

    Cost: about 40 calls.
    """
    best = min(_near(0.0, _COARSE), key=residual)
    finer = Sampling(best.width, best.lag)
    best = min((finer, *_near(best.lag, _FINE, (best.width,))), key=residual)
    plain_j2, best_j2 = residual(WHOLE), residual(best)
    if plain_j2 <= 0.0:
        return WHOLE
    gain = steps * math.log(plain_j2 / max(best_j2, plain_j2 * np.finfo(np.float64).eps))
    return best if gain > 2 * _PARAMETERS else WHOLE


def _near(lag: float, step: float, widths: Sequence[float] = _WIDTHS) -> Iterator[Sampling]:
    for width in widths:
        for index in range(-_LAGS + 1, _LAGS):
            yield Sampling(width, lag + index * step)
