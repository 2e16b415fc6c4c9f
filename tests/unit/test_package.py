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
    command = [sys.executable, "-c", PROGRAM.format(line=line)]
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return set(json.loads(told.stdout))


@pytest.mark.parametrize("module", ["perseus_ds", "perseus_ds._autoload", "perseus_ds.errors"])
def test_import_stays_light(module: str) -> None:
    assert modules_after(f"import {module}").isdisjoint(HEAVY)


PURE = ["schedule", "profile", "plan", "config", "run_directory", "device", "solver"]


@pytest.mark.thorough
@pytest.mark.parametrize("room", PURE)
def test_the_pure_rooms_do_without_torch(room: str) -> None:
    assert modules_after(f"import perseus_ds.{room}").isdisjoint(("torch", "deepspeed", "matplotlib"))


@pytest.mark.thorough
def test_the_rooms_keep_their_layers() -> None:
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    told = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert told.returncode == 0, told.stdout + told.stderr


KINDS = [one for _, one in inspect.getmembers(errors, inspect.isclass) if one.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", KINDS)
def test_message_and_hint_are_printed_and_survive_a_process_border(kind: type[PerseusError]) -> None:
    for error, text in ((kind("3", hint="expected 4"), "3 (expected 4)"), (kind("3"), "3")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), again.message, again.hint) == (kind, error.message, error.hint)
        assert str(again) == text
