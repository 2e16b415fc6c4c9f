"""When this rank arrived at the replicas' meeting point: its iterations without the wait for the others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from perseus_ds.profile import Computation
from perseus_ds.runtime.measure.recorder import Iteration
from perseus_ds.schedule import Kind, Order


class Arrivals:
    """Durations from release to arrival, on the device's time base; the clocks of hosts have no part.

    Replicas wait for each other in ReduceGrads alone, each stage with its peers. With tied weights the first
    and last stage of one replica meet in ReduceTiedGrads before, which is no wait for another replica. With
    ZeRO-1 the parameters are gathered in OptimizerStep, when all have just been released.

    The first rank reports for its replica. It holds the first stage, begins without waiting for anybody, and
    its last backward comes after all that any rank does, the slowest included. The others arrive earlier, by
    the time that the pipeline takes to drain: beside a slow replica, that drains slowly they would seem late.

    ``behind`` is how many iterations the device may be behind the host: all ranks report the same one.
    """

    def __init__(self, order: Order, *, pipeline_rank: int, behind: int) -> None:
        self.behind = behind
        self._pipeline_rank = pipeline_rank
        self._reductions = [(i.stage, i.kind) for i in order if i.kind is Kind.REDUCE_GRADS]
        self._reduction_s = 0.0
        self._own_s: dict[int, float] = {}

    def expect(self, fixed_s: Mapping[Computation, float]) -> None:
        """Know how long the reduction itself takes when nobody has to wait: it counts as this rank's own."""
        self._reduction_s = sum(fixed_s.get(reduction, 0.0) for reduction in self._reductions)

    def note(self, passed: Iterable[Iteration]) -> None:
        """Take in iterations that the device has finished.

        One in which clocks changed stays unknown, as does one whose step was skipped.
        """
        for iteration in passed:
            if not (iteration.resumed or iteration.void or iteration.skipped):
                self._own_s[iteration.index] = iteration.duration_s - self._waited_s(iteration)

    def own_s(self, index: int) -> float | None:
        """Return one iteration's own time, once, and forget those before it; None where it is unknown.

        On a rank that does not report it is less than any time.
        """
        if self._pipeline_rank > 0:
            self._own_s.clear()
            return -math.inf
        found = self._own_s.pop(index, None)
        for older in [one for one in self._own_s if one < index]:
            del self._own_s[older]
        return found

    def _waited_s(self, iteration: Iteration) -> float:
        reducing_s = sum(i.duration_s for i in iteration.intervals if i.kind is Kind.REDUCE_GRADS)
        return max(0.0, reducing_s - self._reduction_s)
