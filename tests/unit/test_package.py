"""The package as a whole: what importing it costs, its layers, its errors, what an installation brings."""

import ast
import inspect
import json
import os
import pickle
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from perseus_ds import errors
from perseus_ds.errors import PerseusError

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "deepspeed", "numpy", "scipy", "numba", "matplotlib", "omegaconf", "pydantic")
PROGRAM = "import json, sys; {line}; print(json.dumps(sorted(sys.modules)))"


def modules_after(line: str) -> set[str]:
    command = [sys.executable, "-c", PROGRAM.format(line=line)]
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return set(json.loads(told.stdout))


@pytest.mark.parametrize(
    "module", ["perseus_ds; perseus_ds.EnergyMonitor", "perseus_ds._autoload", "perseus_ds.errors"]
)
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


# What an installation brings: all that the package imports, and no tool of the tests.

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OWN = {"deepspeed", "networkx", "numpy", "nvidia-ml-py", "omegaconf", "torch"}
HOST = "deepspeed"
"""Its modules are taken as the job has loaded them."""
NEVER_INSTALLED = {"megatron", "megatron_core", "amdsmi", "prometheus_client"}
"""Imported where they are: a framework that is its users' own, and extras."""


def named(requirements: list[str]) -> set[str]:
    return {Requirement(one).name for one in requirements}


def imported() -> set[str]:
    """Distributions that some file of the package imports; ``testing`` is for those who have pytest."""
    found: set[str] = set()
    for path in (ROOT / "perseus_ds").rglob("*.py"):
        if path.parent.name == "testing":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
                found.add(node.module.partition(".")[0])
    others = found - sys.stdlib_module_names - {"perseus_ds"} - NEVER_INSTALLED
    known = packages_distributions()
    return {known[name][0].lower().replace("_", "-") for name in others}


def brought_by(name: str) -> set[str]:
    return named([one for one in requires(name) or () if "extra ==" not in one])


@pytest.mark.thorough
def test_an_installation_brings_what_the_package_imports_and_nothing_else() -> None:
    wanted = named(PROJECT["dependencies"])
    assert wanted >= OWN
    assert wanted <= imported() | {HOST}
    missing = imported() - wanted
    along = set().union(*(brought_by(name) for name in wanted))
    assert missing <= {name.lower() for name in along}


INTERPRETER = """#!/usr/bin/env bash
case "$*" in
  *"venv --clear .venv"*) mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
  *"pip install"*) echo "$*" >>installed ;;
esac
"""
"""Stands in for Python: makes environments of itself, and writes down what pip is asked for."""


def setup(checkout: Path, *words: str) -> tuple[str, list[str]]:
    """Call ``scripts/setup``: what it says last, and what of the package it installed."""
    (checkout / "installed").write_text("")
    command = [checkout / "scripts" / "setup", *words]
    environment = os.environ | {"PYTHON": f"{checkout}/python"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    asked = (checkout / "installed").read_text().split()
    return done.stdout.splitlines()[-1], [word for word in asked if word.startswith(".[")]


def bare_checkout(folder: Path, interpreter: str = INTERPRETER) -> None:
    """Leave what ``scripts/setup`` reads, and a Python for it."""
    (folder / "scripts").mkdir()
    for name in ("scripts/setup", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "python").write_text(interpreter)
    (folder / "python").chmod(0o755)


def test_pip_installs_what_uv_cannot(tmp_path: Path) -> None:
    bare_checkout(tmp_path, INTERPRETER.replace("case", '[[ $* != *"uv pip"* ]] || exit 2\ncase', 1))
    assert setup(tmp_path) == ("setup: the environment in .venv is ready", [".[dev]"])
    assert "pip install" in (tmp_path / "installed").read_text().splitlines()[-1]


def test_the_demo_installs_no_tools_and_tests_add_them(tmp_path: Path) -> None:
    bare_checkout(tmp_path)
    ready, good = "setup: the environment in .venv is ready", "setup: the environment in .venv is up to date"
    assert setup(tmp_path, "demo") == (ready, [".[demo]"])
    assert setup(tmp_path, "demo") == (good, [])
    assert setup(tmp_path) == (ready, [".[dev]"])
    assert setup(tmp_path) == (good, [])
    assert setup(tmp_path, "demo") == (good, []), "what has the tools has all that the demo needs"
    (tmp_path / "pyproject.toml").write_text("changed")
    assert setup(tmp_path, "demo") == (ready, [".[demo]"])
    assert setup(tmp_path) == (ready, [".[dev]"])


def test_an_environment_that_is_not_there_is_refused() -> None:
    told = subprocess.run([ROOT / "scripts" / "setup", "tests"], capture_output=True, text=True, check=False)
    assert told.returncode == 1
    assert "'tests'" in told.stderr


# The node service as a Debian package: built here, laid out below another root, upgraded, removed.

BUILD = ROOT / "scripts" / "guardd" / "deb" / "build.py"
RULES = "etc/perseus/guardd.toml"


def built(folder: Path, version: str) -> Path:
    words = [sys.executable, BUILD, "--output", folder, "--version", version]
    told = subprocess.run(words, capture_output=True, text=True, check=True)
    return Path(told.stdout.splitlines()[-1])


def dpkg(root: Path, *words: object) -> None:
    forced = "--force-script-chrootless,not-root,depends,bad-path,confold"
    command = ["dpkg", f"--root={root}", forced, f"--log={root}/log", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def call(root: Path, *words: str) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of a call of what is installed."""
    command = ["/usr/bin/python3", "-I", str(root / "opt/perseus/bin/perseus-ds"), *words]
    return command, {"PATH": "/usr/bin:/bin", "PERSEUS_GUARD_DIR": str(root / "guard")}


def served(root: Path) -> str:
    command, environment = call(root, "guardd", "--socket", str(root / "guardd.sock"), "--allow", "gpus=own")
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as service:
        line = service.stderr.readline()
        service.terminate()
        assert service.wait(60) == 0
    return line


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name in ("info", "updates"):
        (root / "var/lib/dpkg" / name).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    return root


def perseus(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command, environment = call(root, *words)
    return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed (Debian: dpkg)")
def test_it_is_installed_upgraded_and_removed(root: Path, tmp_path: Path) -> None:
    first, second = built(tmp_path, "0.1"), built(tmp_path, "0.2")
    dpkg(root, "--install", first)
    assert (root / "lib/systemd/system/perseus-guardd.service").is_file()
    assert os.access(root / "opt/perseus/bin/slurm-epilog", os.X_OK)
    if f"{sys.version_info[0]}.{sys.version_info[1]}" in _system_python():
        shown = perseus(root, "guardd", "--help")
        assert (shown.returncode, shown.stderr) == (0, "")
        assert "node service" in shown.stdout
        assert perseus(root, "clocks", "reset").returncode == 0, "no GPU, no journal"
        assert "listening on" in served(root)

    rules = root / RULES
    rules.write_text('allow = ["user=alice gpus=own"]\n')
    dpkg(root, "--install", second)
    assert "alice" in rules.read_text(), "an operator's rules outlive an upgrade"
    dpkg(root, "--remove", "perseus-guardd")
    assert rules.is_file()
    assert not (root / "opt").exists()
    assert not (root / "lib").exists()
    dpkg(root, "--purge", "perseus-guardd")
    assert not (root / "etc/perseus").exists()


def _system_python() -> str:
    if not Path("/usr/bin/python3").exists():
        return ""
    told = subprocess.run(["/usr/bin/python3", "--version"], capture_output=True, text=True, check=True)
    return told.stdout
