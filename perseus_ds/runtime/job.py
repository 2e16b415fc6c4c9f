"""What identifies the job that we are in: measurements and plans serve no other."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch

from perseus_ds.adapters.deepspeed.orders import schedule_of
from perseus_ds.adapters.deepspeed.seam import PipelineEngine, PipeSchedule, deepspeed_version
from perseus_ds.config import PerseusConfig
from perseus_ds.device import Gpu
from perseus_ds.runtime.comm.control_channel import ControlChannel
from perseus_ds.runtime.hardware_groups import HardwareGroup, Placement, hardware_groups_of
from perseus_ds.schedule import Schedule

PLAN_ONLY = ("microbatches", "schedule", "reserve_pct")
"""Parts of the fingerprint that a plan depends on and a profile does not."""

FOR_THE_READER = ("replicas",)
"""Parts that nothing depends on: a plan is one pipeline's, and serves it beside however many others."""


@dataclass(frozen=True, slots=True)
class Job:
    """This rank's place in the job, the job's schedule, and its fingerprint (alike on all ranks).

    ``groups`` are the replicas sorted by their GPUs; where there are several, each has its own fingerprint.
    """

    rank: int
    ranks: int
    stage: int
    replica: int
    schedule: Schedule
    fingerprint: Mapping[str, str]
    groups: tuple[HardwareGroup, ...] = (HardwareGroup((0,)),)

    @property
    def replicas(self) -> int:
        """How many pipelines train side by side."""
        return int(self.fingerprint["replicas"])

    @property
    def mixed(self) -> bool:
        """Whether some stage runs on another GPU in one replica than in another."""
        return len(self.groups) > 1

    @property
    def group(self) -> int:
        """The group of this rank's replica."""
        return self.group_of(self.replica)

    def group_of(self, replica: int) -> int:
        """The group of a replica."""
        return next((index for index, group in enumerate(self.groups) if replica in group.replicas), 0)

    def plan_fingerprint(self, group: int = 0) -> Mapping[str, str]:
        """What a group's plan must agree with."""
        return {**self.fingerprint, **self.groups[group].own}

    def profile_fingerprint(self, group: int = 0) -> Mapping[str, str]:
        """What a group's profile must agree with."""
        whole = self.plan_fingerprint(group)
        return {key: value for key, value in whole.items() if key not in PLAN_ONLY}


@dataclass(frozen=True, slots=True)
class _Place:
    """What every rank reports of itself."""

    replica: int
    stage: int
    parameters: int
    dtypes: str
    tied: bool
    gpu: str
    driver: str


def recognise(
    engine: PipelineEngine,
    pipe_schedule: PipeSchedule,
    gpu: Gpu,
    *,
    channel: ControlChannel,
    config: PerseusConfig,
) -> Job:
    """Gather what all ranks know; collective.

    Raises:
        EngineError: a rank fell silent.
        UnsupportedEngineError: the schedule has instructions that we do not know.
    """
    places = cast("list[_Place]", channel.gather(_place(engine, gpu)))
    schedule = schedule_of(pipe_schedule, tied_stages={p.stage for p in places if p.tied})
    return Job(
        rank=channel.rank,
        ranks=channel.size,
        stage=engine.stage_id,
        replica=engine.grid.get_data_parallel_rank(),
        schedule=schedule,
        fingerprint=_fingerprint(engine, schedule, places, config),
        groups=hardware_groups_of(Placement(p.replica, p.stage, p.gpu, p.driver) for p in places),
    )


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Say in words where two fingerprints differ in what matters; empty when they agree."""
    return "; ".join(
        f"{key} is {theirs.get(key, 'not announced')}, this job's is {value}"
        for key, value in ours.items()
        if key not in FOR_THE_READER and theirs.get(key) != value
    )


def _place(engine: PipelineEngine, gpu: Gpu) -> _Place:
    module = cast("torch.nn.Module", vars(engine)["_modules"]["module"])
    parameters = list(module.parameters())
    identity = gpu.identify()
    return _Place(
        replica=engine.grid.get_data_parallel_rank(),
        stage=engine.stage_id,
        parameters=sum(p.numel() for p in parameters),
        dtypes=" ".join(sorted({str(p.dtype).removeprefix("torch.") for p in parameters})),
        tied=bool(getattr(module, "tied_comms", None)),
        gpu=identity.name,
        driver=identity.driver,
    )


def _fingerprint(
    engine: PipelineEngine, schedule: Schedule, places: list[_Place], config: PerseusConfig
) -> dict[str, str]:
    by_stage = sorted({(p.stage, p.parameters) for p in places})
    streams = " | ".join(" ".join(map(str, order)) for order in schedule.orders)
    return {
        "gpu": ", ".join(sorted({p.gpu for p in places})),
        "driver": ", ".join(sorted({p.driver for p in places})),
        "simulated": _digest(json.dumps(config.simulated, sort_keys=True))
        if config.device == "simulated"
        else "no",
        "stages": str(engine.num_stages),
        "replicas": str(engine.grid.data_parallel_size),
        "tensor_parallel": str(engine.grid.model_parallel_size),
        "partition": " ".join(str(parameters) for _, parameters in by_stage),
        "dtypes": ", ".join(sorted({p.dtypes for p in places})),
        "micro_batch_size": str(engine.micro_batch_size),
        "microbatches": str(schedule.microbatches),
        "schedule": f"{schedule.name} {_digest(streams)}",
        "reserve_pct": f"{config.objective.reserve_pct:g}",
        "deepspeed": deepspeed_version(),
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
