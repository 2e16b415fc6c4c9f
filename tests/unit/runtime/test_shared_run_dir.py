"""Two jobs of one folder: results apart, and one line that names the other; a plan in a read-only folder."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from lone_job import block_of, events_of

SUPPORT = Path(__file__).parents[2] / "support"
JOB = """
import sys, json
from pathlib import Path
from lone_job import Loop, LoopAdapter, alone
from perseus_ds.runtime.attach import activate
store, block, microbatches = Path(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3])
with alone(store):
    loop = Loop(microbatches)
    activate(loop, lambda: LoopAdapter(loop), block=block)
    for _ in range(150):
        loop.step()
"""

Job = subprocess.Popen[str]
BOUND_BY_PERMISSIONS = ["setpriv", "--bounding-set", "-dac_override"] if os.geteuid() == 0 else []


def start(folder: Path, run_dir: Path, size: int = 4, *, cwd: Path | None = None, **more: object) -> Job:
    """A job of one rank in a process of its own, for which the permissions of files hold, root's too."""
    words = (folder / f"store{random.random()}", json.dumps(block_of(run_dir, **more)), size)
    return subprocess.Popen(
        [*BOUND_BY_PERMISSIONS, sys.executable, "-c", JOB, *map(str, words)],
        cwd=cwd or folder,
        env={**os.environ, "PYTHONPATH": str(SUPPORT), "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def said(job: Job) -> str:
    said, _ = job.communicate(timeout=240)
    assert job.returncode == 0, said
    return said


def lines(said: str, words: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith("perseus:") and words in line]


def test_two_jobs_of_one_folder_have_results_of_their_own(tmp_path: Path) -> None:
    """Jobs have the figures of their own batches, each in its directory; the second logs that."""
    sizes, audit = (4, 6), {"every_iterations": 20, "iterations": 5}
    texts = list(map(said, [start(tmp_path, tmp_path / "run", size, audit=audit) for size in sizes]))
    told = [lines(text, "in use") for text in texts]
    assert sorted(map(len, told)) == [0, 1]
    for size, text, second in zip(sizes, texts, told, strict=True):
        run_dir = tmp_path / ("run-2" if second else "run")
        summary = json.loads((run_dir / "summary.json").read_text())
        assert summary["facts"]["microbatches"] == size
        assert [event["run"] for event in events_of(run_dir, "attached")] == [summary["facts"]["run"]]
        [measured] = [line for line in text.splitlines() if "less energy" in line]
        assert f"{summary['saving_pct']:.1f}" in measured
        assert str(run_dir / "report.html") in text
        assert not (run_dir / "lock.json").exists()


@pytest.fixture(scope="module")
def handed_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory with a profile and a plan, which its reader may not write to."""
    folder = tmp_path_factory.mktemp("handed_out")
    said(start(folder, folder / "plans"))
    (folder / "plans").chmod(0o555)
    return folder / "plans"


@pytest.mark.parametrize("may_write", [True, False])
def test_a_plan_in_a_read_only_folder_is_run(tmp_path: Path, handed_out: Path, *, may_write: bool) -> None:
    work = tmp_path / "work"
    work.mkdir(mode=0o755 if may_write else 0o555)
    before = sorted(handed_out.rglob("*"))
    text = said(start(tmp_path, handed_out, cwd=work, mode="run", on_error="raise"))
    assert len(lines(text, "be written")) == 1
    assert not lines(text, "not written"), "one line is enough"
    assert "less energy" in text
    assert (work / "perseus_runs" / "plans" / "summary.json").exists() == may_write
    assert sorted(handed_out.rglob("*")) == before
