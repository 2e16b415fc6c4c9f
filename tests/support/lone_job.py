"""A job whose loop computes nothing, mostly of one rank: simulated GPUs, virtual time, the whole course."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, Self

import torch
import torch.distributed as dist

from perseus_ds.config import parse
from perseus_ds.device.gpu import Achieved, Capabilities, EventReason, Gpu, Identity, OperatorSettings
from perseus_ds.device.simulated.gpu import SimulatedGpu, opened_gpus
from perseus_ds.errors import DeviceError, ValueRefusedError
from perseus_ds.guard.open import NullGpu
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime.adapter import Batch, InstructionListener, Place, SyncPoint
from perseus_ds.runtime.attach import begin
from perseus_ds.runtime.event_log import EventLog
from perseus_ds.runtime.rendezvous import RendezvousResult
from perseus_ds.runtime.session import Session
from perseus_ds.schedule import Instruction, Kind, Load, Schedule, validate

KINDS: tuple[Kind, ...] = (Kind.FORWARD, Kind.BACKWARD)
ENDLESS = 400


class Loop:
    """A training loop that computes nothing: what it announces is all that there is of it."""

    def __init__(self, microbatches: int = 4) -> None:
        self.microbatches = microbatches
        self.kinds = KINDS
        self.iterations = 0
        self.listener: InstructionListener | None = None
        self.scalars: list[Mapping[str, float]] = []
        self.look: Callable[[], object] = lambda: None

    def step(self) -> None:
        self.iterations += 1
        listener = self.listener
        wanted = listener is not None and listener.iteration_begins(Batch(self.microbatches))
        for kind in self.kinds * self.microbatches + (Kind.STEP,):
            if wanted and listener is not None:
                listener.before(kind)
                listener.after(kind)
                self.look()
        if listener is not None:
            listener.iteration_ends()


class LoopAdapter:
    name = "loop"
    sync_point = SyncPoint.UNMARKED
    device = torch.device("cpu")
    scalars_every = 5

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    @property
    def local_rank(self) -> int:
        """0 where this process is the whole job."""
        return dist.get_rank()

    def place(self) -> Place:
        order = [Instruction(0, kind, n) for n in range(self._loop.microbatches) for kind in KINDS]
        return Place(
            pipeline_rank=0,
            replica=0,
            order=(*order, Instruction(0, Kind.STEP, 0)),
            parameters={0: 1000},
            weights={0: 1000.0},
            dtypes="float32",
        )

    def schedule(self, places: Sequence[Place]) -> Schedule:
        schedule = Schedule("loop", self._loop.microbatches, (places[0].order,))
        validate(schedule)
        return schedule

    def traits(self) -> Mapping[str, str]:
        return {"loop": "1.0"}

    def install(self, listener: InstructionListener) -> None:
        self._loop.listener = listener

    def remove(self) -> None:
        self._loop.listener = None

    def write_scalars(self, scalars: Mapping[str, float]) -> None:
        self._loop.scalars.append(scalars)


def block_of(run_dir: Path, **more: object) -> dict[str, object]:
    """A short course: few clocks, small windows, a plan that may cost time, as one rank has no slack."""
    return {
        "enabled": True,
        "run_dir": str(run_dir),
        "device": "simulated",
        "objective": {"policy": "max_slowdown", "max_slowdown_pct": 10.0},
        "profile": {"min_window_s": 1.0, "max_clocks": 4, "warmup_iterations": 1},
        **more,
    }


def begun(loop: Loop, block: Mapping[str, object]) -> Session:
    return begin(LoopAdapter(loop), parse(block, {}), engine=1, meeting=RendezvousResult())[0]


@contextmanager
def served(run_dir: Path, **more: object) -> Iterator[Loop]:
    """A loop in a job of ours, which ends well with the block."""
    session = begun(loop := Loop(), block_of(run_dir, **more))
    yield loop
    session.end(well=True)


def train(loop: Loop, run_dir: Path, until: str, *, times: int = 1) -> list[str]:
    """Train until an event is in the journal so many times; return the names of all events."""
    for _ in range(ENDLESS):
        loop.step()
        if (names := names_of(run_dir)).count(until) >= times:
            return names
    raise AssertionError(f"not in {ENDLESS} iterations: {names_of(run_dir)}")


def gpu() -> SimulatedGpu:
    return opened_gpus()[-1]


def events_of(run_dir: Path, name: str | None = None) -> list[dict[str, Any]]:
    """All events of a journal, or those of one name; where the disk is slow, once it has caught up."""
    for thread in threading.enumerate():
        if thread.name == "perseus-disk":
            thread.join(10.0)
    file = run_dir / "events.jsonl"
    found = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [event for event in found if name in {None, event["event"]}]


def names_of(run_dir: Path) -> list[str]:
    return [event["event"] for event in events_of(run_dir)]


def logging_in(folder: Path, rank: int = 0) -> EventLog:
    log = EventLog(rank)
    log.writes_to(RunDirectory(folder))
    return log


@contextmanager
def alone(store: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    try:
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


# A stand-in for the device: it notes what it is asked for.


class NotingGpu(Gpu):
    """Notes every clock asked for; time stands still unless it is moved."""

    def __init__(self, *, counter_period_s: float | None = 0.1) -> None:
        self.asked: list[int | None] = []
        self.time_s = 0.0
        self.counter_j = 0.0
        self.fails: Exception | None = None
        self._period_s = counter_period_s

    def identify(self) -> Identity:
        return Identity("Noting GPU", "GPU-0", "0000:00:00.0", "none", 0)

    def capabilities(self) -> Capabilities:
        return Capabilities((1000, 900, 800), (1,), True, None, self._period_s, 0.02)

    def lock_clock(self, clock_mhz: int) -> None:
        self._note(clock_mhz)

    def reset_clock(self) -> None:
        self._note(None)

    def achieved(self) -> Achieved:
        return Achieved(1000, EventReason.NONE)

    def energy_j(self) -> float:
        if self.fails is not None:
            raise self.fails
        return self.counter_j

    def now_s(self) -> float:
        return self.time_s

    def close(self) -> None:
        self.reset_clock()

    def _note(self, clock_mhz: int | None) -> None:
        if self.fails is not None:
            raise self.fails
        self.asked.append(clock_mhz)


# Ranks that are threads with a virtual clock each: their messages, and a session that knows when all ran.


class Post:
    """Messages between threads, first come first served for each pair and tag."""

    def __init__(self) -> None:
        self._boxes: dict[tuple[int, int, int], SimpleQueue[float]] = {}

    def box(self, source: int, to: int, tag: int) -> SimpleQueue[float]:
        """One and the same for both ends; a defaultdict may make two of them when both come at once."""
        return self._boxes.setdefault((source, to, tag), SimpleQueue())

    @property
    def empty(self) -> bool:
        return all(box.empty() for box in self._boxes.values())

    def of(self, rank: int) -> SimpleNamespace:
        """Return one rank's end of the post."""
        return SimpleNamespace(
            iteration_begins=lambda: None,
            send=lambda to, tag, moment_s: self.box(rank, to, tag).put(moment_s),
            receive=lambda source, tag: self.box(source, rank, tag).get(timeout=20.0),
            close=lambda: None,
        )


class Wanting(InstructionListener):
    """A session that wants everything, and knows when every instruction ran."""

    def __init__(self, gpu: SimulatedGpu) -> None:
        self.gpu = gpu
        self.starts_s: list[float] = []
        self.ends_s: list[float] = []
        self.begins_s: list[float] = []

    def iteration_begins(self, batch: Batch) -> bool:
        self.begins_s.append(self.gpu.now_s())
        return True

    def before(self, kind: Kind, load: Load | None = None) -> None:
        self.starts_s.append(self.gpu.now_s())

    def after(self, kind: Kind) -> None:
        self.ends_s.append(self.gpu.now_s())


# A GPU on the desk: it does what it is asked at once, remembers every call, and can be interfered with.

INDEX = 1
UUID = f"null-{INDEX}"


class DeskGpu(NullGpu):
    """``before`` hears of every call that changes a clock; ``moved_mhz`` is where somebody else put it."""

    def __init__(self, before: Callable[[int | None], None] = lambda _: None) -> None:
        super().__init__(INDEX)
        self.before = before
        self.calls: list[int | None] = []
        self.locked_mhz: int | None = None
        self.moved_mhz: int | None = None
        self.reasons = EventReason.NONE
        self.able = Capabilities((1410, 1200, 900, 705), (1593,), True, None, 0.1, 0.0)
        self.refuses: DeviceError | None = None
        self.refuses_mhz: set[int] = set()
        self.refused: set[int] = set()
        self.power = OperatorSettings()
        self.closed = 0

    def capabilities(self) -> Capabilities:
        return self.able

    def refused_mhz(self) -> frozenset[int]:
        return frozenset(self.refused)

    def without_persistence(self) -> Self:
        self.able = replace(self.able, persistence=False)
        return self

    def lock_clock(self, clock_mhz: int) -> None:
        self._set(clock_mhz)

    def reset_clock(self) -> None:
        self._set(None)

    def achieved(self) -> Achieved:
        return Achieved(self.moved_mhz or self.locked_mhz or 1410, self.reasons)

    def operator_settings(self) -> OperatorSettings:
        return self.power

    def close(self) -> None:
        self.closed += 1

    def _set(self, clock_mhz: int | None) -> None:
        self.before(clock_mhz)
        if clock_mhz in self.refuses_mhz:
            self.refused.add(clock_mhz)
            raise ValueRefusedError(f"lock {clock_mhz} MHz: refused")
        if self.refuses is not None:
            raise self.refuses
        self.calls.append(clock_mhz)
        self.locked_mhz = clock_mhz
