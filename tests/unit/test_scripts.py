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


def test_the_training_script_knows_nothing_of_us() -> None:
    code = (ROOT / "scripts/demo_job/train.py").read_text().split('"""', maxsplit=2)[2]
    assert "import deepspeed" in code
    assert "perseus" not in code.lower()
