"""The start-up hook: in place or not, why, and what to do."""

import json

import pytest
from cli_program import Program

from perseus_ds.cli import job_config
from perseus_ds.cli.job_config import hook_status


@pytest.fixture
def versions() -> dict[str, str | None]:
    """What is installed, as far as these tests go."""
    return {"torch": "2.7.1+cu128", "deepspeed": "0.19.8"}


def test_armed(versions: dict[str, str | None]) -> None:
    status = hook_status({}, version_of=versions.get)
    assert (status.armed, status.reason, status.remedy) == (True, "", "")
    assert status.entry_point == "perseus_ds._autoload:arm"


def test_switched_off_by_the_environment(versions: dict[str, str | None]) -> None:
    status = hook_status({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, version_of=versions.get)
    assert not status.armed
    assert status.remedy == "unset TORCH_DEVICE_BACKEND_AUTOLOAD"


@pytest.mark.parametrize(
    ("package", "version", "why"),
    [
        ("torch", None, "torch"),
        ("torch", "2.4.1", "2.4.1"),
        ("torch", "1.13.0+cpu", "1.13.0"),
        ("deepspeed", None, "megatron-core"),
    ],
)
def test_what_is_installed_decides(
    versions: dict[str, str | None], package: str, version: str | None, why: str
) -> None:
    versions[package] = version
    status = hook_status({}, version_of=versions.get)
    assert not status.armed
    assert why in status.reason
    assert status.remedy


def test_megatron_or_a_file_will_do(versions: dict[str, str | None]) -> None:
    versions["deepspeed"] = None
    assert hook_status({"PERSEUS_CONFIG": "perseus.json"}, version_of=versions.get).armed
    versions["megatron-core"] = "0.16.1"
    assert hook_status({}, version_of=versions.get).armed


def test_no_entry_point(versions: dict[str, str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_config, "entry_points", lambda **_: [])
    assert "entry point" in hook_status({}, version_of=versions.get).reason


@pytest.mark.parametrize("version", ["2.5.0", "2.13.0+cpu", "2.10.0a0+git123", "3.0"])
def test_new_enough(versions: dict[str, str | None], version: str) -> None:
    versions["torch"] = version
    assert hook_status({}, version_of=versions.get).armed


def test_doctor_states_it(perseus: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    hook = json.loads(perseus("doctor", "--json").out)["hook"]
    assert hook["armed"] is False
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD" in hook["remedy"]
    assert "not armed" in perseus("doctor").out
