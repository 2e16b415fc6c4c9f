"""How much of its nodes' changes of clock a job may use, beside jobs that it does not know.

The calls of a node's GPUs queue in one driver. The node's service knows how many GPUs it has lent. It
reports that with every answer to a beat, and each pipeline takes the part that its own GPUs are.
"""

from __future__ import annotations

from collections.abc import Callable

from perseus_ds.errors import PerseusError
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.lifecycle.job_context import JobContext, profile_in
from perseus_ds.runtime.lifecycle.planning.plan_requests import budget_of

_STEADY = 20
"""Iterations: a job's ranks take their GPUs, and give them back, one after the other."""


class NodeCrowd:
    """Watches over the node of this rank; rank 0 asks for new plans where the most crowded node has changed.

    ``lent_gpus`` is the service's count; None where there is no service. ``crowd`` is that count for each GPU
    of this rank's pipeline on its node, 1 for a node of its own.
    """

    def __init__(self, context: JobContext, lent_gpus: Callable[[], int | None]) -> None:
        self._context = context
        self._lent_gpus = lent_gpus
        self._own_gpus = own_gpus(context.job)
        self._seen, self._since = 1.0, 0
        self._refused = 1.0

    def numbers(self) -> tuple[float, bool]:
        """This rank's crowd, and whether it asks for plans anew: what a rank reports of its node."""
        lent = self._lent_gpus()
        crowd = 1.0 if lent is None else max(1.0, lent / self._own_gpus)
        return crowd, self._asks

    def take_in(self, crowd: float) -> None:
        """Note the crowd of the job's most crowded node."""
        self._since = self._since + 1 if crowd == self._seen else 0
        self._seen = crowd

    def plan_for(self, crowd: float) -> bool:
        """Have plans from now on leave the other jobs their part; return whether that is another one."""
        reckoning = self._context.reckoning
        if crowd == reckoning.crowd:
            return False
        reckoning.crowd = crowd
        self._context.log.event(
            "node_shared",
            f"a pipeline has {100.0 / crowd:.0f} % of the GPUs that a node's service has lent: its plans use "
            "as much of the node's clock changes",
            crowd=crowd,
        )
        return True

    @property
    def _asks(self) -> bool:
        """Whether plans should be made anew, as rank 0 alone finds."""
        context = self._context
        steady = self._since >= _STEADY and self._seen not in {context.reckoning.crowd, self._refused}
        if not steady or context.job.rank != 0:
            return False
        if not self._matters():
            self._refused = self._seen
            return False
        return True

    def _matters(self) -> bool:
        """Whether a plan can be made here, and would be another one."""
        context = self._context
        try:
            profiles = [profile_in(context, group) for group in range(len(context.job.groups))]
        except PerseusError:
            return False
        if context.config.mode == "run" or None in profiles:
            return False
        objective, able, ranks = context.config.objective, context.capabilities, context.job.ranks
        return any(
            budget_of(objective, one.calibration, able, ranks=ranks).per_node_per_s is not None
            for one in profiles
            if one is not None
        )


def own_gpus(job: Job) -> int:
    """How many GPUs this rank's pipeline has on this rank's node."""
    if not job.addresses:
        return 1
    host, pipeline = job.addresses[job.rank].host, job.places[job.rank][0]
    beside = zip(job.addresses, job.places, strict=True)
    return len({one.gpu for one, place in beside if one.host == host and place[0] == pipeline})
