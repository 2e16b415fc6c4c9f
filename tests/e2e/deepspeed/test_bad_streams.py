"""Schedules that never end or change between batches, ranks that disagree: one line, training goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deepspeed.runtime.pipe import schedule as pipe
from deepspeed.runtime.pipe.engine import PipelineEngine
from deepspeed_hosts import AllForwardsFirst, OwnEngine
from jobs import block, lines
from ranks import batches, build, config, run_ranks

pytestmark = pytest.mark.e2e

REPLICAS = 2
STEPS, FROM = 13, 5
OFF = "perseus: off, training goes on at default clocks: "
Host = Callable[[PipelineEngine, int, int], None]


class Endless(AllForwardsFirst):
    """Goes on for ever with nothing."""

    def steps(self) -> Iterator[list[object]]:
        yield from super().steps()
        while True:
            yield []


class UntilTheStep:
    """Instructions that an engine runs: it stops by itself after the optimizer's step."""

    def __init__(self, schedule: Endless) -> None:
        self._schedule = schedule

    def __getattr__(self, name: str) -> object:
        return getattr(self._schedule, name)

    def __iter__(self) -> Iterator[list[object]]:
        for step in self._schedule.steps():
            yield step
            if any(isinstance(command, pipe.OptimizerStep) for command in step):
                return


class StoppingEngine(OwnEngine):
    """Runs an endless schedule as far as the step."""

    def _train_schedule(self) -> Endless:
        return Endless(engine=self)

    def _exec_schedule(self, pipe_schedule: object) -> None:
        super()._exec_schedule(UntilTheStep(pipe_schedule))  # type: ignore[arg-type]


class OneByOne(AllForwardsFirst):
    """A schedule of each microbatch there and back; otherwise the same as all forwards first."""

    def steps(self) -> Iterator[list[object]]:
        for microbatch in range(self.micro_batches):
            yield [
                pipe.LoadMicroBatch(microbatch),
                pipe.ForwardPass(microbatch),
                pipe.BackwardPass(microbatch),
            ]
        yield [pipe.ReduceTiedGrads(), pipe.ReduceGrads(), pipe.OptimizerStep()]


class ChangingEngine(OwnEngine):
    """Runs another order from some step on."""

    def _train_schedule(self) -> AllForwardsFirst:
        return (OneByOne if self.global_steps >= FROM else AllForwardsFirst)(engine=self)


def endless(engine: PipelineEngine, rank: int, step: int) -> None:
    del rank, step
    engine.__class__ = StoppingEngine


def changing(engine: PipelineEngine, rank: int, step: int) -> None:
    del rank, step
    engine.__class__ = ChangingEngine


def apart_later(engine: PipelineEngine, rank: int, step: int) -> None:
    if step >= FROM:
        engine.micro_batches = 4 + 2 * rank


def trained(rank: int, host: Host, perseus: dict[str, Any] | None) -> tuple[list[str], bool]:
    engine, data, losses = build(config(4, perseus=perseus), stages=1), batches(rank), []
    for step in range(STEPS):
        host(engine, rank, step)
        losses.append(float(engine.train_batch(data)).hex())
    return losses, "_exec_schedule" in vars(engine)


@pytest.mark.parametrize(
    ("host", "said"),
    [
        (endless, "Endless"),
        (changing, "rank ran"),
        (apart_later, "6 microbatches"),
    ],
    ids=["never ends", "changes between batches", "ranks disagree"],
)
def test_one_line_and_training_goes_on(tmp_path: Path, host: Host, said: str) -> None:
    served = run_ranks(REPLICAS, trained, host, block(tmp_path))
    plain = run_ranks(REPLICAS, trained, host, None)
    assert [one.value for one in served] == [(one.value[0], False) for one in plain]
    told = [line for one in served for line in lines(one) if line.startswith(OFF)]
    assert [line for line in told if said not in line] == []
    assert len([line for line in lines(served[0]) if said in line]) == 1, told
    assert all(len(line) < 300 for line in told)
