"""What a job on simulated GPUs needs beside its session: work that takes its time, and time that travels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from perseus_ds.device.simulated.gpu import SimulatedGpu
from perseus_ds.runtime.adapter import InstructionListener, Place
from perseus_ds.runtime.emulation.carried_time import CarriedTime, CoupledTime, Neighbours
from perseus_ds.runtime.emulation.emulated_work import EmulatedWork, StageWork
from perseus_ds.runtime.emulation.load_share import LoadShare, SharedLoads
from perseus_ds.runtime.emulation.routes import routes_of
from perseus_ds.runtime.emulation.time_messages import TimeMessages
from perseus_ds.runtime.job import Job
from perseus_ds.schedule import Load


@dataclass(frozen=True, slots=True)
class Emulation:
    """The simulated GPU of this rank, the work of every model stage, and where every rank stands.

    ``messages`` carry virtual time; None in scaled time, where the host's clock is everyone's.

    Shape: ``works`` [model stages]; ``places`` [ranks of the job].
    """

    gpu: SimulatedGpu
    works: Mapping[int, StageWork]
    places: Sequence[Place]
    messages: TimeMessages | None

    def listener(
        self, session: InstructionListener, job: Job, on_joined: Callable[[Callable[[Job], None]], None]
    ) -> InstructionListener:
        """Put what emulates in front of the session; ``on_joined`` reports batches of other sizes."""
        size = job.schedule.microbatches
        clock, peers = self.gpu.virtual_time, self.places[job.rank].coupled
        if clock is not None and self.messages is not None and len(peers) > 1:
            session = CoupledTime(session, clock, self.messages, rank=job.rank, peers=peers)
        work = EmulatedWork(
            session, self.gpu, self.works, job.order, microbatches=size, loads=self._load_share(job)
        )
        on_joined(lambda other: work.learn(other.order, microbatches=other.schedule.microbatches))
        if clock is None or self.messages is None:
            return work
        carried = CarriedTime(
            work,
            clock,
            microbatches=size,
            routes=routes_of(job.schedule, job.pipeline_rank),
            neighbours=neighbours_of(self.places, job.rank),
            messages=self.messages,
            settings=self.gpu.settings,
        )
        on_joined(
            lambda other: carried.learn(
                routes_of(other.schedule, other.pipeline_rank), microbatches=other.schedule.microbatches
            )
        )
        return carried

    def _load_share(self, job: Job) -> LoadShare:
        """How much work loads are: as the first stage counts them, where settings define what they mean."""
        settings = self.gpu.settings
        if settings.load_terms is None or settings.mean_load is None:
            return LoadShare()
        shared = None
        if self.messages is not None:
            neighbours = neighbours_of(self.places, job.rank)
            first = neighbours.pipeline[job.schedule.rank_of_stages()[0]]
            shared = SharedLoads(self.messages, first=first, others=neighbours.others, rank=job.rank)
        return LoadShare(settings.load_terms, Load(*settings.mean_load), shared)

    def close(self) -> None:
        """Inform the other ranks that this one's time is not carried any more."""
        if self.messages is not None:
            self.messages.close()


def neighbours_of(places: Sequence[Place], rank: int) -> Neighbours:
    """Find the ranks of this pipeline, and those that do what this rank does.

    Tensor-parallel peers stand at one place: the n-th of each place belong together.
    """
    here = places[rank]
    turn = [r for r, one in enumerate(places) if _where(one) == _where(here)].index(rank)
    pipeline = []
    for pipeline_rank in range(1 + max(one.pipeline_rank for one in places)):
        peers = [r for r, one in enumerate(places) if _where(one) == (pipeline_rank, here.replica)]
        pipeline.append(peers[min(turn, len(peers) - 1)])
    alike = [r for r, one in enumerate(places) if one.pipeline_rank == here.pipeline_rank and r != rank]
    others = [r for r in dict.fromkeys(pipeline) if r != rank]
    return Neighbours(tuple(pipeline), tuple(alike), tuple(others))


def _where(place: Place) -> tuple[int, int]:
    return place.pipeline_rank, place.replica
