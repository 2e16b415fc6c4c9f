"""A job that has the package in a folder of its own: the processes that it starts run the same package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import perseus_ds

ASKED = """
import sys
sys.path.insert(0, "vendored")
from pathlib import Path
from perseus_ds.plan.file import PlanRequest
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime.plans import BackgroundPlanner
from perseus_ds.schedule import textbook
run = RunDirectory(Path("run"))
request = PlanRequest(textbook("1f1b", stages=2, microbatches=2), {}, 70.0, 0.0)
planner = BackgroundPlanner(run, request, run.plan)
planner.wait()
planner.ready()
"""
GUARDED = """
import sys
sys.path.insert(0, "vendored")
from perseus_ds.guard.spawn import spawn
spawn()[1].wait()
"""


@pytest.mark.thorough
@pytest.mark.parametrize(("module", "program"), [("plan", ASKED), ("guard", GUARDED)])
def test_a_folder_that_a_script_put_on_its_path_serves_our_processes(
    tmp_path: Path, module: str, program: str
) -> None:
    vendored = tmp_path / "vendored" / "perseus_ds"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(perseus_ds.__file__).parent, vendored, ignore=ignored)
    (vendored / module / "__main__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    (tmp_path / "run").mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", program]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=240)
    assert (tmp_path / "ran").exists()
