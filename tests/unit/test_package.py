"""The package as a whole: what importing it costs, its layers, and its errors."""

import inspect
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from perseus_ds import errors
from perseus_ds.errors import PerseusError

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


KINDS = [
    kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__
]


@pytest.mark.parametrize("kind", KINDS)
def test_message_and_hint_survive_a_process_border(kind: type[PerseusError]) -> None:
    for error in (kind("what happened", hint="what to do"), kind("what happened")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), again.message, again.hint) == (kind, error.message, error.hint)


def test_prints_the_message_and_then_the_hint() -> None:
    assert str(PerseusError("3", hint="expected 4")) == "3 (expected 4)"
    assert str(PerseusError("3")) == "3"
