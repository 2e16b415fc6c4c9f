"""What identifies the job that we are in: measurements and plans serve no other."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from perseus_ds.device.gpu import FIELDS
from perseus_ds.runtime.coupled_sets import Sets, named
from perseus_ds.schedule import Instruction, Order, Schedule

PLAN_ONLY = ("microbatches", "schedule", "reserve_pct", "clock_changes")
"""Parts of the fingerprint that a plan depends on and a profile does not."""

FOR_THE_READER = ("replicas",)
"""Parts that nothing depends on: a plan is one pipeline's, and serves it beside however many others."""

NOT_ALWAYS_RECORDED = FIELDS
"""Parts that older files lack, and some drivers do not state: only another value is a difference."""


@dataclass(frozen=True, slots=True)
class GpuAddress:
    """Where to find a device: its host, and its PCI bus id there (the UUID where it has none)."""

    host: str
    gpu: str


@dataclass(frozen=True, slots=True)
class Job:
    """This rank's place in the job, the job's schedule, and its fingerprint (alike on all ranks).

    ``left_out`` is what of this rank's order is not measured (`Place`). ``gpus`` are the devices of each
    replica. Replicas that meet in every layer count as one; ``sets`` are the framework's numbers of those
    that each stands for (`in_sets`). ``addresses`` are the device of every rank, ``places`` its pipeline as
    the framework numbers it and its rank there.
    """

    rank: int
    ranks: int
    pipeline_rank: int
    replica: int
    schedule: Schedule
    fingerprint: Mapping[str, str]
    left_out: frozenset[Instruction] = frozenset()
    gpus: tuple[tuple[GpuAddress, ...], ...] = ()
    sets: Sets = ((0,),)
    addresses: tuple[GpuAddress, ...] = ()
    places: tuple[tuple[int, int], ...] = ()

    @property
    def order(self) -> Order:
        """What this rank runs in an iteration."""
        return self.schedule.orders[self.pipeline_rank]

    @property
    def replicas(self) -> int:
        """How many pipelines, or coupled sets of them, train side by side."""
        return int(self.fingerprint["replicas"])

    @property
    def coupled(self) -> bool:
        """Whether some replicas meet in every layer."""
        return any(len(one) > 1 for one in self.sets)

    @property
    def names(self) -> list[str]:
        """What the log calls each replica, or set of them."""
        return [named(self.sets, replica) for replica in range(self.replicas)]

    def with_schedule(self, schedule: Schedule, left_out: frozenset[Instruction]) -> Job:
        """Return the same job in batches of another size."""
        return replace(
            self,
            schedule=schedule,
            left_out=left_out,
            fingerprint={**self.fingerprint, **schedule_traits(schedule)},
        )

    @property
    def profile_fingerprint(self) -> Mapping[str, str]:
        """The parts that a profile must agree with."""
        return {key: value for key, value in self.fingerprint.items() if key not in PLAN_ONLY}


def schedule_traits(schedule: Schedule) -> Mapping[str, str]:
    """What a schedule adds to a fingerprint."""
    streams = " | ".join(" ".join(map(str, order)) for order in schedule.orders)
    return {
        "microbatches": str(schedule.microbatches),
        "schedule": f"{schedule.name} {digest(streams)}",
    }


def digest(text: str) -> str:
    """Make a long text short enough for a fingerprint."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Describe where two fingerprints differ in what matters; empty when they agree."""
    return "; ".join(
        f"{key} is {theirs.get(key, 'not given')}, this job's is {value}"
        for key, value in ours.items()
        if key not in FOR_THE_READER
        and theirs.get(key) != value
        and (key in theirs or key not in NOT_ALWAYS_RECORDED)
    )
