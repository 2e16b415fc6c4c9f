import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = ["scripts/setup", "scripts/test", "scripts/check", "scripts/demo", ".ci/run"]


@pytest.mark.parametrize("command", COMMANDS)
def test_is_a_program_that_bash_can_read(command: str) -> None:
    assert os.access(ROOT / command, os.X_OK)
    subprocess.run(["bash", "-n", ROOT / command], check=True)


def test_the_demo_explains_itself_from_anywhere(tmp_path: Path) -> None:
    told = subprocess.run(
        [ROOT / "scripts/demo", "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert told.stdout.startswith("Set everything up and run the main job")
    assert "scripts/demo --fresh" in told.stdout


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


def test_a_demo_that_is_not_there_is_refused_by_name() -> None:
    told = subprocess.run(
        [ROOT / "scripts/demo", "--framework", "jax"], capture_output=True, text=True, check=False
    )
    assert told.returncode == 1
    assert "no demo of framework 'jax' (deepspeed, megatron, pipelining" in told.stderr
