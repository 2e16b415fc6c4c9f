"""``perseus-ds run``: checks first, then the job as it is, with the flags, in place of the command."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_program import Program

from perseus_ds.cli.job_config import HookStatus, read_job_config
from perseus_ds.cli.run import deepspeed_json_of

pytestmark = pytest.mark.usefixtures("armed")


def _config(tmp_path: Path, **content: object) -> Path:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(content))
    return path


def _job(tmp_path: Path, script: str) -> list[str]:
    path = tmp_path / "job.py"
    path.write_text(script)
    return [sys.executable, str(path)]


def _started(*words: object) -> subprocess.CompletedProcess[str]:
    """Call the command in a process of its own, whose place the job takes."""
    command = [sys.executable, "-m", "perseus_ds", "run", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_job_takes_the_place_of_the_command_with_the_flags(tmp_path: Path) -> None:
    """So signals, exit code and terminal are its own."""
    seen = tmp_path / "seen.json"
    job = _job(
        tmp_path,
        "import json, os, sys\n"
        f"json.dump([os.getppid(), dict(os.environ)], open({str(seen)!r}, 'w'))\n"
        "sys.exit(len(sys.argv))\n",
    )
    flags = ("--mode", "profile", "--device", "simulated", "--run-dir", tmp_path / "run")
    assert _started(*flags, "--", *job, "--mode", "x", "--help").returncode == 4
    parent, environment = json.loads(seen.read_text())
    assert parent == os.getpid()
    added = environment.keys() - os.environ.keys()
    assert {name: environment[name] for name in added if name.startswith("PERSEUS_")} == {
        "PERSEUS_MODE": "profile",
        "PERSEUS_DEVICE": "simulated",
        "PERSEUS_RUN_DIR": str(tmp_path / "run"),
    }


def test_a_file_with_the_block_reaches_the_job(tmp_path: Path) -> None:
    file = tmp_path / "perseus.json"
    file.write_text(json.dumps({"run_dir": str(tmp_path / "run"), "device": "simulated"}))
    job = _job(tmp_path, "import os; print(os.environ['PERSEUS_CONFIG'])")
    said = _started("--config", file, "--", *job)
    assert (said.returncode, said.stdout, said.stderr) == (0, f"{file}\n", "")


def test_two_blocks_are_refused(refused: Callable[..., str], tmp_path: Path) -> None:
    block, file = {"enabled": True, "run_dir": str(tmp_path)}, tmp_path / "perseus.json"
    file.write_text(json.dumps(block))
    job = [*_job(tmp_path, ""), "--deepspeed_config", str(_config(tmp_path, perseus=block))]
    assert "another" in refused("run", "--config", file, "--", *job)


JOBS = {
    "DeepSpeed": ["deepspeed", "train.py", "--deepspeed_config", "ds.json"],
    "DeepSpeed, =": ["deepspeed", "train.py", "--deepspeed-config=ds.json", "--more"],
    "HF Trainer": ["torchrun", "train.py", "--deepspeed", "ds.json"],
    "HF Trainer, =": ["torchrun", "train.py", "--deepspeed=ds.json"],
    "Accelerate's flag": ["accelerate", "launch", "--deepspeed_config_file", "ds.json", "train.py"],
}


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_a_bad_block_is_refused_before_the_job_starts(
    refused: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _config(tmp_path, perseus={"enabled": True, "modus": "observe"})
    line = refused("run", "--", *job)
    assert "ds.json" in line
    assert "perseus.modus" in line


@pytest.mark.parametrize(
    "words",
    [
        ["deepspeed", "t.py"],
        ["deepspeed", "t.py", "--deepspeed_config"],
        ["deepspeed", "t.py", "--deepspeed", "--seed", "1"],
        ["deepspeed", "t.py", "--deepspeed"],
        ["python", "t.py", "--config_file", "acc.yaml"],
    ],
)
def test_commands_that_name_no_configuration(words: list[str]) -> None:
    assert deepspeed_json_of(words) is None


def test_a_job_that_does_not_ask_for_us(refused: Callable[..., str], tmp_path: Path) -> None:
    config = _config(tmp_path, train_batch_size=8)
    assert "enabled" in refused("run", "--", "true", f"--deepspeed_config={config}")


def test_an_unarmed_hook(refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    off = HookStatus("python", None, "0", "2.7.1", "0.19.8", "it is off", "turn it on")
    monkeypatch.setattr("perseus_ds.cli.run.hook_status", lambda _: off)
    assert "turn it on" in refused("run", "--", "true")


def test_no_such_program(perseus: Program, tmp_path: Path) -> None:
    answer = perseus("run", "--run-dir", tmp_path, "--", str(tmp_path / "deepspede"))
    assert answer.code == 1
    assert "deepspede" in answer.err


def test_timers_that_end_a_pipeline_job_are_warned_about(tmp_path: Path) -> None:
    content = {"wall_clock_breakdown": True, "flops_profiler": {"enabled": True}}
    path = _config(tmp_path, **content, perseus={"enabled": True})
    for version, findings in (("0.19.8", 2), ("0.18.3", 2), ("0.18.2", 0), ("0.20.0", 0), (None, 0)):
        assert len(read_job_config(path, {}, deepspeed_version=version).findings) == findings
