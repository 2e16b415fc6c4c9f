"""A rank that dies, freezes or falls silent in our group: training goes on, or ends as without us."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jobs import lines, names
from ranks import PipelineEngine, build, losses, run_ranks
from replicas import Book, planned_job, straggle

from perseus_ds.runtime.attach import session_of

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

FORWARD_S = (0.4, 0.5)
ITERATIONS = 20
VICTIM, AT = 3, 8


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return planned_job(tmp_path_factory.mktemp("side"), ranks=4, forward_s=FORWARD_S)


@pytest.fixture
def content(planned: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    plan = Path(planned["perseus"]["run_dir"]) / "plan.json"
    (tmp_path / "plan.json").write_text(plan.read_text())
    return planned | {"perseus": planned["perseus"] | {"run_dir": str(tmp_path)}}


def without_us(content: dict[str, Any]) -> dict[str, Any]:
    return content | {"perseus": {"enabled": False}}


def plainly(rank: int, content: dict[str, Any], steps: int) -> list[str]:
    del rank
    return losses(build(content, stages=2), steps)


def plain_losses(content: dict[str, Any], steps: int) -> list[list[str]]:
    return [said.value for said in run_ranks(4, plainly, without_us(content), steps)]


def falling_silent(rank: int, content: dict[str, Any]) -> Book:
    """A rank trains on, left by us without a word: it does not take part in our exchange any more."""

    def fall_silent(engine: PipelineEngine, iteration: int) -> None:
        session = session_of(engine)
        if rank == VICTIM and iteration == AT and session is not None:
            session.leave()

    return straggle(rank, content, 2, {1: [(3, 99, 1.2)]}, ITERATIONS, act_on=fall_silent)


def test_a_silent_rank_ends_the_answers_to_stragglers_and_nothing_else(
    content: dict[str, Any], tmp_path: Path
) -> None:
    said = run_ranks(4, falling_silent, content)
    books = [one.value for one in said]
    assert [book.losses for book in books] == plain_losses(content, len(books[0].losses))
    assert [book.attached for book in books] == [rank != VICTIM for rank in range(4)]
    assert len([line for line in lines(said[0]) if "runs on" in line]) == 1
    assert names(tmp_path).count("alone") == 1
    assert books[0].plans[AT] != books[0].plans[0], "it answered the straggler before"
    assert books[0].plans[-1] == books[0].plans[0][:1], "the objective's plan, whatever the others do"


def freezing(rank: int, content: dict[str, Any]) -> Book:
    def freeze(rank: int, iteration: int) -> None:
        if rank == VICTIM and iteration == AT:
            subprocess.Popen(["sh", "-c", f"sleep 3; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)

    return straggle(rank, content, 2, {1: [(3, 99, 1.2)]}, ITERATIONS, act=freeze)


def test_a_rank_that_stands_still_for_a_while_is_waited_for_by_training_alone(
    content: dict[str, Any], tmp_path: Path
) -> None:
    books = [one.value for one in run_ranks(4, freezing, content)]
    assert [book.losses for book in books] == plain_losses(content, len(books[0].losses))
    assert "alone" not in names(tmp_path)
    assert books[0].plans[-1] != books[0].plans[0], "the straggler is still answered"
