"""Real launchers over two hosts: torchrun and its restarts, and what srun sets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hosts import PORT, Hosts, Launched, hosts, launched, srun, torchrun
from replicas import planned_job

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1200)]

FORWARD_S = (0.4, 0.5)
SOON = 5
"""The first iteration that a plan runs comes within so many of the start."""


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job of two stages and two replicas: its configuration, and in ``run`` its plan."""
    folder = tmp_path_factory.mktemp("launched")
    content = planned_job(folder, ranks=4, forward_s=FORWARD_S)
    (folder / "content.json").write_text(json.dumps(content))
    return folder


def on(network: Hosts, planned: Path) -> tuple[str, str]:
    """Put the plan on the first host's disk; return the arguments of a job there."""
    outside, run_dir = network.outside() / "run", network.disk / "run"
    outside.mkdir()
    (outside / "plan.json").write_text((planned / "run" / "plan.json").read_text())
    content = json.loads((planned / "content.json").read_text())
    content["perseus"]["run_dir"] = str(run_dir)
    settings = planned / f"{network.switch.pid}.json"
    settings.write_text(json.dumps(content))
    return str(settings), str(run_dir / "stop")


def first_planned(one: Launched) -> list[int]:
    mine = [step for step in one.steps if step.rank == 0]
    begins = [
        step
        for step, before in zip(mine, [None, *mine], strict=False)
        if before is None or not before.planned
    ]
    return [step.step for step in begins if step.planned]


def test_torchrun_restarts_with_fewer_replicas(planned: Path, tmp_path: Path) -> None:
    with hosts() as network:
        words = on(network, planned)
        with launched(tmp_path / "torchrun") as one:
            torchrun(one, network, *words, nnodes="1:2")
            one.wait(lambda: len([step for step in one.steps if step.planned]) > 20)
            assert {step.rank for step in one.steps} == {0, 1, 2, 3}
            one.kill(1)
            one.wait(lambda: len(first_planned(one)) == 2)
            assert "2 replicas" in one.output
            assert "1 replica" in one.output
            assert all(step <= SOON for step in first_planned(one))


def test_what_slurm_starts_is_killed_and_started_again_by_hand(planned: Path, tmp_path: Path) -> None:
    with hosts() as network:
        words = on(network, planned)
        with launched(tmp_path / "first") as one:
            srun(one, network, *words, port=PORT)
            one.wait(lambda: bool(first_planned(one)))
            one.kill()
        with launched(tmp_path / "second") as other:
            srun(other, network, *words, port=PORT + 1)
            other.wait(lambda: bool(first_planned(other)))
            (network.outside() / "run" / "stop").touch()
            assert other.ends() == [0] * 4
            assert "2 replicas" in other.output
            assert first_planned(one)[0] <= SOON
            assert first_planned(other)[0] <= SOON
