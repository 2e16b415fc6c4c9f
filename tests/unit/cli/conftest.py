"""The program called in this process, and the files that it reads."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "fake_nvml"))

import fake_nvml
from cli_program import CSV, Answer, Program

from perseus_ds.cli import main


@pytest.fixture
def perseus(capsys: pytest.CaptureFixture[str]) -> Program:
    """Call ``perseus-ds`` with these words."""

    def call(*words: object) -> Answer:
        code = main([str(word) for word in words])
        return Answer(code, *capsys.readouterr())

    return call


@pytest.fixture
def refused(perseus: Program) -> Callable[..., str]:
    """Call ``perseus-ds``, expect one line of refusal, return it."""

    def call(*words: object) -> str:
        answer = perseus(*words)
        assert answer.code == 1
        assert answer.out == ""
        assert "Traceback" not in answer.err
        lines = [line for line in answer.err.splitlines() if "assuming a blocking power" not in line]
        assert len(lines) == 1
        return lines[0].removeprefix("perseus-ds: ")

    return call


@pytest.fixture
def profile_csv(tmp_path: Path) -> Path:
    path = tmp_path / "profile.csv"
    path.write_text(CSV)
    return path


@pytest.fixture
def plan_file(profile_csv: Path, tmp_path: Path, perseus: Program) -> Path:
    path = tmp_path / "plan.json"
    words = ("--stages", 2, "--microbatches", 3, "--blocking-power-w", 70)
    assert perseus("plan", profile_csv, *words, "-o", path).code == 0
    return path


@pytest.fixture
def node(tmp_path: Path) -> fake_nvml.FakeNvml:
    """A node with two fake NVIDIA GPUs, for processes that we start: none of ours touches a real one."""
    why_not = fake_nvml.missing_compiler()
    if why_not is not None:
        pytest.skip(why_not)
    return fake_nvml.FakeNvml(tmp_path / "gpus")


@pytest.fixture
def on_node(node: fake_nvml.FakeNvml) -> Program:
    """Call ``perseus-ds`` in a process on that node."""

    def call(*words: object) -> Answer:
        program = [sys.executable, "-m", "perseus_ds.cli"]
        done = subprocess.run(
            [*program, *map(str, words)],
            env=node.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    return call
