"""Programs beside the package: setup, demo and checks; prolog and epilog of Slurm."""

import ast
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = ["scripts/setup", "scripts/versions", "scripts/test", "scripts/check", "scripts/demo", ".ci/run"]


@pytest.mark.parametrize("command", COMMANDS)
def test_is_a_program_that_bash_can_read(command: str) -> None:
    assert os.access(ROOT / command, os.X_OK)
    subprocess.run(["bash", "-n", ROOT / command], check=True)


SOURCES = [path for root in ("scripts", "patches") for path in sorted((ROOT / root).rglob("*.py"))]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_script_imports_of_us_is_there(source: Path) -> None:
    """Benches are run by hand, most of them seldom."""
    imports = [one for one in ast.walk(ast.parse(source.read_text())) if isinstance(one, ast.ImportFrom)]
    ours = [one for one in imports if (one.module or "").split(".")[0] == "perseus_ds"]
    for name in [f"{one.module}:{alias.name}" for one in ours for alias in one.names]:
        try:
            pkgutil.resolve_name(name)
        except AttributeError:
            pkgutil.resolve_name(name.replace(":", "."))


def call(script: str, *words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command, environment = [ROOT / "scripts" / script, *words], os.environ | {"PYTHON": sys.executable}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_the_demo_explains_itself_from_anywhere_and_one_that_is_not_there_is_refused(tmp_path: Path) -> None:
    told = call("demo", "--help", cwd=tmp_path)
    assert (told.returncode, "scripts/demo --fresh" in told.stdout) == (0, True)
    told = call("demo", "--framework", "jax", cwd=tmp_path)
    assert (told.returncode, "'jax'" in told.stderr) == (1, True)


@pytest.mark.parametrize(
    ("script", "framework"),
    [
        ("train", "deepspeed"),
        ("train_megatron", "megatron.core.pipeline_parallel"),
        ("train_pipelining", "torch.distributed.pipelining"),
    ],
)
def test_the_training_scripts_know_nothing_of_us(script: str, framework: str) -> None:
    code = (ROOT / f"scripts/demo_job/{script}.py").read_text().split('"""', maxsplit=2)[2]
    assert f"{framework} import" in code or f"import {framework}" in code
    assert "perseus" not in (code + (ROOT / "scripts/demo_job/gpt.py").read_text()).lower()


def test_a_clone_of_megatron_lm_has_to_be_one(tmp_path: Path) -> None:
    assert call("versions", "--megatron-lm", cwd=tmp_path).returncode == 2
    refused = call("versions", "--megatron-lm", "clone", cwd=tmp_path)
    assert refused.returncode == 1
    assert f"{tmp_path}/clone/pretrain_gpt.py" in refused.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("events", "code"), [(["running", "ended"], 0), (["running"], 1)])
def test_a_clone_of_megatron_lm_is_judged_by_its_events(tmp_path: Path, events: list[str], code: int) -> None:
    """A stand-in that writes the journal which a served job would write."""
    (tmp_path / "pretrain_gpt.py").write_text(
        "import json, os\nfrom pathlib import Path\n"
        "block = json.loads(Path(os.environ['PERSEUS_CONFIG']).read_text())\n"
        "if os.environ['RANK'] == '0':\n"
        "    Path(block['run_dir']).mkdir()\n"
        f"    rows = ''.join(json.dumps({{'event': one}}) + chr(10) for one in {events})\n"
        "    Path(block['run_dir'], 'events.jsonl').write_text(rows)\n"
    )
    assert call("versions", "--megatron-lm", ".", cwd=tmp_path).returncode == code


# Prolog and epilog of Slurm: a node is drained for a clock that stays locked, and for nothing else.

SCRIPTS = Path(__file__).parents[2] / "scripts" / "guardd"


def command(folder: Path, body: str) -> Path:
    path = folder / "command"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def run(script: str, **environment: object) -> subprocess.CompletedProcess[str]:
    """As Slurm does: with next to nothing in PATH."""
    words = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7", **environment}
    own = {name: str(value) for name, value in words.items()}
    return subprocess.run(SCRIPTS / script, env=own, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        pytest.param("echo GPU-0: put back", 0, "", id="put back"),
        pytest.param("echo GPU-1: left alone", 0, "", id="a living job"),
        pytest.param("echo 'GPU-0: failed: driver'; exit 1", 1, "lives", id="a clock stays locked"),
        pytest.param("echo 'GPU-0: failed: driver'; exit 3", 0, "again", id="beside a living job"),
        pytest.param("exit 2", 0, "not known", id="another release's usage"),
        pytest.param("kill -9 $$", 0, "not known", id="killed"),
        pytest.param("exec sleep 600", 0, "not known", id="a driver that hangs"),
    ],
)
def test_the_epilog_fails_only_for_clocks_that_stay(tmp_path: Path, body: str, code: int, said: str) -> None:
    done = run("slurm-epilog", PERSEUS_DS=command(tmp_path, body), PERSEUS_SECONDS=1)
    assert done.returncode == code
    assert said in done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("body", "words", "said"),
    [
        pytest.param("exit 0", ["is-active"], "", id="it runs"),
        pytest.param('[ "$1" = start ]', ["is-active", "start"], "", id="it is started"),
        pytest.param("exit 3", ["is-active", "start"], "default clocks", id="it does not start"),
        pytest.param("exec sleep 600", ["is-active", "start"], "default clocks", id="a manager that hangs"),
    ],
)
def test_the_prolog_never_fails(tmp_path: Path, body: str, words: list[str], said: str) -> None:
    log = tmp_path / "log"
    systemctl = command(tmp_path, f'echo "$1" >> {log}\n{body}')
    done = run("slurm-prolog", PERSEUS_SYSTEMCTL=systemctl, PERSEUS_SECONDS=1)
    assert (done.returncode, done.stdout) == (0, "")
    assert log.read_text().split() == words
    assert said in done.stderr


def test_both_can_be_run_and_without_our_program_or_systemd_drain_no_node(tmp_path: Path) -> None:
    assert all(os.access(SCRIPTS / name, os.X_OK) for name in ("slurm-prolog", "slurm-epilog"))
    done = run("slurm-epilog", PERSEUS_DS=tmp_path / "none")
    assert (done.returncode, "not known" in done.stderr) == (0, True)
    assert run("slurm-prolog", PERSEUS_SYSTEMCTL=tmp_path / "none").returncode == 0
