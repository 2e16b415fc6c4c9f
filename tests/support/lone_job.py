"""A job whose loop computes nothing, mostly of one rank: simulated GPUs, virtual time, the whole course."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

from perseus_ds.config import parse
from perseus_ds.device.simulated.gpu import SimulatedGpu, opened
from perseus_ds.runtime.adapter import Batch, InstructionListener, Place, SyncPoint
from perseus_ds.runtime.comm.rendezvous import Meeting
from perseus_ds.runtime.lifecycle.session import Session
from perseus_ds.runtime.startup.begin import begin
from perseus_ds.schedule import Instruction, Kind, Schedule, validate

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
        """One iteration, in the order forward, backward, forward, ..."""
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

    def evaluate(self) -> None:
        """Something else than training."""
        if self.listener is not None:
            self.listener.other_schedule_begins()


class LoopAdapter:
    """What the runtime asks of a loop."""

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
        """A rank of the only stage of the only pipeline."""
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
        """Its order is the schedule."""
        schedule = Schedule("loop", self._loop.microbatches, (places[0].order,))
        validate(schedule)
        return schedule

    def traits(self) -> Mapping[str, str]:
        """A release."""
        return {"loop": "1.0"}

    def install(self, listener: InstructionListener) -> None:
        """Begin to listen."""
        self._loop.listener = listener

    def remove(self) -> None:
        """No more."""
        self._loop.listener = None

    def write_scalars(self, scalars: Mapping[str, float]) -> None:
        """Keep them."""
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
    """Serve a loop from its next iteration on."""
    return begin(LoopAdapter(loop), parse(block, {}), engine=1, meeting=Meeting())[0]


def train(loop: Loop, run_dir: Path, done: Callable[[list[str]], bool]) -> list[str]:
    """Iterate until the journal says so; the names of its events."""
    for _ in range(ENDLESS):
        loop.step()
        if done(names := names_of(run_dir)):
            return names
    raise AssertionError(f"not in {ENDLESS} iterations: {names_of(run_dir)}")


def gpu() -> SimulatedGpu:
    """The one that the last job opened."""
    return opened()[-1]


def events_of(run_dir: Path) -> list[dict[str, object]]:
    """The journal."""
    file = run_dir / "events.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def names_of(run_dir: Path) -> list[str]:
    """What its events are called."""
    return [str(event["event"]) for event in events_of(run_dir)]


@contextmanager
def alone(store: Path) -> Iterator[None]:
    """This process is the whole job."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()
