"""A planner that gets no processor: the job says so, trains on, and runs its plan when there is one."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from hosts import beside, block, lived, node_at
from jobs import events, names, plain_losses
from ranks import config

from perseus_ds.runtime import plans

pytestmark = pytest.mark.e2e


def planners(run_dir: Path) -> list[int]:
    """The processes that plan for this run directory."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                words = (folder / "cmdline").read_bytes().decode().split("\0")
                if "perseus_ds.plan" in words and any(word.startswith(str(run_dir)) for word in words):
                    found.append(int(folder.name))
    return found


@pytest.mark.slow
def test_a_job_says_that_its_planner_gets_no_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "LONG_S", 1.0)  # the ranks are forked from here
    node, run_dir = node_at(tmp_path, call_us=300), tmp_path / "run"

    def starve(over: threading.Event) -> None:
        while not (stopped := planners(run_dir)) and not over.wait(0.005):
            pass
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        while "still_planning" not in names(run_dir) and not over.wait(0.05):
            pass
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)

    with beside(starve):
        said = lived(
            node, config(gradient_clipping=1.0, perseus=block(run_dir)), lambda at: "running" in names(at)
        )
    told = [event for event in events(run_dir) if event["event"] == "still_planning"]
    assert told[0]["lasted_s"] >= 1.0
    assert "still planning" in said[0].output
    assert names(run_dir).index("running") > names(run_dir).index("still_planning")
    losses = [one.value.losses for one in said]
    assert losses == plain_losses(len(losses[0]))
