"""A rank that cannot be served: all are off at once with its reason, and train on as without us."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from adapter_contract import Noting
from deepspeed_hosts import one_f_one_b
from jobs import lines
from pipelines import Pipeline
from ranks import build, config, losses, run_ranks
from torch.distributed.pipelining import schedules

import perseus_ds
from perseus_ds.adapters.megatron import PASSES
from perseus_ds.errors import PerseusError

pytestmark = pytest.mark.e2e

STEPS = 3
REFUSING = 1
Losses = list[Any]


def block(run_dir: Path) -> dict[str, Any]:
    return {"enabled": True, "run_dir": str(run_dir), "device": "simulated", "mode": "observe"}


def deepspeed(rank: int, perseus: Mapping[str, Any] | None) -> Losses:
    """A file named by a single node's environment, beside the job's own block."""
    if rank == REFUSING and perseus is not None:
        os.environ["PERSEUS_CONFIG"] = "elsewhere.json"
    return losses(build(config(4, perseus=perseus), stages=2), STEPS)


def deepspeed_of_another_release(rank: int, perseus: Mapping[str, Any] | None) -> Losses:
    """Its engine lacks a name that is needed from the beginning on."""
    engine = one_f_one_b(2)
    if rank == REFUSING:
        del engine.micro_batch_size
    if perseus is not None:
        perseus_ds.attach(engine, config=perseus)
    return losses(engine, STEPS)


def megatron_heard_by_another(rank: int, perseus: Mapping[str, Any] | None) -> Losses:
    """All is agreed on and every device open when one rank finds hooks of ours on its model."""
    from megatron_jobs import Job, Shape, adapter_of

    job = Job(Shape(2))
    before = [getattr(job.schedules, name) for name in PASSES]
    if perseus is not None:
        perseus_ds.attach(job.schedules, config=perseus)
        if rank == REFUSING:
            adapter_of(job).install(Noting())
    job.run_pass = job.schedules.get_forward_backward_func()
    losses = [job.step() for _ in range(STEPS)]
    assert rank == REFUSING or [getattr(job.schedules, name) for name in PASSES] == before
    return losses


def pipelining(rank: int, perseus: Mapping[str, Any] | None) -> Losses:
    pipeline = Pipeline("ZBV", 4)
    if rank == REFUSING:
        pipeline.schedule.register_custom_function(schedules.UNSHARD, lambda action, context: None)
    if perseus is not None:
        perseus_ds.attach(pipeline.schedule, config=perseus)
    return [pipeline.train() for _ in range(STEPS)]


REASONS: dict[Callable[[int, Mapping[str, Any] | None], Losses], str] = {
    deepspeed: "the configuration has a perseus block, and PERSEUS_CONFIG=elsewhere.json names another",
    deepspeed_of_another_release: "PipelineEngine.micro_batch_size, used for recognising the job",
    megatron_heard_by_another: "perseus_ds is installed on this model already",
    pipelining: "custom functions are registered for UNSHARD",
}


@pytest.mark.parametrize("job", REASONS, ids=lambda job: job.__name__)
def test_all_ranks_are_off_at_once_with_its_reason(tmp_path: Path, job: Callable[..., Losses]) -> None:
    if job is megatron_heard_by_another:
        pytest.importorskip("megatron.core", reason="megatron-core is not installed")
    said = run_ranks(2, job, block(tmp_path / "run"))
    (line,) = [line for one in said for line in lines(one) if "off, training goes on" in line]
    assert f": rank {REFUSING}: " in line
    assert REASONS[job] in line
    assert [one.value for one in said] == [one.value for one in run_ranks(2, job, None)]


def test_where_we_are_switched_off_nobody_minds(tmp_path: Path) -> None:
    asked = {**block(tmp_path / "run"), "on_error": "raise"}
    said = run_ranks(2, pipelining, asked, environment={"PERSEUS_MODE": "off"})
    assert [lines(one) for one in said] == [[], []]
    assert not (tmp_path / "run").exists()
    assert [one.value for one in said] == [one.value for one in run_ranks(2, pipelining, None)]


@pytest.mark.parametrize("job", [deepspeed, pipelining], ids=lambda job: job.__name__)
def test_on_error_raise_ends_every_rank_with_its_reason(tmp_path: Path, job: Callable[..., Losses]) -> None:
    asked = {**block(tmp_path / "run"), "on_error": "raise"}

    def refused(rank: int) -> str:
        try:
            job(rank, asked)
        except PerseusError as error:
            return str(error)
        return "trained on"

    answers = {one.value for one in run_ranks(2, refused)}
    assert len(answers) == 1
    assert f"rank {REFUSING}: " in answers.pop()
