"""Begin to follow loads: who of a replica plans its iterations, and who runs them with it."""

from __future__ import annotations

from collections.abc import Sequence

from perseus_ds.plan.following import AnswerFrame, Setup
from perseus_ds.runtime.comm.replica_broadcast import ReplicaBroadcast
from perseus_ds.runtime.control.iteration_planner import IterationPlanner
from perseus_ds.runtime.control.load_follower import LoadFollower
from perseus_ds.runtime.lifecycle.job_context import JobContext

_PATIENCE_S = 100.0


def members_of(replica: int, places: Sequence[tuple[int, int]]) -> list[int]:
    """Ranks of a replica, first the one that plans: a rank of the first stage, which knows the loads.

    Shape: ``places`` (replica, pipeline rank) [ranks].
    """
    members = [rank for rank, (own, _) in enumerate(places) if own == replica]
    return sorted(members, key=lambda rank: (places[rank][1], rank))


def follower_of(context: JobContext, setup: Setup, members: Sequence[int], *, waits: bool) -> LoadFollower:
    """Have this rank follow the loads of its replica's microbatches; collective, of all ranks.

    Where an iteration ``waits`` for its plans, the first one does not wait for processes that begin.
    """
    job, frame = context.job, AnswerFrame(setup.plans, setup.marks)
    planner = IterationPlanner(setup) if job.rank == members[0] else None
    if waits:
        if planner is not None:
            planner.wait_until_ready(_PATIENCE_S)
        context.channel.gather(None)
    return LoadFollower(
        ReplicaBroadcast(context.channel.group_of(members), frame.numbers),
        frame,
        planner,
        rank=job.pipeline_rank,
        waits=waits,
        complain=context.log.line_here,
    )
