"""The start-up hook: in place or not, why, and what to do."""

import json

import pytest
from cli_program import Program

from perseus_ds.cli import job_config
from perseus_ds.cli.job_config import hook_status

HERE = {"torch": "2.7.1+cu128", "deepspeed": "0.19.8"}
"""What is installed, as far as these tests go."""
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
