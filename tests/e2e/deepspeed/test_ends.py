"""However a job ends, it leaves what it has measured, or says why there is nothing."""

from __future__ import annotations

import atexit
import os
from pathlib import Path

import pytest
from jobs import STAGES, UNEVEN, Lifecycle, block, copy_of
from ranks import batches, build, config, run_ranks

pytestmark = pytest.mark.e2e


def to_its_end(rank: int, content: dict[str, object], steps: int) -> None:
    """Train, and run the exit handlers of ours: `run_ranks` ends by ``os._exit``.

    The job's folder has a module by the name of one of ours, as folders of users do.
    """
    atexit._clear()  # those of pytest, which this process was forked from
    run_dir = Path(str(content["perseus"]["run_dir"]))  # type: ignore[index]
    os.chdir(run_dir.parent)
    if rank == 0:
        Path("numpy.py").write_text("raise RuntimeError('no module of theirs is ours')")
    engine, data = build(content, stages=STAGES, inner=UNEVEN), batches()
    for _ in range(steps):
        engine.train_batch(data)
    atexit._run_exitfuncs()


@pytest.mark.parametrize(("steps", "measured"), [(6, False), (40, True)])
@pytest.mark.slow
def test_a_job_leaves_its_report_or_the_reason_for_its_absence(
    lifecycle: Lifecycle,
    tmp_path: Path,
    steps: int,
    measured: bool,  # noqa: FBT001
) -> None:
    run_dir = copy_of(lifecycle.run_dir, tmp_path / "run")
    content = config(gradient_clipping=1.0, perseus=block(run_dir))
    said = run_ranks(4, to_its_end, content, steps)[0].output
    assert ("no saving" in said) == (not measured)
    assert ("report.html" in said) == (run_dir / "report.html").exists() == measured
