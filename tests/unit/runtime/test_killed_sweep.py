"""A job that is killed while it profiles: the next start measures what is missing, and nothing twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lone_job import Loop, alone, begun, block_of, events_of, names_of, train

from perseus_ds.profile import Profile, read_profile

pytestmark = pytest.mark.thorough
SUPPORT = Path(__file__).parents[2] / "support"
KILLED = """
import os, signal, sys
from pathlib import Path
from lone_job import Loop, alone, begun, block_of, names_of

run_dir = Path(sys.argv[1])
with alone(run_dir.parent / "store"):
    loop = Loop()
    begun(loop, block_of(run_dir))
    while names_of(run_dir).count("profiling") < 1 + 2:
        loop.step()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module", autouse=True)
def process_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with alone(tmp_path_factory.mktemp("group") / "store"):
        yield


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a job leaves that was killed after two windows."""
    run_dir = tmp_path_factory.mktemp("killed") / "run"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(run_dir)],
        env={**os.environ, "PYTHONPATH": str(SUPPORT)},
        stdout=subprocess.DEVNULL,
        timeout=240,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert not (run_dir / "profile.json").exists()
    return run_dir


def copied(killed: Path, run_dir: Path) -> Path:
    run_dir.mkdir()
    (run_dir / "sweep.json").write_bytes((killed / "sweep.json").read_bytes())
    return run_dir


def profiled(run_dir: Path, **more: object) -> tuple[list[int], Profile]:
    """Profile to the end; the clocks that were measured, in their order, and what was written."""
    session = begun(loop := Loop(), block_of(run_dir, mode="profile", **more))
    train(loop, run_dir, lambda names: "profiled" in names)
    session.end(well=True)
    told = [event for event in events_of(run_dir) if event["event"] == "profiling"][1:]
    return [int(str(event["clock_mhz"])) for event in told], read_profile(run_dir / "profile.json")


@pytest.fixture(scope="module")
def unbroken(process_group: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[int], Profile]:
    return profiled(tmp_path_factory.mktemp("unbroken") / "run")


def test_it_measures_what_is_missing_and_the_highest_once_more(
    killed: Path, tmp_path: Path, unbroken: tuple[list[int], Profile]
) -> None:
    run_dir = copied(killed, tmp_path / "run")
    measured, profile = profiled(run_dir)
    whole, other = unbroken
    assert len(whole) == 4 + 1
    assert measured == whole[2:]
    assert not (run_dir / "sweep.json").exists()
    assert profile.clocks_mhz == other.clocks_mhz
    for key, points in profile.points.items():
        for point, same in zip(points, other.points[key], strict=True):
            assert point.time_s == pytest.approx(same.time_s, rel=0.01)
            assert point.energy_j == pytest.approx(same.energy_j, rel=0.02)
    [course] = [event for event in events_of(run_dir) if event["event"] == "profiled"]
    assert float(str(course["took_s"])) > 90.0, "both parts of it"


def test_windows_of_another_job_are_not_used(
    killed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = copied(killed, tmp_path / "run")
    measured, _ = profiled(run_dir, simulated={"noise": 0.004})
    assert len(measured) == 4 + 1
    assert f"{run_dir}/sweep.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (('"spread": ', '"spread": 1'), "changed since"),
        (('"perseus-sweep"', '"else"'), "version"),
        (("{", ""), "JSON"),
    ],
)
def test_a_file_that_was_changed_is_not_used(
    killed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], why: str
) -> None:
    run_dir = copied(killed, tmp_path / "run")
    file = run_dir / "sweep.json"
    file.write_text(file.read_text().replace(*change, 1))
    session = begun(loop := Loop(), block_of(run_dir, mode="profile"))
    train(loop, run_dir, lambda names: names.count("profiling") == 1)
    session.end(well=True)
    told = capsys.readouterr().err
    assert str(file) in told
    assert why in told
    assert "4 clocks" in told


def test_who_profiles_anew_at_every_start_begins_anew(killed: Path, tmp_path: Path) -> None:
    run_dir = copied(killed, tmp_path / "run")
    profile = {"min_window_s": 1.0, "max_clocks": 4, "warmup_iterations": 1, "reuse": False}
    session = begun(loop := Loop(), block_of(run_dir, profile=profile))
    train(loop, run_dir, lambda names: "profiling" in names)
    [begin] = [event for event in events_of(run_dir) if event["event"] == "profiling"]
    session.end(well=True)
    assert begin["done"] == 0


def test_a_directory_that_cannot_be_written_costs_the_way_back_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = tmp_path / "run"
    (run_dir / "sweep.json").mkdir(parents=True)
    session = begun(loop := Loop(), block_of(run_dir, mode="profile"))
    train(loop, run_dir, lambda names: names.count("profiling") == 2)
    assert "begin anew" in capsys.readouterr().err
    assert loop.listener is not None
    session.end(well=True)
    assert "disabled" not in names_of(run_dir)
    assert json.loads((run_dir / "events.jsonl").read_text().splitlines()[0])
