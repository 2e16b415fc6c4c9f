"""A GPU whose clock, speed or nothing at all changes under its plan, and what the job makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from lone_job import Loop, alone, begun, block_of, events_of, gpu, names_of, train

from perseus_ds.profile import Profile, read_profile

pytestmark = pytest.mark.thorough
LEARNED = 45
NO_AUDITS = {"every_iterations": 0}


@pytest.fixture(scope="module", autouse=True)
def process_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with alone(tmp_path_factory.mktemp("group") / "store"):
        yield


@dataclass
class Job:
    """A job that has run its plan for long enough to know its levels."""

    run_dir: Path
    loop: Loop
    end: Callable[[], None]

    def goes_on(self, iterations: int) -> None:
        for _ in range(iterations):
            self.loop.step()

    def until(self, event: str, times: int = 1) -> int:
        """Go on until an event has come so often; return for how many iterations."""
        began = self.loop.iterations
        train(self.loop, self.run_dir, lambda names: names.count(event) == times)
        return self.loop.iterations - began

    def facts(self, event: str) -> dict[str, object]:
        return [one for one in events_of(self.run_dir) if one["event"] == event][-1]

    @property
    def profile(self) -> Profile:
        return read_profile(self.run_dir / "profile.json")


def job_of(run_dir: Path, drift: str = "automatic") -> Job:
    block = block_of(run_dir, audit=NO_AUDITS)
    block["profile"] = cast("dict[str, object]", block["profile"]) | {"drift": drift, "settle_s": 0.0}
    loop = Loop()
    session = begun(loop, block)
    job = Job(run_dir, loop, lambda: session.end(well=True))
    job.until("running")
    job.goes_on(LEARNED)
    assert "drift" not in names_of(run_dir)
    return job


def test_a_gpu_that_becomes_slower_is_measured_again_and_planned_anew(tmp_path: Path) -> None:
    job = job_of(tmp_path / "run")
    before = job.profile
    gpu().slowness = 1.03
    assert job.until("drift") <= 20
    job.until("running", 2)
    assert "profiling" in names_of(job.run_dir)[-4:]
    for key in before.points:
        times_s = {old.clock_mhz: old.time_s for old in before.of(*key)}
        for new in job.profile.of(*key):
            if new.clock_mhz in times_s:
                assert new.time_s / times_s[new.clock_mhz] == pytest.approx(1.03, abs=0.008)
    job.end()


def test_with_report_the_plan_runs_on_and_it_is_reported_once(tmp_path: Path) -> None:
    job = job_of(tmp_path / "run", "report")
    before = (job.run_dir / "profile.json").read_text()
    gpu().slowness = 1.03
    assert job.until("drift") <= 20
    assert "profile.drift" in str(job.facts("drift")["line"])
    job.goes_on(40)
    assert names_of(job.run_dir).count("drift") == 1
    assert names_of(job.run_dir).count("running") == 1
    assert (job.run_dir / "profile.json").read_text() == before
    job.end()


def test_a_gpu_that_is_held_down_is_told_with_its_reason(tmp_path: Path) -> None:
    job = job_of(tmp_path / "run", "report")
    gpu().throttle(1000)
    assert job.until("drift") <= 20
    assert str(job.facts("drift")["cause"]).startswith("heat")
    job.end()


def test_with_never_nothing_is_looked_for(tmp_path: Path) -> None:
    job = job_of(tmp_path / "run", "never")
    gpu().slowness = 1.1
    job.goes_on(40)
    assert "drift" not in names_of(job.run_dir)
    assert str(job.facts("drift_not_watched")["reason"]).startswith("profile.drift")
    job.end()


def test_a_room_that_becomes_15_k_warmer_is_found_with_its_reason(tmp_path: Path) -> None:
    job = job_of(tmp_path / "run", "report")
    gpu().warm_room(15.0)
    assert job.until("drift") <= 20
    assert "K warmer" in str(job.facts("drift")["cause"])
    job.end()


def test_a_drift_is_judged_once(tmp_path: Path) -> None:
    """What ranks report of levels that are forgotten by then was judged once more, and was nothing."""
    job = job_of(tmp_path / "run", "report")
    gpu().grow_hungry(1.05)
    assert job.until("drift") <= 20
    assert job.facts("drift")["cause"] == "more power"
    job.goes_on(5)
    assert "no_drift" not in names_of(job.run_dir)
    job.end()
