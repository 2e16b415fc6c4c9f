"""Identity of the job: measurements and plans serve no other."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch

from perseus_ds.config import Objective, PerseusConfig
from perseus_ds.device.gpu import FIELDS, Gpu
from perseus_ds.errors import DeviceUnsupportedError
from perseus_ds.plan.record import ChangeBudget
from perseus_ds.plan.reserve import reserve_in_words
from perseus_ds.run_directory.records import RankPlace
from perseus_ds.runtime.adapter import Adapter, Place
from perseus_ds.runtime.channel import ControlChannel
from perseus_ds.schedule import Instruction, Order, Schedule

# Ranks that wait for each other within every computation, and the replicas that this couples into one set.
#
# Expert-parallel ranks exchange tokens in every layer, so that none can run slower than the others by itself.
# Their replicas run one plan in step. The runtime numbers sets: what it calls a *replica* waits for others in
# the reduction alone.

Sets = tuple[tuple[int, ...], ...]

T = TypeVar("T", bound=Hashable)


def peers_of(places: Sequence[Place]) -> list[tuple[int, ...]]:
    """Return for every rank those it waits for within computations, itself included, in ascending order.

    These are the ranks of its place in the pipeline (tensor and context parallelism), those that a framework
    calls ``coupled``, and all that either of them waits for.
    """
    ranks_at: dict[tuple[int, int], list[int]] = {}
    for rank, place in enumerate(places):
        ranks_at.setdefault((place.pipeline_rank, place.replica), []).append(rank)
    groups = [*ranks_at.values(), *((rank, *place.coupled) for rank, place in enumerate(places))]
    found = _components(range(len(places)), groups)
    return [tuple(sorted(found[rank])) for rank in range(len(places))]


def coupled_sets(places: Sequence[Place]) -> Sets:
    """Join the replicas whose ranks wait for each other within computations; each alone where none do.

    Shape: ``places`` [ranks of the job]; the sets ascend by their first replica.
    """
    groups = [[places[rank].replica for rank in peers] for peers in set(peers_of(places))]
    found = _components({place.replica for place in places}, groups)
    return tuple(sorted({tuple(sorted(one)) for one in found.values()}))


def in_sets(places: Sequence[Place]) -> list[Place]:
    """Return places numbered by sets in place of replicas, with all ``coupled`` ranks."""
    number = {replica: at for at, one in enumerate(coupled_sets(places)) for replica in one}
    return [
        replace(place, replica=number[place.replica], coupled=peers)
        for place, peers in zip(places, peers_of(places), strict=True)
    ]


def set_name(sets: Sets, replica: int) -> str:
    """Name one of them for a line of the log: "replica 1", or "set 1 (replicas 2, 3)"."""
    if len(sets) <= replica or sets[replica] == (replica,):
        return f"replica {replica}"
    return f"set {replica} (replicas {', '.join(map(str, sets[replica]))})"


def _components(things: Iterable[T], groups: Iterable[Sequence[T]]) -> dict[T, frozenset[T]]:
    """Return for each thing all that share a group with it, or with one of these."""
    found = {thing: frozenset({thing}) for thing in things}
    for group in groups:
        joined = frozenset().union(*(found[thing] for thing in group))
        if joined != found[group[0]]:
            found |= dict.fromkeys(joined, joined)
    return found


PLAN_ONLY = ("microbatches", "schedule", "reserve_pct", "clock_changes")
"""Parts of the fingerprint that a plan depends on and a profile does not."""

FOR_THE_READER = ("replicas",)
"""Parts that nothing depends on: a plan is one pipeline's, and serves it beside however many others."""

NOT_ALWAYS_RECORDED = FIELDS
"""Parts that older files lack, and some drivers do not state: only another value is a difference."""


@dataclass(frozen=True, slots=True)
class Job:
    """This rank's place in the job, the job's schedule, and its fingerprint (alike on all ranks).

    ``left_out`` is what of this rank's order is not measured (`Place`). Replicas coupled in every layer count
    as one; ``sets`` are the framework's numbers of those in each (`in_sets`). ``places`` are where every rank
    is, in which pipeline as the framework numbers it, and ``gpus`` those of each replica's ranks.
    ``replayed``: iterations are seen as wholes (`Place`). ``weights`` are what model stages compute.
    """

    rank: int
    ranks: int
    pipeline_rank: int
    replica: int
    schedule: Schedule
    fingerprint: Mapping[str, str]
    left_out: frozenset[Instruction] = frozenset()
    gpus: tuple[tuple[RankPlace, ...], ...] = ()
    sets: Sets = ((0,),)
    places: tuple[RankPlace, ...] = ()
    replayed: bool = False
    weights: Mapping[int, float] = field(default_factory=dict)

    @property
    def order(self) -> Order:
        return self.schedule.orders[self.pipeline_rank]

    @property
    def replicas(self) -> int:
        """Return how many pipelines, or coupled sets of them, train side by side."""
        return int(self.fingerprint["replicas"])

    @property
    def coupled(self) -> bool:
        return any(len(one) > 1 for one in self.sets)

    @property
    def names(self) -> list[str]:
        return [set_name(self.sets, replica) for replica in range(self.replicas)]

    def with_schedule(self, schedule: Schedule, left_out: frozenset[Instruction]) -> Job:
        return replace(
            self,
            schedule=schedule,
            left_out=left_out,
            fingerprint={**self.fingerprint, **schedule_traits(schedule)},
        )

    @property
    def profile_fingerprint(self) -> Mapping[str, str]:
        return {key: value for key, value in self.fingerprint.items() if key not in PLAN_ONLY}


def schedule_traits(schedule: Schedule) -> Mapping[str, str]:
    """Return what a schedule adds to a fingerprint."""
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


# What identifies the job that we are in: gathered from all ranks, once.


@dataclass(frozen=True, slots=True)
class Member:
    """A rank of the job: its place, its GPU, and its framework's part of the fingerprint.

    ``where`` names the one device (PCI bus id, else UUID), and the replica as the framework numbers it: the
    place's own is that of its coupled set. ``gpu`` is the model's name. ``settings`` are the operators'.
    """

    place: Place
    where: RankPlace
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
        identity, place = gpu.identify(), adapter.place()
        device = identity.pci_bus_id or identity.uuid
        return Member(
            place,
            RankPlace(place.replica, place.pipeline_rank, socket.gethostname(), device),
            identity.name,
            identity.driver,
            adapter.traits(),
            gpu.operator_settings().fields(),
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
        gpus=tuple(map(tuple, _by_replica(members, lambda member: member.where).values())),
        sets=_sets(members),
        places=tuple(member.where for member in members),
        replayed=any(member.place.replayed for member in members),
        weights=weights_of(members),
    )


def _refuse_mixed_gpus(members: Sequence[Member]) -> None:
    """Refuse replicas on different GPU models: they share one plan. Stages of a pipeline may differ."""
    gpus = _by_replica(members, lambda member: (member.place.pipeline_rank, member.gpu))
    first = min(gpus)
    for replica, models in gpus.items():
        if set(models) != set(gpus[first]):
            theirs, others = (_join_words(gpu for _, gpu in one) for one in (gpus[first], models))
            where = "other stages of " * (theirs == others)
            raise DeviceUnsupportedError(
                f"replicas run on different GPU models: replica {first} on {theirs}, "
                f"replica {replica} on {where}{others}",
                hint="give every replica the same models; the stages of a pipeline may differ",
            )


def _by_replica(members: Sequence[Member], fact: Callable[[Member], T]) -> dict[int, list[T]]:
    found: dict[int, list[T]] = {}
    for member in members:
        found.setdefault(member.place.replica, []).append(fact(member))
    return dict(sorted(found.items()))


def weights_of(members: Sequence[Member]) -> dict[int, float]:
    """Return how much every model stage computes."""
    weights: dict[int, float] = {}
    for member in members:
        for stage, weight in member.place.weights.items():
            weights.setdefault(stage, weight)
    return dict(sorted(weights.items()))


def _sets(members: Sequence[Member]) -> Sets:
    pipelines = _by_replica(members, lambda member: member.where.pipeline)
    return tuple(tuple(sorted(set(one))) for one in pipelines.values())


def _fingerprint(schedule: Schedule, members: Sequence[Member], config: PerseusConfig) -> Mapping[str, str]:
    simulated = json.dumps(config.simulated, sort_keys=True)
    traits = sorted({key for member in members for key in member.traits})
    inputs = _join_words(member.place.inputs for member in members)
    return {
        "gpu": _join_words(member.gpu for member in members),
        "driver": _join_words(member.driver for member in members),
        "simulated": digest(simulated) if config.device == "simulated" else "no",
        "torch": torch.__version__,
        **_model_traits(schedule, members),
        **schedule_traits(schedule),
        "reserve_pct": reserve_in_words(config.objective.reserve_pct),
        "clock_changes": _clock_changes(
            config.objective, replayed=any(member.place.replayed for member in members)
        ),
        **({"inputs": inputs} if inputs else {}),
        **({"iterations": "replayed"} if any(member.place.replayed for member in members) else {}),
        **{key: _join_words(member.traits.get(key, "") for member in members) for key in traits},
        **_settings(members),
    }


def _settings(members: Sequence[Member]) -> Mapping[str, str]:
    """Return what operators have set of the GPUs' power; where stages differ, by pipeline rank."""
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
    places, sets = [member.place for member in members], _sets(members)
    pipelines = sum(map(len, sets))
    parameters = sorted({item for place in places for item in place.parameters.items()})
    return {
        "stages": str(schedule.stages),
        "tensor_parallel": str(len(places) // (schedule.ranks * pipelines)),
        "replicas": str(len(sets)),
        **({"coupled": f"{max(map(len, sets))} pipelines"} if pipelines > len(sets) else {}),
        "partition": " ".join(str(count) for _, count in parameters),
        "dtypes": _join_words(place.dtypes for place in places),
        "modules": _join_words(place.modules for place in places),
    }


def _join_words(words: Iterable[str]) -> str:
    return ", ".join(sorted(set(filter(None, words))))


def _clock_changes(objective: Objective, *, replayed: bool) -> str:
    """Return what a plan may do with clocks: one made for another answer is not used."""
    dated = replayed and objective.allows_dates
    budget = ChangeBudget(objective.changes_per_s, objective.node_changes_per_s, dated=dated)
    words = f"split {objective.split}, waits {objective.waits}{budget}"
    words = words.replace("automatic", "auto")  # as files of all releases have it
    return words if objective.timelines is None else f"{words}, timelines {objective.timelines}"
