"""Interpreted or compiled: the same answer, and machine code that is never older than its sources."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import perseus_ds

ROOM = {
    "callee.py": """
from perseus_ds.solver.compiled import inner

@inner
def step(value):
    return value + {step}
""",
    "kernel.py": """
import numpy as np
from perseus_ds.solver.compiled import compiled, tiered
from room.callee import step

@compiled
def walked(values):
    total = 0
    for value in values:
        total += step(value)
    return total

@tiered
def walked_in_time(values):
    return walked(values)

@tiered
def stepped(values):
    total = 0
    for value in values:
        total += step(value)
    return total
""",
    "__init__.py": "",
}
SOLVED = """
import hashlib, json, sys
from perseus_ds.plan import build
from perseus_ds.schedule import textbook
from textbook_gpu import textbook_profile
import perseus_ds.solver.compiled as tiers
if sys.argv[1] == "compiled":
    tiers.PATIENCE = 0.0
schedule = textbook("1f1b", stages=3, microbatches=4)
plans = build(textbook_profile([1.0, 1.05, 1.2]), schedule, blocking_power_w=60.0, verify=True)
said = [plans.iteration_time_s, plans.effective_energy_j, plans.lower_bound_j, plans.choice]
said.append(plans.splits.share)
digests = [hashlib.sha256(one.tobytes()).hexdigest() for one in said]
print(json.dumps({"digests": digests, "plans": len(plans)}))
"""


def run(program: str, *words: str, path: Path, **environment: str) -> str:
    own = {"PYTHONDONTWRITEBYTECODE": "1"} | environment
    support = Path(__file__).parents[2] / "support"
    own["PYTHONPATH"] = os.pathsep.join([str(path), str(support), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", program, *words]
    told = subprocess.run(
        command, cwd=path, env=os.environ | own, capture_output=True, text=True, check=False, timeout=240
    )
    assert told.returncode == 0, told.stderr
    return told.stdout.strip()


def kept(path: Path) -> list[str]:
    return sorted(file.name.split("-")[0] for file in path.rglob("*.nbi"))


@pytest.fixture
def room(tmp_path: Path) -> Path:
    (tmp_path / "room").mkdir()
    for name, text in ROOM.items():
        (tmp_path / "room" / name).write_text(text.replace("{step}", "1"))
    return tmp_path


@pytest.mark.slow
@pytest.mark.thorough
def test_a_small_problem_is_solved_without_compiling_and_to_the_same_bits(tmp_path: Path) -> None:
    package = Path(perseus_ds.__file__).parent
    shutil.copytree(package, tmp_path / "perseus_ds", ignore=shutil.ignore_patterns("__pycache__"))
    interpreted = json.loads(run(SOLVED, "as it comes", path=tmp_path))
    assert kept(tmp_path) == []
    assert interpreted["plans"] > 5
    assert json.loads(run(SOLVED, "compiled", path=tmp_path)) == interpreted
    assert {name.split("_")[0] for name in kept(tmp_path)} >= {"sweep.sweep", "network.earliest"}


PLAIN = "import numpy as np; from room.kernel import walked; print(walked(np.arange(3)))"


@pytest.mark.thorough
def test_an_edited_callee_is_compiled_anew(room: Path) -> None:
    assert run(PLAIN, path=room) == "6"
    first = kept(room)
    assert run(PLAIN, path=room) == "6"
    assert kept(room) == first
    callee = room / "room" / "callee.py"
    callee.write_text(callee.read_text().replace("value + 1", "value + 2"))
    assert run(PLAIN, path=room) == "9"
    assert len(kept(room)) == 2


@pytest.mark.thorough
def test_what_was_asked_often_enough_is_compiled_and_from_then_on_loaded(room: Path) -> None:
    program = """
import sys, numpy as np
import perseus_ds.solver.compiled as tiers
tiers.PATIENCE = 10 / 6e6
from room.kernel import walked_in_time
for _ in range(int(sys.argv[1])):
    print(walked_in_time(np.arange(3)))
"""
    assert run(program, "3", path=room).split() == ["6"] * 3
    assert [name.split("_")[0] for name in kept(room)] == ["kernel.walked"]
    assert run(program, "4", path=room).split() == ["6"] * 4
    assert len(kept(room)) == 2


@pytest.mark.thorough
def test_machine_code_on_disk_is_loaded_once_a_process_has_enough_to_solve(room: Path) -> None:
    program = """
import sys, numpy as np
import perseus_ds.solver.compiled as tiers
tiers.PATIENCE, tiers.LOADING = float(sys.argv[1]), 5
from room.kernel import stepped
for _ in range(3):
    print(stepped(np.arange(3)), "numba" in sys.modules)
"""
    assert run(program, "0", path=room).split() == ["6", "True"] * 3
    assert run(program, "1", path=room).split() == ["6", "False", "6", "True", "6", "True"]


@pytest.mark.thorough
def test_a_host_that_compiles_nothing_gets_answers_all_the_same(room: Path) -> None:
    assert run(PLAIN, path=room, NUMBA_DISABLE_JIT="1") == "6"
    assert kept(room) == []
