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
