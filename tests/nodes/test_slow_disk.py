"""A job whose run directory lies on a network disk: slow, stale, and late to show what others wrote."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hosts import PORT, hosts, launched, srun
from jobs import block, events
from ranks import config

from perseus_ds.cli.main import main

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

SOURCE = Path(__file__).parents[1] / "nodes" / "slow_disk.c"
SLOW_S, CACHE_S, STALE = 0.3, 3.0, 7


@dataclass(frozen=True)
class Job:
    """What a job printed and wrote; ``touched``: its training threads used the disk, s since 1970."""

    losses: list[str]
    events: list[dict[str, Any]]
    output: str
    touched: list[tuple[float, str]]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("no C compiler: the slow disk is a library that is preloaded")
    library = tmp_path_factory.mktemp("disk") / "slow_disk.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
    return library


def trained(folder: Path, library: Path | None) -> Job:
    run_dir, notes, stop = folder / "disk" / "run", folder / "notes", folder / "stop"
    content = config() if library is None else config(perseus=block(run_dir))
    (folder / "content.json").write_text(json.dumps(content))
    with hosts(1) as network, launched(folder) as one:
        if library is not None:
            network.environment |= {
                "LD_PRELOAD": str(library),
                "SLOW_DISK": str(run_dir.parent),
                "SLOW_DISK_S": str(SLOW_S),
                "SLOW_DISK_CACHE_S": str(CACHE_S),
                "SLOW_DISK_STALE": str(STALE),
                "SLOW_DISK_NOTES": str(notes),
            }
        srun(one, network, str(folder / "content.json"), str(stop), port=PORT)
        if library is None:
            one.wait(lambda: len(one.steps) > 100)
        else:
            one.wait(lambda: sum(event["event"] == "measured" for event in events(run_dir)) >= 2)
        ranks = one.ranks
        stop.touch()
        assert one.ends() == [0, 0]
        journal = [] if library is None else events(run_dir)
        losses = [step.loss for step in one.steps if step.rank == 0]
        return Job(losses, journal, one.output, [] if library is None else _touched(notes, ranks))


def _touched(notes: Path, ranks: set[int]) -> list[tuple[float, str]]:
    rows = [line.split(maxsplit=3) for line in notes.read_text().splitlines()]
    return [(float(at_s), f"{call} {name}") for pid, at_s, call, name in rows if int(pid) in ranks]


def _times_s(job: Job, name: str) -> list[float]:
    times = (event["time"] for event in job.events if event["event"] == name)
    return [datetime.fromisoformat(one).timestamp() for one in times]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, library: Path) -> Job:
    return trained(tmp_path_factory.mktemp("slow"), library)


def test_it_is_profiled_planned_run_and_measured(job: Job) -> None:
    names = [event["event"] for event in job.events]
    assert {"profiled", "running", "measured"} <= set(names)
    assert not {"disabled", "alone"} & set(names)


def test_losses_are_those_without_us(job: Job, tmp_path: Path) -> None:
    plain = trained(tmp_path, None).losses
    both = min(len(plain), len(job.losses))
    assert both > 10
    assert job.losses[:both] == plain[:both]


def test_the_training_thread_never_touches_the_disk_once_the_plan_runs(job: Job) -> None:
    """Rank 0 reads the profile as the plan begins, and at the first audit."""
    began_s, audited_s = _times_s(job, "running")[0], _times_s(job, "measured")
    late = [name for at_s, name in job.touched if at_s > began_s]
    assert len(job.touched) > len(late), "nothing was noted before the plan: nothing was looked at"
    assert all(name.endswith("profile.json") for name in late)
    assert len(late) <= 4
    assert [name for at_s, name in job.touched if at_s > audited_s[1]] == []


def test_the_slow_disk_is_one_line(job: Job) -> None:
    assert job.output.count("is slow") <= 1


def test_the_report_is_made_of_what_is_there(job: Job, tmp_path_factory: pytest.TempPathFactory) -> None:
    (run_dir,) = tmp_path_factory.getbasetemp().glob("slow0/disk/run")
    assert main(["report", str(run_dir)]) == 0
