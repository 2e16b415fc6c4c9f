"""``perseus-ds run`` checks the configuration that a job names, however its launcher or trainer names it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_program import Program

from perseus_ds.cli.job.named_config import deepspeed_config_of, neox_block_of
from perseus_ds.cli.machine.hook_status import HookStatus

ARMED = HookStatus("python", "perseus_ds._autoload:arm", "1", "2.7.1", "0.19.8", "", "")


@pytest.fixture(autouse=True)
def armed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("perseus_ds.cli.job.run.hook_status", lambda _: ARMED)
    for name in ("PERSEUS_CONFIG", "PERSEUS_MODE", "PERSEUS_DEVICE", "PERSEUS_RUN_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    Path("ds.json").write_text(json.dumps({"perseus": BAD}))
    Path("acc.yaml").write_text(
        "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    )
    Path("zero.yaml").write_text("distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n")
    Path("neox").mkdir()
    Path("neox/sizes.yml").write_text('{"num_layers": 4}')
    Path("neox/saving.yml").write_text(json.dumps({"deepspeed_extra_args": {"perseus": BAD}}))


BAD = {"enabled": True, "modus": "observe"}

JOBS = {
    "DeepSpeed": ["deepspeed", "train.py", "--deepspeed_config", "ds.json"],
    "HF Trainer": ["torchrun", "train.py", "--deepspeed", "ds.json"],
    "HF Trainer, =": ["torchrun", "train.py", "--deepspeed=ds.json"],
    "Accelerate's YAML": ["accelerate", "launch", "--config_file", "acc.yaml", "train.py"],
    "Accelerate's flag": ["accelerate", "launch", "--deepspeed_config_file", "ds.json", "train.py"],
    "Accelerate as a module": [
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        "--config_file=acc.yaml",
        "train.py",
    ],
    "gpt-neox": ["python", "deepy.py", "train.py", "neox/sizes.yml", "neox/saving.yml"],
    "gpt-neox, folder": ["python", "./deepy.py", "train.py", "-d", "neox", "sizes", "saving"],
}


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_a_bad_block_is_refused_before_the_job_starts(perseus: Program, job: list[str]) -> None:
    said = perseus("run", "--", *job)
    assert said.code == 1
    assert "saving.yml" in said.err or "ds.json" in said.err
    assert "perseus.modus" in said.err


NOTHING: dict[str, list[str]] = {
    "Megatron-DeepSpeed's switch": ["deepspeed", "train.py", "--deepspeed", "--seed", "1"],
    "the switch at the end": ["deepspeed", "train.py", "--deepspeed"],
    "another's --config_file": ["python", "train.py", "--config_file", "acc.yaml"],
    "ZeRO described in the YAML": ["accelerate", "launch", "--config_file", "zero.yaml", "train.py"],
    "gpt-neox without a block": ["python", "deepy.py", "train.py", "neox/sizes.yml"],
}


@pytest.mark.parametrize("job", NOTHING.values(), ids=NOTHING)
def test_what_names_no_configuration_is_run_as_it_is(job: list[str]) -> None:
    assert deepspeed_config_of(job) is None
    assert neox_block_of(job) is None


UNREADABLE: dict[str, Callable[[Path], object]] = {
    "No such file": Path.unlink,
    "is no YAML": lambda path: path.write_text("a: [1"),
    "is no configuration": lambda path: path.write_text("7"),
}


@pytest.mark.parametrize("words", UNREADABLE)
def test_accelerates_file_that_cannot_be_read_is_one_line(perseus: Program, words: str) -> None:
    UNREADABLE[words](Path("acc.yaml"))
    said = perseus("run", "--", *JOBS["Accelerate's YAML"])
    assert said.code == 1
    assert said.err.count("\n") == 1
    assert "acc.yaml" in said.err
    assert words in said.err
