"""What identifies the job that we are in: gathered from all ranks, once."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from perseus_ds.config import Objective, PerseusConfig
from perseus_ds.device.gpu import Gpu
from perseus_ds.errors import DeviceUnsupportedError
from perseus_ds.plan.record import ChangeBudget
from perseus_ds.plan.reserve import reserve_in_words
from perseus_ds.runtime.adapter import Adapter, Place
from perseus_ds.runtime.comm.control_channel import ControlChannel
from perseus_ds.runtime.coupled_sets import Sets, in_sets
from perseus_ds.runtime.job import GpuAddress, Job, digest, schedule_traits
from perseus_ds.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Member:
    """One rank of the job: where it stands, on which GPU, and its framework's part of the fingerprint.

    ``gpu`` is the model's name, ``address`` the one device. ``pipeline`` is the replica as the framework
    numbers it; the place's own is that of its coupled set. ``settings`` are the operators', by field.
    """

    place: Place
    pipeline: int
    address: GpuAddress
    gpu: str
    driver: str
    traits: Mapping[str, str]
    settings: Mapping[str, str] = field(default_factory=dict)


def members_of(adapter: Adapter, gpu: Gpu, channel: ControlChannel) -> list[Member]:
    """Gather every rank's place; collective.

    Raises:
        PerseusError: some rank cannot be served; alike on all.
    """

    def mine() -> Member:
        identity = gpu.identify()
        address = GpuAddress(socket.gethostname(), identity.pci_bus_id or identity.uuid)
        place = adapter.place()
        settings = gpu.operator_settings()
        return Member(
            place,
            place.replica,
            address,
            identity.name,
            identity.driver,
            adapter.traits(),
            {} if settings is None else settings.fields(),
        )

    members = channel.gather_results(mine)
    places = in_sets([member.place for member in members])
    return [replace(member, place=place) for member, place in zip(members, places, strict=True)]


def recognise(
    adapter: Adapter, members: Sequence[Member], *, channel: ControlChannel, config: PerseusConfig
) -> Job:
    """Join the reports of all ranks into the job; alike on all but for this rank's own place.

    Raises:
        PerseusError: orders that do not make one schedule, or replicas on different GPU models.
    """
    _refuse_mixed_gpus(members)
    here = members[channel.rank].place
    schedule = adapter.schedule([member.place for member in members])
    return Job(
        rank=channel.rank,
        ranks=channel.size,
        pipeline_rank=here.pipeline_rank,
        replica=here.replica,
        schedule=schedule,
        fingerprint=_fingerprint(schedule, members, config),
        left_out=here.left_out,
        gpus=_gpus(members),
        sets=_sets(members),
        addresses=tuple(member.address for member in members),
        places=tuple((member.pipeline, member.place.pipeline_rank) for member in members),
    )


def _refuse_mixed_gpus(members: Sequence[Member]) -> None:
    """Refuse replicas on different GPU models: they share one plan. Stages of a pipeline may differ."""
    replicas: dict[int, set[tuple[int, str]]] = {}
    for member in members:
        replicas.setdefault(member.place.replica, set()).add((member.place.pipeline_rank, member.gpu))
    for replica, gpus in sorted(replicas.items()):
        if gpus != replicas[min(replicas)]:
            theirs, others = (_told(gpu for _, gpu in one) for one in (replicas[min(replicas)], gpus))
            where = "other stages of " * (theirs == others)
            raise DeviceUnsupportedError(
                f"replicas run on different GPU models: replica {min(replicas)} on {theirs}, "
                f"replica {replica} on {where}{others}",
                hint="give every replica the same models; the stages of a pipeline may differ",
            )


def weights_of(members: Sequence[Member]) -> dict[int, float]:
    """How much every model stage computes."""
    weights: dict[int, float] = {}
    for member in members:
        for stage, weight in member.place.weights.items():
            weights.setdefault(stage, weight)
    return dict(sorted(weights.items()))


def _sets(members: Sequence[Member]) -> Sets:
    """The framework's replicas that each of ours stands for."""
    sets: dict[int, set[int]] = {}
    for member in members:
        sets.setdefault(member.place.replica, set()).add(member.pipeline)
    return tuple(tuple(sorted(one)) for _, one in sorted(sets.items()))


def _gpus(members: Sequence[Member]) -> tuple[tuple[GpuAddress, ...], ...]:
    """The devices of each replica, in the order of ranks."""
    replicas: dict[int, list[GpuAddress]] = {}
    for member in members:
        replicas.setdefault(member.place.replica, []).append(member.address)
    return tuple(tuple(gpus) for _, gpus in sorted(replicas.items()))


def _fingerprint(schedule: Schedule, members: Sequence[Member], config: PerseusConfig) -> Mapping[str, str]:
    simulated = json.dumps(config.simulated, sort_keys=True)
    traits = sorted({key for member in members for key in member.traits})
    return {
        "gpu": _told(member.gpu for member in members),
        "driver": _told(member.driver for member in members),
        "simulated": digest(simulated) if config.device == "simulated" else "no",
        "torch": torch.__version__,
        **_model_traits(schedule, members),
        **schedule_traits(schedule),
        "reserve_pct": reserve_in_words(config.objective.reserve_pct),
        "clock_changes": _clock_changes(config.objective),
        **_inputs(member.place for member in members),
        **{key: _told(member.traits.get(key, "") for member in members) for key in traits},
        **_settings(members),
    }


def _settings(members: Sequence[Member]) -> Mapping[str, str]:
    """What operators have set of the GPUs' power; where stages differ, by pipeline rank."""
    found: dict[str, dict[str, set[int]]] = {}
    for member in members:
        for name, text in member.settings.items():
            found.setdefault(name, {}).setdefault(text, set()).add(member.place.pipeline_rank)
    return {
        name: next(iter(ranks_of))
        if len(ranks_of) == 1
        else "; ".join(
            f"{text} at rank {', '.join(map(str, sorted(at)))}" for text, at in sorted(ranks_of.items())
        )
        for name, ranks_of in found.items()
    }


def _model_traits(schedule: Schedule, members: Sequence[Member]) -> Mapping[str, str]:
    """How the model is cut and run."""
    places, sets = [member.place for member in members], _sets(members)
    pipelines = sum(map(len, sets))
    parameters = sorted({item for place in places for item in place.parameters.items()})
    return {
        "stages": str(schedule.stages),
        "tensor_parallel": str(len(places) // (schedule.ranks * pipelines)),
        "replicas": str(len(sets)),
        **({"coupled": f"{max(map(len, sets))} pipelines"} if pipelines > len(sets) else {}),
        "partition": " ".join(str(count) for _, count in parameters),
        "dtypes": _told(place.dtypes for place in places),
        "modules": _told(place.modules for place in places),
    }


def _inputs(places: Iterable[Place]) -> Mapping[str, str]:
    """The shapes of the first batch, where a framework knows them."""
    inputs = _told(place.inputs for place in places)
    return {"inputs": inputs} if inputs else {}


def _told(words: Iterable[str]) -> str:
    """Join the reports of ranks into one text, the same on all of them."""
    return ", ".join(sorted(set(filter(None, words))))


def _clock_changes(objective: Objective) -> str:
    """What a plan may do with clocks: one made for another answer is not used."""
    budget = ChangeBudget(objective.changes_per_s, objective.node_changes_per_s)
    told = f"split {objective.split}, waits {objective.waits}{budget}"
    told = told.replace("automatic", "auto")  # as files of all releases have it
    return told if objective.timelines is None else f"{told}, timelines {objective.timelines}"
