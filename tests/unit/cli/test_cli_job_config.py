"""What would keep a job from training with the plugin is said before it starts."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_program import Program

from perseus_ds.cli import job_config
from perseus_ds.cli.job_config import hook_status, read_job_config

SLOWER = {"policy": "max_slowdown", "max_slowdown_pct": 5}
BLOCK = {"enabled": True, "device": "simulated", "objective": SLOWER}
SLOWER_IS_FINE: dict[str, Any] = {"perseus": BLOCK}
OFFLOAD = {"device": "cpu", "pin_memory": True}
ZENFLOW = {"topk_ratio": 0.1, "update_interval": 4, "full_warm_up_rounds": 0, "overlap_step": True}
HYBRID = {"enabled": True, "max_out_tokens": 512, "inference_tp_size": 1}
AXOLOTL = {"offload_optimizer": {"device": "cpu"}, "contiguous_gradients": True, "overlap_comm": True}


def zero(stage: object, *, steps: object = None, **more: object) -> dict[str, Any]:
    accumulated = {} if steps is None else {"gradient_accumulation_steps": steps}
    return {"zero_optimization": {"stage": stage, **more}, **accumulated}


KINDS: dict[str, tuple[dict[str, Any], str]] = {  # what a config holds, the word of its refusal
    "ZeRO-0": (zero(0), ""),
    "pipeline with ZeRO-1": (zero(1, steps=8) | {"pipeline": {"stages": 4}}, ""),
    "ZeRO-1, overlapped, accumulating": (zero(1, steps=2, overlap_comm=True), ""),
    "ZeRO-1, overlapped, one step": (zero(1, steps=1, overlap_comm=True), "overlap_comm"),
    "Axolotl's zero2.json": (zero(2, steps="auto", **AXOLOTL), "overlap_comm"),
    "ZeRO-2, overlapped in words": (zero("2", overlap_comm="true"), "overlap_comm"),
    "ZeRO-2 with offload": (zero(2, offload_optimizer=OFFLOAD), ""),
    "hybrid engine": (zero(3) | {"hybrid_engine": HYBRID}, "hybrid"),
    "ZenFlow": (zero(2, offload_optimizer=OFFLOAD, zenflow=ZENFLOW), "ZenFlow"),
    "DeepCompile": (zero(3) | {"compile": {"deepcompile": True, "offload_activation": False}}, "DeepCompile"),
}
ALWAYS = ("hybrid", "ZenFlow", "DeepCompile")


def written(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / "ds.json"
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(("content", "word"), KINDS.values(), ids=KINDS)
def test_what_training_refuses_is_found_in_json(tmp_path: Path, content: dict[str, Any], word: str) -> None:
    found = read_job_config(written(tmp_path, content | SLOWER_IS_FINE), {}, deepspeed_version="0.19.8")
    refused = [one for one in found.findings if one.refused]
    assert [word in one.what for one in refused] == [True] * bool(word)
    assert (found.refusal is not None) == (word in ALWAYS)


@pytest.mark.parametrize("kind", ["hybrid engine", "ZeRO-2 with offload"])
def test_nothing_is_refused_of_a_job_that_does_without_us(tmp_path: Path, kind: str) -> None:
    file = written(tmp_path, KINDS[kind][0] | {"perseus": BLOCK | {"mode": "off"}})
    found = read_job_config(file, {}, deepspeed_version="0.19.8")
    assert (found.refusal, found.findings) == (None, ())


def test_the_block_of_a_file_meets_the_engine_of_the_json(tmp_path: Path) -> None:
    block = tmp_path / "perseus.json"
    block.write_text(json.dumps(BLOCK))
    config = written(tmp_path, KINDS["hybrid engine"][0])
    found = read_job_config(config, {"PERSEUS_CONFIG": str(block)}, deepspeed_version=None)
    assert found.perseus is not None
    assert found.refusal is not None


@pytest.mark.parametrize(
    ("stage", "policy", "found"),
    [(1, "no_slowdown", 0), (2, "no_slowdown", 1), (3, "no_slowdown", 1), (2, "min_energy", 0)],
)
def test_without_a_pipeline_no_slowdown_saves_nothing(
    perseus: Program, tmp_path: Path, stage: int, policy: str, found: int
) -> None:
    block = {"enabled": True, "device": "simulated", "objective": {"policy": policy}}
    config = written(tmp_path, zero(stage) | {"perseus": block})
    answer = perseus("doctor", "--config", config, "--json")
    assert answer.code == 0
    assert sum("no_slowdown" in one["what"] for one in json.loads(answer.out)["findings"]) == found


@pytest.mark.parametrize("kind", ["Axolotl's zero2.json", "hybrid engine", "ZenFlow", "DeepCompile"])
def test_doctor_and_run_name_what_training_refuses(perseus: Program, tmp_path: Path, kind: str) -> None:
    content, word = KINDS[kind]
    config = written(tmp_path, content | SLOWER_IS_FINE)
    answer = perseus("doctor", "--config", config)
    assert (answer.code, word in answer.out) == (1, True)
    command = [sys.executable, "-m", "perseus_ds", "run", "--", "true", "--deepspeed_config", str(config)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)  # the job takes its place
    assert word in run.stderr
    assert run.returncode == (1 if word in ALWAYS else 0)  # of one rank alone, overlap_comm is served


# The start-up hook: in place or not, why, and what to do.

HERE = {"torch": "2.7.1+cu128", "deepspeed": "0.19.8"}
"""Packages that are installed, as far as these tests go."""
CASES: dict[str, tuple[dict[str, str | None], dict[str, str], str]] = {  # installed, environment, reason
    "armed": ({}, {}, ""),
    "torch 2.5": ({"torch": "2.5.0"}, {}, ""),
    "torch 2.13": ({"torch": "2.13.0+cpu"}, {}, ""),
    "a build of torch": ({"torch": "2.10.0a0+git123"}, {}, ""),
    "torch 3": ({"torch": "3.0"}, {}, ""),
    "Megatron": ({"deepspeed": None, "megatron-core": "0.16.1"}, {}, ""),
    "a file": ({"deepspeed": None}, {"PERSEUS_CONFIG": "perseus.json"}, ""),
    "switched off": ({}, {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, "TORCH_DEVICE_BACKEND_AUTOLOAD"),
    "no torch": ({"torch": None}, {}, "torch"),
    "torch 2.4": ({"torch": "2.4.1"}, {}, "2.4.1"),
    "torch 1.13": ({"torch": "1.13.0+cpu"}, {}, "1.13.0"),
    "nothing that trains": ({"deepspeed": None}, {}, "megatron-core"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_installed_and_set_decides(case: str) -> None:
    installed, environment, why = CASES[case]
    status = hook_status(environment, version_of=(HERE | installed).get)
    assert status.armed == (not why)
    assert why in status.reason
    assert bool(status.remedy) == bool(why)
    assert status.entry_point == "perseus_ds._autoload:arm"


def test_no_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_config, "entry_points", lambda **_: [])
    assert "entry point" in hook_status({}, version_of=HERE.get).reason


def test_doctor_states_it(perseus: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    hook = json.loads(perseus("doctor", "--json").out)["hook"]
    assert hook["armed"] is False
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD" in hook["remedy"]
    assert "not armed" in perseus("doctor").out
