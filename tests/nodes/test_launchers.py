"""Real launchers: torchrun and its restarts and what srun sets, over two hosts; and a slow network disk."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import fake_nvml
import pytest
from hosts import PORT, Hosts, Launched, hosts, launched, srun, torchrun
from jobs import block, events
from ranks import config
from replicas import losses_without_us, planned_job

from perseus_ds.cli.main import main

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
    """Rank 0's steps that a plan ran and the step before did not, a start each."""
    mine = [step for step in one.steps if step.rank == 0]
    before = [False, *(step.planned for step in mine)]
    return [step.step for step, earlier in zip(mine, before, strict=False) if step.planned > earlier]


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


# A run directory on a network disk: slow, stale, and late to show what others wrote.

SLOW_S, CACHE_S, STALE = 0.3, 3.0, 7


@pytest.fixture
def library(tmp_path: Path) -> Path:
    if (why_not := fake_nvml.missing_compiler()) is not None:
        pytest.skip(why_not)
    source = Path(__file__).with_name("slow_disk.c").read_text()
    return fake_nvml.compiled(tmp_path / "slow_disk.so", source, "-ldl")


def times_s(journal: list[dict[str, Any]], name: str) -> list[float]:
    times = (event["time"] for event in journal if event["event"] == name)
    return [datetime.fromisoformat(one).timestamp() for one in times]


def test_the_training_thread_touches_no_slow_disk_once_the_plan_runs(tmp_path: Path, library: Path) -> None:
    """Rank 0 reads the profile as the plan begins, and at the first audit. All else is as on any disk."""
    run_dir, notes, stop = tmp_path / "disk" / "run", tmp_path / "notes", tmp_path / "stop"
    (tmp_path / "content.json").write_text(json.dumps(config(perseus=block(run_dir))))
    with hosts(1) as network, launched(tmp_path) as one:
        network.environment |= {
            "LD_PRELOAD": str(library),
            "SLOW_DISK": str(run_dir.parent),
            "SLOW_DISK_S": str(SLOW_S),
            "SLOW_DISK_CACHE_S": str(CACHE_S),
            "SLOW_DISK_STALE": str(STALE),
            "SLOW_DISK_NOTES": str(notes),
        }
        srun(one, network, str(tmp_path / "content.json"), str(stop), port=PORT)
        one.wait(lambda: len(events(run_dir, "measured")) >= 2)
        ranks = one.ranks
        stop.touch()
        assert one.ends() == [0, 0]
    journal = events(run_dir)
    names = {event["event"] for event in journal}
    assert {"profiled", "running", "measured"} <= names
    assert not {"disabled", "alone"} & names
    assert one.output.count("is slow") <= 1
    losses = [step.loss for step in one.steps if step.rank == 0]
    assert losses == losses_without_us(config(), 2, 2, len(losses))[0]
    began_s, audited_s = times_s(journal, "running")[0], times_s(journal, "measured")
    rows = [line.split(maxsplit=3) for line in notes.read_text().splitlines()]
    touched = [(float(at_s), name) for pid, at_s, _, name in rows if int(pid) in ranks]
    late = [name for at_s, name in touched if at_s > began_s]
    assert len(touched) > len(late), "nothing was noted before the plan: nothing was looked at"
    assert all(name.endswith("profile.json") for name in late)
    assert len(late) <= 4
    assert [name for at_s, name in touched if at_s > audited_s[1]] == []
    assert main(["report", str(run_dir)]) == 0
