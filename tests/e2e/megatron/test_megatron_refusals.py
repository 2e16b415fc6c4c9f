"""Jobs of megatron-core switched on by a file, refused, or beside another model: training is untouched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import block, events
from ranks import run_ranks

pytest.importorskip("megatron.core", reason="megatron-core is not installed")

from megatron_jobs import Job, Shape

from perseus_ds.adapters import megatron as adapter

pytestmark = pytest.mark.e2e

STEPS = 3


def plain(rank: int, shape: Shape) -> list[list[str]]:
    job = Job(shape)
    return [job.step() for _ in range(STEPS)]


def by_file(rank: int, shape: Shape, file: str) -> list[list[str]]:
    os.environ["PERSEUS_CONFIG"] = file
    job = Job(shape)
    adapter.watch(job.schedules)
    job.run_pass = job.schedules.get_forward_backward_func()
    return [job.step() for _ in range(STEPS)]


def test_a_file_switches_it_on(tmp_path: Path) -> None:
    file, shape = tmp_path / "perseus.json", Shape(2)
    file.write_text(json.dumps(block(tmp_path / "run", mode="observe")))
    said = run_ranks(2, by_file, shape, str(file))
    assert [one.value for one in said] == [one.value for one in run_ranks(2, plain, shape)]
    assert events(tmp_path / "run")[0]["event"] == "attached"


# What the function that runs a pass is, in a Python that imports megatron-core; "ours" are modules of ours.
PROGRAM = """
import sys, torch
from megatron.core.pipeline_parallel import get_forward_backward_func, schedules
from megatron.core.pipeline_parallel.schedules import forward_backward_no_pipelining as early
print(hasattr(early, "__perseus_wrapping__"), "perseus_ds.runtime.session" in sys.modules)
"""


@pytest.mark.parametrize("switched_on", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_only_the_file_has_the_module_looked_at_from_its_import_on(
    tmp_path: Path,
    switched_on: bool,  # noqa: FBT001
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PERSEUS_CONFIG"}
    if switched_on:
        environment["PERSEUS_CONFIG"] = str(tmp_path / "perseus.json")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        env=environment | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split()[0] == str(switched_on)
