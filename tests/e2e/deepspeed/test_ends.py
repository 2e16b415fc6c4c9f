"""However a job ends, it leaves what it has measured, or says why there is nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from jobs import STAGES, UNEVEN, Lifecycle, block, copy_of, happened, lines, names
from ranks import batches, build, config, run_ranks

from perseus_ds.cli.job.after_job import leave
from perseus_ds.run_directory import RunDirectory, read_summary

pytestmark = pytest.mark.e2e

PATIENCE_S = 120.0


def eventually(said: Path, text: str) -> bool:
    """What rank 0's standard output says within a while."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        if said.exists() and text in said.read_text():
            return True
        time.sleep(0.2)
    return False


def to_a_file(rank: int, content: dict[str, object], said: str, steps: int, event: str | None) -> None:
    """Train, with rank 0's output in a file that outlives the harness; `run_ranks` ends by ``os._exit``.

    The job's folder has a module by the name of one of ours, as folders of users do.
    """
    os.chdir(Path(said).parent)
    if rank == 0:
        Path("numpy.py").write_text("raise RuntimeError('no module of theirs is ours')")
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
    engine, data = build(content, stages=STAGES, inner=UNEVEN), batches()
    run_dir = Path(str(content["perseus"]["run_dir"]))  # type: ignore[index]
    for _ in range(steps):
        engine.train_batch(data)
        if event is not None and happened(event)(run_dir):
            break


def run_of(run_dir: Path) -> str:
    """The run that a summary is of."""
    return str(read_summary(run_dir / "summary.json").facts["run"])


@pytest.mark.slow
def test_a_worker_that_ends_by_os_exit_before_the_first_audit_says_so(
    lifecycle: Lifecycle, tmp_path: Path
) -> None:
    run_dir = copy_of(lifecycle.run_dir, tmp_path / "run")
    said = tmp_path / "said"
    run_ranks(4, to_a_file, config(gradient_clipping=1.0, perseus=block(run_dir)), str(said), 6, None)
    assert eventually(said, "perseus: no saving was measured: it ended before the first audit")


@pytest.mark.slow
def test_a_worker_that_ends_by_os_exit_leaves_its_report(lifecycle: Lifecycle, tmp_path: Path) -> None:
    run_dir = copy_of(lifecycle.run_dir, tmp_path / "run")
    said = tmp_path / "said"
    content = config(gradient_clipping=1.0, perseus=block(run_dir))
    run_ranks(4, to_a_file, content, str(said), 40, None)
    assert "measured" in names(run_dir)
    assert eventually(said, "report.html")
    assert (run_dir / "report.html").exists()


def test_what_was_measured_needs_no_excuse(lifecycle: Lifecycle, capsys: pytest.CaptureFixture[str]) -> None:
    assert any("measured" in line for line in lines(lifecycle.said[0]))
    assert leave(RunDirectory(lifecycle.run_dir), run_of(lifecycle.run_dir)) == 0
    assert "no saving" not in capsys.readouterr().out
