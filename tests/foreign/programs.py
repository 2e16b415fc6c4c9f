"""Start a job of somebody else, with us and without, and judge what came of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import installed
import pytest
from ranks import free_port

JOBS = Path(__file__).parent / "theirs"
COURSE = ("attached", "profiled", "running", "measured")
SURELY = 2.0
"""Of the errors of measured figures, which one comparison in twenty exceeds by chance."""
ROUNDED_PCT = 0.05  # the line's error has one decimal
MOST_TIME_WITHIN_PCT = 1.5
"""Two runs per clock at 0.5 % noise tell the expected time at least that well."""
TAKES_10_PCT = {"policy": "max_slowdown", "max_slowdown_pct": 10.0}


@dataclass(frozen=True)
class Done:
    """How a job ended: what it printed, each rank's losses bit by bit, its steps, our journal."""

    printed: str
    losses: list[list[str]]
    steps: int
    events: list[dict[str, Any]]

    def event(self, name: str) -> dict[str, Any]:
        """The first event of that name."""
        return next(one for one in self.events if one["event"] == name)


def needed() -> Path:
    """The folder of the foreign frameworks; a test that finds none is skipped."""
    if not installed.folder().exists():
        pytest.skip(f"{installed.REQUIREMENTS.name} is not installed: python tests/foreign/installed.py")
    return installed.folder()


def environment(folder: Path) -> dict[str, str]:
    """What a job of somebody else finds: its frameworks, and no network."""
    ours = {name for name in os.environ if name.startswith(("PERSEUS_", "FOREIGN_"))}
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return kept | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(needed()),
        "PYTHONWARNINGS": "ignore",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "hub"),
        "OMP_NUM_THREADS": "1",
        "DS_ACCELERATOR": "cpu",
        "TORCH_EXTENSIONS_DIR": str(installed.ROOT / ".cache" / "torch_extensions"),
    }


def block(run_dir: Path, **changes: object) -> dict[str, Any]:
    """A perseus block whose whole course takes seconds."""
    return {
        "enabled": True,
        "mode": "automatic",
        "run_dir": str(run_dir),
        "device": "simulated",
        "on_error": "raise",
        "objective": TAKES_10_PCT,
        "profile": {"min_window_s": 4.0, "max_clocks": 4, "warmup_iterations": 2},
        "audit": {"every_iterations": 6, "iterations": 4},
        **changes,
    }


def torchrun(ranks: int) -> list[str]:
    """PyTorch's launcher, for so many ranks on this node."""
    return [
        "torchrun",
        "--nproc_per_node",
        str(ranks),
        "--master_port",
        str(free_port()),
        "--log_dir",
        "logs",
    ]


def run(command: Sequence[str | Path], folder: Path, *, steps: int | None = None, **more: str) -> Done:
    """Run a job for so many steps, or until our saving is measured (``folder`` / "run")."""
    run_dir, out = folder / "run", folder / f"losses-{steps}"
    ends = {"FOREIGN_UNTIL": "measured"} if steps is None else {"FOREIGN_STEPS": str(steps)}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=environment(folder) | ends | {"FOREIGN_RUN_DIR": str(run_dir), "FOREIGN_OUT": str(out)} | more,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed[-6000:]
    ranks = [json.loads(path.read_text()) for path in sorted(folder.glob(f"{out.name}.*"))]
    file = run_dir / "events.jsonl"
    events = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return Done(printed, [one["losses"] for one in ranks], ranks[0]["steps"], events)


def judge(served: Done, plain: Done, *, most_slowdown_pct: float) -> None:
    """The same losses to the last bit; the whole course; figures within their stated error."""
    assert served.losses == plain.losses
    assert all(losses for losses in served.losses)
    assert "perseus: " not in plain.printed
    names = [one["event"] for one in served.events]
    course = dict.fromkeys(name for name in names if name in COURSE)  # a plan that keeps a limit may follow
    assert list(course) == list(COURSE), names
    measured = served.event("measured")
    found = re.search(r"measured: .*?\+- ([\d.]+) % energy saved.*?\+- ([\d.]+) %", measured["line"])
    assert found is not None, measured["line"]
    saving_error, time_error = (SURELY * float(error) for error in found.groups())
    expected = served.event("running")
    apart_pct = abs(measured["saving_pct"] - expected["predicted_saving_pct"])
    assert apart_pct <= saving_error + expected["predicted_saving_within_pct"] + ROUNDED_PCT, measured["line"]
    later_pct = abs(measured["slowdown_pct"] - expected["predicted_slowdown_pct"])
    time_within_pct = expected["predicted_slowdown_within_pct"]
    assert later_pct <= time_error + time_within_pct, measured["line"]
    assert time_within_pct <= MOST_TIME_WITHIN_PCT
    assert measured["saving_pct"] > 3.0
    assert measured["slowdown_pct"] <= most_slowdown_pct + time_error + time_within_pct


def written(path: Path, content: Mapping[str, object]) -> Path:
    """Write a configuration as JSON."""
    path.write_text(json.dumps(content))
    return path
