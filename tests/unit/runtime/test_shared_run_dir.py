"""Two jobs of one folder: results apart, and one line that names the other; a plan in a read-only folder."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from lone_job import block_of

SUPPORT = Path(__file__).parents[2] / "support"
JOB = """
import sys, json
from pathlib import Path
from lone_job import Loop, LoopAdapter, alone
from perseus_ds.runtime.attach import activate, session_of
store, block, microbatches, iterations = Path(sys.argv[1]), json.loads(sys.argv[2]), *sys.argv[3:]
with alone(store):
    loop = Loop(int(microbatches))
    activate(loop, lambda: LoopAdapter(loop), block=block)
    for _ in range(int(iterations)):
        loop.step()
"""
ITERATIONS = 150
BOUND_BY_PERMISSIONS = ["setpriv", "--bounding-set", "-dac_override"] if os.geteuid() == 0 else []


@dataclass(frozen=True)
class IterationResult:
    microbatches: int
    said: str

    def lines(self, word: str) -> list[str]:
        return [line for line in self.said.splitlines() if line.startswith("perseus:") and word in line]


def start(
    folder: Path, microbatches: int, run_dir: Path, *, cwd: Path | None = None, **block: object
) -> subprocess.Popen[str]:
    """A job of one rank in a process of its own, for which the permissions of files hold, root's too."""
    words = [str(folder / f"store{random.random()}"), json.dumps(block_of(run_dir, **block))]
    return subprocess.Popen(
        [*BOUND_BY_PERMISSIONS, sys.executable, "-c", JOB, *words, str(microbatches), str(ITERATIONS)],
        cwd=cwd or folder,
        env={**os.environ, "PYTHONPATH": str(SUPPORT), "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(job: subprocess.Popen[str], microbatches: int) -> IterationResult:
    said, _ = job.communicate(timeout=240)
    assert job.returncode == 0, said
    return IterationResult(microbatches, said)


def test_two_jobs_of_one_folder_have_results_of_their_own(tmp_path: Path) -> None:
    """Jobs have the figures of their own batches, each in its directory; the second logs that."""
    audit = {"every_iterations": 20, "iterations": 5}
    started = [(start(tmp_path, size, tmp_path / "run", audit=audit), size) for size in (4, 6)]
    jobs = [ended(job, size) for job, size in started]
    told = [job.lines("in use") for job in jobs]
    assert sorted(map(len, told)) == [0, 1]
    for job, lines in zip(jobs, told, strict=True):
        run_dir = tmp_path / ("run-2" if lines else "run")
        summary = json.loads((run_dir / "summary.json").read_text())
        events = [json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines()]
        assert summary["facts"]["microbatches"] == job.microbatches
        attached = [event["run"] for event in events if event["event"] == "attached"]
        assert attached == [summary["facts"]["run"]]
        [measured] = [line for line in job.said.splitlines() if "less energy" in line]
        assert f"{summary['saving_pct']:.1f}" in measured
        assert str(run_dir / "report.html") in job.said
        assert not (run_dir / "lock.json").exists()


@pytest.fixture(scope="module")
def handed_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory with a profile and a plan, which its reader may not write to."""
    folder = tmp_path_factory.mktemp("handed_out")
    ended(start(folder, 4, folder / "plans"), 4)
    (folder / "plans").chmod(0o555)
    return folder / "plans"


@pytest.mark.parametrize("may_write", [True, False])
def test_a_plan_that_cannot_be_written_to_is_run(
    tmp_path: Path, handed_out: Path, *, may_write: bool
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    before = sorted(handed_out.rglob("*"))
    work.chmod(0o755 if may_write else 0o555)
    job = ended(start(tmp_path, 4, handed_out, cwd=work, mode="run", on_error="raise"), 4)
    assert len(job.lines("be written")) == 1
    assert not job.lines("not written"), "one line is enough"
    assert "less energy" in job.said
    assert (work / "perseus_runs" / "plans" / "summary.json").exists() == may_write
    assert sorted(handed_out.rglob("*")) == before
