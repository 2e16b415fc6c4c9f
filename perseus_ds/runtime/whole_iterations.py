"""Jobs of which only the beginning and the end of an iteration are seen, since it is replayed or compiled.

    Weighing: all ranks fast, all slow, then each slow in turn --> IterationModel --> Sweeping, as in any job

The model says when each computation ran within an iteration that was seen as a whole. From there on profile,
plan, run and audit are those of every job; its plans keep one clock for each rank and iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from perseus_ds.profile.iterations import IterationModel
from perseus_ds.runtime.context import JobContext
from perseus_ds.runtime.recorder import Iteration


class WholeIterations:
    """Shows when computations ran, in windows of iterations that were seen as wholes."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self.model = IterationModel(context.job.schedule, context.job.weights)

    def lasts_s(self, window: Sequence[Iteration]) -> list[float]:
        """Return how long each iteration took, on the rank where it took longest; collective."""
        own = [0.0 if one.void else one.end_s - _begin_s(one) for one in window]
        everyone = cast("list[list[float]]", self._context.channel.gather(own))
        return [max(several) for several in zip(*everyone, strict=True)]

    def fill(self, window: Sequence[Iteration]) -> list[Iteration]:
        """Return the window with the computations of this rank, without its first iteration; collective.

        In that one the clock changed, which stretches its beginning alone.
        """
        rank = self._context.job.pipeline_rank
        return [
            one
            if one.void
            else replace(
                one,
                intervals=(
                    *(i for i in one.intervals if not i.kind.is_computation),
                    *self.model.intervals(rank, _begin_s(one), lasts_s),
                ),
            )
            for one, lasts_s in list(zip(window, self.lasts_s(window), strict=True))[1:]
        ]


def _begin_s(iteration: Iteration) -> float:
    """Return when its pass began: the optimizer step before it belongs to the iteration too."""
    return max((one.end_s for one in iteration.intervals), default=iteration.start_s)
