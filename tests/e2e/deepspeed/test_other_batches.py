"""Evaluation between steps, and batches of another size: no plan is played to what it was not made for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from jobs import STAGES, UNEVEN, Lifecycle, block, copy_of, lines, watched_gpus
from ranks import batches, build, config, run_ranks

pytestmark = pytest.mark.e2e

WARM_UP = 6
OTHER = 3


@dataclass(frozen=True)
class Seen:
    """Losses of every step, and the clocks asked for within each part of the job."""

    losses: list[str]
    asked: dict[str, int]


def resized(rank: int, content: Mapping[str, Any]) -> Seen:
    """Run a plan, train batches of six microbatches instead of four, and go back."""
    gpus = watched_gpus()
    engine = build(content, stages=STAGES, inner=UNEVEN)
    data, losses, asked = batches(), [], {}

    def some(steps: int, active_plan: str) -> None:
        before = gpus.locks
        losses.extend(float(engine.train_batch(data)).hex() for _ in range(steps))
        asked[active_plan] = gpus.locks - before

    some(WARM_UP, "at first")
    engine.set_train_batch_size(12)
    some(1, "switching")
    some(OTHER, "with others")
    engine.set_train_batch_size(8)
    some(WARM_UP, "back again")
    return Seen(losses, asked)


@pytest.mark.slow
def test_microbatches_that_no_plan_is_for_run_at_default_clocks(
    lifecycle: Lifecycle, tmp_path: pytest.TempPathFactory
) -> None:
    run_dir = copy_of(lifecycle.run_dir, tmp_path / "resized")
    said = run_ranks(4, resized, config(perseus=block(run_dir, mode="run")))
    plain = run_ranks(4, resized, config())
    assert [one.value.losses for one in said] == [one.value.losses for one in plain]
    for one in said[:-1]:  # the last stage is on the critical path throughout
        assert one.value.asked["at first"] > 0
        assert one.value.asked["with others"] == 0
        assert one.value.asked["back again"] > 0
        about = [line for line in lines(said[0]) if "6 microbatches" in line]
    assert [str(run_dir) in line for line in about] == [True]


def evaluated(rank: int, content: Mapping[str, Any], steps: int) -> list[str]:
    """Evaluate after every third step."""
    engine = build(content, stages=STAGES, inner=UNEVEN)
    data, losses = batches(), []
    for step in range(steps):
        losses.append(float(engine.train_batch(data)).hex())
        if step % 3 == 2:
            losses.append(float(engine.eval_batch(data)).hex())
    assert ("_exec_schedule" in vars(engine)) == ("perseus" in content)
    return losses


def test_evaluation_between_steps(lifecycle: Lifecycle, tmp_path: pytest.TempPathFactory) -> None:
    run_dir = copy_of(lifecycle.run_dir, tmp_path / "evaluated")
    said = run_ranks(4, evaluated, config(perseus=block(run_dir)), 12)
    plain = run_ranks(4, evaluated, config(), 12)
    assert [one.value for one in said] == [one.value for one in plain]
    assert any("running plan" in line for line in lines(said[0]))


@pytest.mark.slow
def test_evaluation_amid_profiling_spoils_no_window(tmp_path: pytest.TempPathFactory) -> None:
    """Windows that an evaluation broke into are measured again, and the profile is whole in the end."""
    said = run_ranks(4, evaluated, config(perseus=block(tmp_path, mode="profile")), 24)
    plain = run_ranks(4, evaluated, config(), 24)
    assert [one.value for one in said] == [one.value for one in plain]
    assert not any("off" in line for line in lines(said[0]))
