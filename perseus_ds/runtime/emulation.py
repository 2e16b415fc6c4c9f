"""Emulation of a job on simulated GPUs: work that takes its time, and time carried between ranks."""

from __future__ import annotations

import ctypes
import math
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import fmean

import torch
import torch.distributed as dist

from perseus_ds.device.simulated.gpu import SimulatedGpu, Task, VirtualTime
from perseus_ds.device.simulated.models import model_named
from perseus_ds.device.simulated.operators import work_of_operator
from perseus_ds.device.simulated.physics import KernelSequence, Work
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.errors import ConfigError
from perseus_ds.kernels.trace import KERNEL_TRACES, KernelTrace
from perseus_ds.runtime.adapter import Batch, InstructionListener, PassingListener, Place
from perseus_ds.runtime.channel import ControlChannel, control_group
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.reach import Reach
from perseus_ds.schedule import Instruction, Kind, Load, Order, Schedule, dag_of

_UNKNOWN = -1.0
_LEAST_SHARE_OF_LOAD = 1e-3


class LoadShare:
    """The share of each microbatch's work in that of the mean one.

    With ``terms`` it is terms[0] + terms[1] t + terms[2] q, t and q the load's tokens and squares over those
    of ``mean``. Without, it is its tokens over those of the first microbatch that a stage saw.

    Later stages see no lengths, and their GPUs must. So with ``messages`` the rank of the ``first`` stage
    sends its loads to the ``others``: when a batch begins if it knows them, else at each of its forwards.
    Without messages a load is the batch's, or the forward's own.
    """

    def __init__(
        self,
        terms: Sequence[float] | None = None,
        mean: Load | None = None,
        *,
        messages: TimeMessages | None = None,
        first: int = 0,
        others: Sequence[int] = (),
        rank: int = 0,
    ) -> None:
        self._terms, self._mean = terms, mean
        self._messages, self._first, self._others = messages, first, others
        self._is_first = rank == first
        self._batch: tuple[Load, ...] | None = None
        self._expected = 0
        self._exchanged: list[Load | None] = []
        self._first_tokens: dict[int, float] = {}
        self._shares: dict[tuple[int, int], float] = {}

    def iteration_begins(self, batch: Batch) -> None:
        """Set the loads of a batch; alike on all ranks of a pipeline where they are shared."""
        self._shares.clear()
        self._batch = batch.loads
        if self._messages is None:
            return
        while len(self._exchanged) < self._expected:  # forwards of the last batch that were not announced
            self._exchange(None)
        self._exchanged.clear()
        for load in batch.loads or (None,) * batch.microbatches:
            self._exchange(load)
        found = tuple(load for load in self._exchanged if load is not None)
        self._batch = found if len(found) == len(self._exchanged) else None
        self._expected = batch.microbatches if self._batch is None else 0
        self._exchanged.clear()

    def share(self, present: Instruction, load: Load | None) -> float:
        """Return the share of what an instruction works on, whose forward has ``load``."""
        place = present.stage, present.microbatch
        if self._batch is not None and present.microbatch < len(self._batch):
            load = self._batch[present.microbatch]
        elif self._messages is not None and present.kind is Kind.FORWARD:
            load = self._agree_on_load(present, load)
        if load is not None:
            self._shares[place] = self._share_of(present.stage, load)
        return self._shares.get(place, 1.0)

    def _agree_on_load(self, present: Instruction, load: Load | None) -> Load | None:
        """Return a forward's load as the first stage counted it, for whose activation it waits anyway."""
        if self._is_first and present.stage == 0:
            if len(self._exchanged) < self._expected:
                self._exchange(load)
            return load
        while not self._is_first and len(self._exchanged) <= min(present.microbatch, self._expected - 1):
            self._exchange(None)
        known = self._exchanged[present.microbatch] if present.microbatch < len(self._exchanged) else None
        return known or load

    def _exchange(self, load: Load | None) -> None:
        """Send a load where this rank is the first stage's, else receive the next."""
        assert self._messages is not None
        if not self._is_first:
            tokens, squares = (self._messages.receive(self._first, LOADS) for _ in range(2))
            load = None if min(tokens, squares) < 0.0 else Load(tokens, squares)
        else:
            for rank in self._others:
                for number in (_UNKNOWN, _UNKNOWN) if load is None else (load.tokens, load.squares):
                    self._messages.send(rank, LOADS, number)
        self._exchanged.append(load)

    def _share_of(self, stage: int, load: Load) -> float:
        if self._terms is None or self._mean is None:
            first = self._first_tokens.setdefault(stage, load.tokens)
            return load.tokens / first if first and load.tokens else 1.0
        fixed, tokens, squares = self._terms
        q = load.squares / self._mean.squares if self._mean.squares else 0.0
        return max(_LEAST_SHARE_OF_LOAD, fixed + tokens * load.tokens / self._mean.tokens + squares * q)


_AT_ONCE = 0.9  # assumed: a tenth of both is communication, which hides when a forward and a backward overlap
_HALF = 0.5  # each is one of the two products that a linear layer's backward consists of
_LEAST_SHARE = 0.01  # assumed: a stage of embeddings alone still takes a hundredth of the mean stage


@dataclass(frozen=True, slots=True)
class StageWork:
    """The work that a simulated GPU gets for one microbatch on one stage."""

    forward: Work | KernelSequence
    backward: Work | KernelSequence

    def of(self, kind: Kind) -> Work | KernelSequence:
        """Return the work of a computation; input and weight gradient are half a backward each."""
        if kind is Kind.FORWARD:
            return self.forward
        return self.backward if kind is Kind.BACKWARD else self.backward.times(_HALF)


def works_of(weights: Mapping[int, float], settings: SimulatedSettings) -> dict[int, StageWork]:
    """Return work in proportion to each stage's weight, unless ``forward_s`` or the kernels are given.

    Shape: ``weights`` [model stages], of the whole pipeline.

    Raises:
        ConfigError: ``forward_s`` has another number of entries.
        ProfileError: the kernels of a stage are not in the trace, or it cannot be read.
    """
    if settings.kernels is not None:
        trace = KERNEL_TRACES.read(Path(settings.kernels))
        return {stage: _of_kernels(trace, stage, settings.gpu) for stage in weights}
    listed = settings.forward_s
    if listed is not None and len(listed) != len(weights):
        raise ConfigError(
            f"perseus.simulated.forward_s has {len(listed)} entries and the job {len(weights)} stages"
        )
    mean = fmean(weights.values())
    works = {}
    for stage, weight in weights.items():
        share = max(_LEAST_SHARE, weight / mean if mean > 0 else 1.0)
        forward_s = settings.mean_forward_s * share if listed is None else listed[stage]
        forward = Work(forward_s, settings.memory_bound, settings.intensity)
        works[stage] = StageWork(forward, forward.times(settings.backward_over_forward))
    return works


def _of_kernels(trace: KernelTrace, stage: int, gpu: str) -> StageWork:
    """Return the launch sequences of one stage, every class with the work that its operator asks for."""
    model = model_named(gpu)
    works = [work_of_operator(model, one.name, one.shapes, one.dtype) for one in trace.classes]
    forward, backward = (
        KernelSequence(tuple(works[kernel] for kernel in trace.of(stage, kind).kernels))
        for kind in (Kind.FORWARD, Kind.BACKWARD)
    )
    return StageWork(forward, backward)


class EmulatedRank(PassingListener):
    """A listener in front of the session's: a rank whose GPU is simulated.

    The GPU is busy with an instruction until its work is done. The session's marks lie around that, as they
    would around kernels. Batches that the session does not want still take their time. A computation that
    takes the host longer keeps the GPU busy to its own end; `Truth` counts that as an overrun. A microbatch
    of another load is as much more or less work (`LoadShare`), in all that is done to it. ``links`` carry its
    time to other ranks; without them the host's clock is everyone's. ``jobs`` are those in batches of each
    size, as they become known.
    """

    def __init__(
        self,
        listener: InstructionListener,
        gpu: SimulatedGpu,
        works: Mapping[int, StageWork],
        *,
        loads: LoadShare | None = None,
        links: Links | None = None,
        jobs: Mapping[int, Job | None] | None = None,
    ) -> None:
        super().__init__(listener)
        self._jobs = {} if jobs is None else jobs
        self._gpu, self._works, self._loads, self._links = gpu, works, loads or LoadShare(), links
        self._orders: dict[int, tuple[Sequence[Instruction], Sequence[Route]]] = {}
        self._computations: Sequence[Instruction] = ()
        self._position = 0
        self._wanted = False
        self._task: Task | None = None

    def learn(self, order: Sequence[Instruction], routes: Sequence[Route] = (), *, microbatches: int) -> None:
        """Add what batches of a size run and exchange; alike on all ranks, between two iterations."""
        computations = [one for one in order if one.kind.is_computation]
        self._orders[microbatches] = computations, routes
        self._computations = self._computations or computations

    def iteration_begins(self, batch: Batch) -> bool:
        """Want every instruction, whether the session does or not."""
        job = self._jobs.get(batch.microbatches)
        if job is not None and batch.microbatches not in self._orders:
            exchanges = routes_of(job.schedule, job.pipeline_rank)
            self.learn(job.order, exchanges, microbatches=batch.microbatches)
        self._computations, routes = self._orders.get(batch.microbatches, (self._computations, ()))
        self._position = 0
        if self._links is not None:
            self._links.begin(routes)
        self._loads.iteration_begins(batch)
        self._wanted = self._listener.iteration_begins(batch)
        return True

    def before(self, kind: Kind, load: Load | None = None) -> None:
        if self._links is not None:
            self._links.wait_for_buffers(kind)
        if self._wanted:
            self._listener.before(kind, load)
        if kind.is_computation:
            self._task = self._gpu.begin(self._work(self._next(kind), load))
            self._position += 1
        if self._links is not None:
            self._links.send_begin(kind)

    def after(self, kind: Kind) -> None:
        if self._links is not None:
            self._links.wait_for_others(kind)
        if self._task is not None:
            task, self._task = self._task, None
            self._gpu.release(task)
            self._gpu.wait(task)
        if self._links is not None and kind.is_computation:
            self._links.wait_for_coupled()
        if self._wanted:
            self._listener.after(kind)
        if self._links is not None:
            self._links.send_end()

    def iteration_ends(self) -> None:
        if self._links is not None:
            self._links.end()
        self._listener.iteration_ends()
        if self._links is not None:
            self._links.clock.left_at = time.monotonic()

    def iteration_broke(self) -> None:
        """Send no more moments: no other rank knows where this one is."""
        self.close()
        if self._task is not None:
            self._gpu.abandon(self._task)
            self._task = None
        super().iteration_broke()

    def close(self) -> None:
        if self._links is not None:
            self._links.messages.close()

    def _work(self, present: Instruction, load: Load | None) -> Work | KernelSequence:
        """Return the work of a computation; a forward and a backward at once take less than in turn."""
        works = []
        for part in present.parts:
            share = self._loads.share(part, None if part.kind is Kind.BACKWARD else load)
            works.append(self._works[part.stage].of(part.kind).times(share))
        both_s = _AT_ONCE * sum(work.seconds for work in works)
        return works[0] if len(works) == 1 else works[0].times(both_s / works[0].seconds)

    def _next(self, kind: Kind) -> Instruction:
        """Return the next computation; in a batch of another order, the first of this kind."""
        if self._position < len(self._computations) and self._computations[self._position].kind is kind:
            return self._computations[self._position]
        alike = (i for i in self._computations if i.kind is kind)
        return next(alike, Instruction(next(iter(self._works)), kind, 0))


def emulate(
    listener: InstructionListener,
    gpu: SimulatedGpu,
    job: Job,
    places: Sequence[Place],
    jobs: Mapping[int, Job | None],
    *,
    channel: ControlChannel,
) -> EmulatedRank:
    """Return what stands in front of the session where the GPU is simulated; collective.

    ``jobs`` holds ``job`` in batches of each size. Virtual time goes from rank to rank in messages; in scaled
    time the host's clock is everyone's.

    Shape: ``places`` [ranks of the job].

    Raises:
        PerseusError: the work of the job's stages cannot be known (`works_of`).
    """
    settings, clock, neighbours = gpu.settings, gpu.virtual_time, neighbours_of(places, job.rank)
    works, loads = works_of(job.weights, settings), LoadShare()
    messages: TimeMessages | None = None
    links: Links | None = None
    if clock is not None:
        messages = TimeMessages(channel.name, channel.reach)
        coupled = places[job.rank].coupled
        links = Links(clock, messages, neighbours, settings, rank=job.rank, coupled=coupled)
    if settings.load_terms is not None and settings.mean_load is not None:
        loads = LoadShare(
            settings.load_terms,
            Load(*settings.mean_load),
            messages=messages,
            first=neighbours.pipeline[job.schedule.rank_of_stages()[0]],
            others=neighbours.others,
            rank=job.rank,
        )
    return EmulatedRank(listener, gpu, works, loads=loads, links=links, jobs=jobs)


def neighbours_of(places: Sequence[Place], rank: int) -> Neighbours:
    """Find the ranks of this pipeline, and those of this pipeline rank.

    Of the tensor-parallel peers at each place, the n-th of all places belong together.
    """
    here = places[rank]
    ranks_at: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, one in enumerate(places):
        ranks_at[one.pipeline_rank, one.replica].append(number)
    turn = ranks_at[here.pipeline_rank, here.replica].index(rank)
    pipeline = []
    for pipeline_rank in range(1 + max(one.pipeline_rank for one in places)):
        peers = ranks_at[pipeline_rank, here.replica]
        pipeline.append(peers[min(turn, len(peers) - 1)])
    alike = [r for r, one in enumerate(places) if one.pipeline_rank == here.pipeline_rank and r != rank]
    others = [r for r in dict.fromkeys(pipeline) if r != rank]
    return Neighbours(tuple(pipeline), tuple(alike), tuple(others))


# Ranks that each instruction of one rank waits for and releases, read off the schedule's own graph.

_SENDER = {Kind.RECV_ACTIVATION: (Kind.SEND_ACTIVATION, -1), Kind.RECV_GRAD: (Kind.SEND_GRAD, +1)}

REDUCTION, NORM, COUPLED, LOADS = 0, 1, 2, 3
"""Tags: moments of replicas, of a pipeline's ranks for the norm, of peers within computations; loads."""

_FIRST = 4
"""Tag of the first edge of the graph."""

Peer = tuple[int, int]
"""Another pipeline rank, and the tag of what both exchange."""


@dataclass(frozen=True, slots=True)
class Route:
    """Exchanges of one instruction: with ``peers`` both ways, ``waits_for`` before it, ``releases`` after it.

    ``transfers`` is how many transfers it carries out.
    """

    kind: Kind
    peers: tuple[Peer, ...] = ()
    waits_for: tuple[Peer, ...] = ()
    releases: tuple[Peer, ...] = ()
    transfers: int = 0


def routes_of(schedule: Schedule, rank: int) -> list[Route]:
    """Follow every edge of the graph that leaves this rank; one route for every instruction of its order."""
    graph = dag_of(schedule)
    home = schedule.rank_of_stages()
    shared = _shared_nodes(schedule)
    releases: dict[Instruction, list[Peer]] = defaultdict(list)
    waits_for: dict[Instruction, list[Peer]] = defaultdict(list)
    for tag, (before, after) in enumerate(sorted(graph.buffered), _FIRST + len(shared)):
        sender, receiver = graph.nodes[before], graph.nodes[after]
        if home[sender.stage] == rank:
            releases[sender].append((home[receiver.stage], tag))
        if home[receiver.stage] == rank:
            waits_for[receiver].append((home[sender.stage], tag))
    return [
        Route(i.kind, tuple(peers), tuple(waits_for[i]), tuple(releases[i]), transfers)
        for i, peers, transfers in _exchanges(schedule.orders[rank], rank, shared)
    ]


def _exchanges(
    order: Order, rank: int, shared: Mapping[Instruction, tuple[int, list[int]]]
) -> Iterator[tuple[Instruction, list[Peer], int]]:
    """List the peers of each instruction; those of transfers queued for a commit are the commit's."""
    queues = any(i.kind is Kind.COMMIT for i in order)
    queued: list[Peer] = []
    for instruction in order:
        tag, ranks = shared.get(_node(instruction), (0, []))
        peers = [(other, tag) for other in ranks if other != rank]
        if queues and instruction.kind.is_transfer:
            queued += peers
            yield instruction, [], 0
        elif instruction.kind is Kind.COMMIT:
            yield instruction, queued, min(1, len(queued))
            queued = []
        else:
            yield instruction, peers, min(1, len(peers)) if instruction.kind.is_transfer else 0


def _shared_nodes(schedule: Schedule) -> Mapping[Instruction, tuple[int, list[int]]]:
    """Return the nodes that several ranks share, each with its tag and those ranks."""
    ranks: dict[Instruction, list[int]] = defaultdict(list)
    for rank, order in enumerate(schedule.orders):
        for node in dict.fromkeys(map(_node, order)):
            ranks[node].append(rank)
    shared = {node: found for node, found in ranks.items() if len(found) > 1}
    return {node: (tag, found) for tag, (node, found) in enumerate(shared.items(), _FIRST)}


def _node(instruction: Instruction) -> Instruction:
    """Return the node of an instruction, the same on all its ranks: a transfer has its sender's name."""
    if instruction.kind is Kind.REDUCE_TIED:
        return Instruction(0, instruction.kind, instruction.microbatch)
    if instruction.kind not in _SENDER:
        return instruction
    kind, step = _SENDER[instruction.kind]
    return Instruction(instruction.stage + step, kind, instruction.microbatch)


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Ranks of the job: by pipeline rank those of this pipeline, and all others at this pipeline rank.

    ``others`` are those of the pipeline without this one.
    """

    pipeline: Sequence[int]
    alike: Sequence[int]
    others: Sequence[int] = ()


class Links:
    """A rank's virtual time on its way to and from other ranks.

    Moments are sent before the host's own call and awaited after it, where the host itself has just waited
    for the same ranks. So nothing can hang that does not hang without us. In the step, or at the end of an
    iteration without one, the ranks of a pipeline wait for the norm of the gradients, which frameworks clip
    by. What the host does between two iterations passes by its own clock, over ``time_scale``, in steps of
    ``host_step_s``. What is shorter is this host's pace and no part of the job. Our own work there takes no
    time.

    ``coupled`` are the ranks that wait for each other in every layer, this one among them, ascending (tensor,
    context and expert parallelism): each computation is as long as that of the slowest. The others spend the
    difference waiting, inside their marks, as they would around kernels.
    """

    def __init__(
        self,
        clock: VirtualTime,
        messages: TimeMessages,
        neighbours: Neighbours,
        settings: SimulatedSettings,
        *,
        rank: int = 0,
        coupled: Sequence[int] = (),
    ) -> None:
        self.clock, self.messages = clock, messages
        self._neighbours, self._settings = neighbours, settings
        self._first = coupled[0] if coupled else rank
        self._is_first = rank == self._first
        self._others = [peer for peer in coupled if peer != rank]
        self._routes: Sequence[Route] = ()
        self._route: Route | None = None
        self._position = 0
        self._reduced = self._clipped = False

    def begin(self, routes: Sequence[Route]) -> None:
        """Begin an iteration of these exchanges; pass the time that the host took since the last one."""
        if self.clock.left_at is not None:
            step_s, host_s = self._settings.host_step_s, time.monotonic() - self.clock.left_at
            self.clock.pass_s(host_s // step_s * step_s / self._settings.time_scale)
            self.clock.left_at = None
        self._routes, self._position = routes, 0
        self._reduced = self._clipped = False
        self.messages.iteration_begins()

    def wait_for_buffers(self, kind: Kind) -> None:
        """Before an instruction: wait for what comes through buffers, after those that were not announced."""
        ahead = range(self._position, len(self._routes))
        found = next((at for at in ahead if self._routes[at].kind is kind), None)
        route = self._route = None if found is None else self._routes[found]
        if found is not None:
            self._skip_to(found)
            self._position = found + 1
        if route is not None and route.waits_for:
            self.clock.pass_to(self._latest_s(route.waits_for) + self._settings.transfer_s)

    def send_begin(self, kind: Kind) -> None:
        """Send this moment to the peers of the instruction that begins."""
        if self._route is not None:
            self._send_to(self._route.peers)
        if kind is Kind.REDUCE_GRADS:
            self._send(self._neighbours.alike, REDUCTION)
        if kind is Kind.STEP:
            self._send(self._neighbours.others, NORM)

    def wait_for_others(self, kind: Kind) -> None:
        """Be as late as the latest of the instruction's peers."""
        if self._route is not None:
            self._wait_for_peers(self._route)
        if kind is Kind.REDUCE_GRADS:
            self._wait_for_replicas()
            self.clock.pass_s(self._settings.reduce_grads_s)
        if kind is Kind.STEP:
            self._wait_for_norm()
            self.clock.pass_s(self._settings.step_s)

    def wait_for_coupled(self) -> None:
        """Be as late as the slowest; the first gathers the moments and answers with the latest."""
        if self._is_first:
            self._wait(self._others, COUPLED)
            self._send(self._others, COUPLED)
        else:
            self._send([self._first], COUPLED)
            self._wait([self._first], COUPLED)

    def send_end(self) -> None:
        if self._route is not None:
            self._send_to(self._route.releases)

    def end(self) -> None:
        """Wait for the replicas and the pipeline if no instruction did."""
        self._skip_to(len(self._routes))
        if not self._reduced:
            self._send(self._neighbours.alike, REDUCTION)
            self._wait_for_replicas()
        if not self._clipped:
            self._send(self._neighbours.others, NORM)
            self._wait_for_norm()

    def _skip_to(self, position: int) -> None:
        """Carry out the transfers that stand before an instruction and were not announced."""
        for route in self._routes[self._position : position]:
            self._send_to(route.peers)
            self._wait_for_peers(route)
        self._position = position

    def _wait_for_peers(self, route: Route) -> None:
        if route.peers:
            self.clock.pass_to(self._latest_s(route.peers))
            self.clock.pass_s(route.transfers * self._settings.transfer_s)

    def _wait_for_replicas(self) -> None:
        self._wait(self._neighbours.alike, REDUCTION)
        self._reduced = True

    def _wait_for_norm(self) -> None:
        self._wait(self._neighbours.others, NORM)
        self._clipped = True

    def _latest_s(self, peers: Iterable[Peer]) -> float:
        pipeline = self._neighbours.pipeline
        return max([self.messages.receive(pipeline[rank], tag) for rank, tag in peers])

    def _send_to(self, peers: Iterable[Peer]) -> None:
        for rank, tag in peers:
            self._send([self._neighbours.pipeline[rank]], tag)

    def _send(self, ranks: Iterable[int], tag: int) -> None:
        for rank in ranks:
            self.messages.send(rank, tag, self.clock.now_s())

    def _wait(self, ranks: Iterable[int], tag: int) -> None:
        self.clock.pass_to(max([self.messages.receive(rank, tag) for rank in ranks], default=0.0))


# Moments of virtual time from rank to rank, over a gloo group of our own.

_PATIENCE_S = 600.0
_GONE = math.nan


class TimeMessages:
    """Send without waiting, receive with it; a rank that leaves reports it once, and is not waited for again.

    ``lost`` are the ranks whose time is not known any more. A message stays alive until its receiver must
    have had it: ranks are never more than an iteration apart.
    """

    def __init__(self, name: str, reach: Reach) -> None:
        patience = timedelta(seconds=_PATIENCE_S)
        self._group = control_group(f"{name}/time", reach, patience=patience, at_once=True)
        self._mine = torch.zeros(1, dtype=torch.float64)
        self._sent: deque[list[tuple[dist.Work | None, torch.Tensor]]] = deque([[]], maxlen=3)
        self._sent_to: set[tuple[int, int]] = set()
        self.lost: set[int] = set()

    def iteration_begins(self) -> None:
        self._sent.append([])

    def send(self, to: int, tag: int, moment_s: float) -> None:
        """Send a moment on its way; who is gone gets nothing."""
        if to in self.lost:
            return
        self._sent_to.add((to, tag))
        message = torch.tensor([moment_s], dtype=torch.float64)
        try:
            self._sent[-1].append((self._group.send([message], to, tag), message))
        except (RuntimeError, ValueError):
            self.lost.add(to)

    def receive(self, source: int, tag: int) -> float:
        """Wait for a moment; minus infinity from who is gone."""
        if source in self.lost:
            return -math.inf
        try:
            self._group.recv([self._mine], source, tag).wait()
        except (RuntimeError, ValueError):
            self.lost.add(source)
            return -math.inf
        moment_s = float(self._mine)
        if math.isnan(moment_s):
            self.lost.add(source)
            return -math.inf
        return moment_s

    def close(self) -> None:
        """Inform all that may wait for us that nothing more comes; they train on, and so do we.

        What is still under way is never destroyed: gloo would wait for it.
        """
        if self._sent_to and dist.is_initialized():
            for to, tag in sorted(self._sent_to):
                self.send(to, tag, _GONE)
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        self._sent_to.clear()
