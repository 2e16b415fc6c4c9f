"""The package as a whole: what importing it costs, and that its rooms keep their layers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "deepspeed", "numpy", "scipy", "numba", "matplotlib", "omegaconf", "pydantic")
PROGRAM = "import json, sys; {line}; print(json.dumps(sorted(sys.modules)))"


def modules_after(line: str) -> set[str]:
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(line=line)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return set(json.loads(told.stdout))


@pytest.mark.parametrize(
    "line", ["import perseus_ds", "import perseus_ds._autoload", "import perseus_ds.errors"]
)
def test_import_stays_light(line: str) -> None:
    assert modules_after(line).isdisjoint(HEAVY)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "room", ["schedule", "profile", "plan", "config", "run_directory", "device", "solver"]
)
def test_the_pure_rooms_do_without_torch(room: str) -> None:
    assert modules_after(f"import perseus_ds.{room}").isdisjoint(("torch", "deepspeed", "matplotlib"))


@pytest.mark.thorough
def test_the_rooms_keep_their_layers() -> None:
    told = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert told.returncode == 0, told.stdout + told.stderr
