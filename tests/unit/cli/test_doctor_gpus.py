"""What ``perseus-ds doctor`` says of the GPUs that a job would use, and of those that it would not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_nvml
import pytest
from cli_program import Program

from perseus_ds.cli.doctor import torch_has_gpus, visible_gpus

pytestmark = pytest.mark.usefixtures("cuda_torch")

ALL = [0, 1]


def found(on_node: Program, *words: object) -> dict[str, Any]:
    answer = on_node("doctor", "--json", *words)
    return dict(json.loads(answer.out))


def findings(on_node: Program, *words: object) -> list[str]:
    return [one["what"] for one in found(on_node, *words)["findings"]]


def block(tmp_path: Path, **keys: object) -> Path:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({"perseus": {"enabled": True, **keys}}))
    return path


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("", []),
        ("-1", []),
        ("0,0", []),
        ("1,0", ALL),
        ("0,5,1", [0]),
        ("GPU-deadbeef", []),
        (" 1 ,0 ", ALL),
        ("MIG-GPU-x/1/0", []),
        ("0;1", [0]),
        ("1", [1]),
        ("{1}", [1]),
        ("{1},{0}", ALL),
        ("{0},{0}", []),
    ],
)
def test_the_gpus_that_cuda_visible_devices_leaves(
    monkeypatch: pytest.MonkeyPatch, value: str, left: list[int]
) -> None:
    uuids = {index: fake_nvml.UUID.format(index) for index in ALL}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value.format(*uuids.values()))
    assert visible_gpus(ALL, uuids) == set(left)


@pytest.mark.parametrize(("value", "left"), [("", []), ("MIG-GPU-x/1/0", []), ("1", [1])])
def test_jobs_without_a_gpu_are_warned(
    on_node: Program, monkeypatch: pytest.MonkeyPatch, value: str, left: list[int]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    diagnosis = found(on_node)
    assert [one["identity"]["index"] for one in diagnosis["devices"] if one["visible"]] == left
    assert [f"CUDA_VISIBLE_DEVICES={value}" in one["what"] for one in diagnosis["findings"]] == [True] * (
        not left
    )
    assert diagnosis["automatic"]["backend"] == ("nvml" if left else "null")


def test_a_lost_gpu_is_found_wherever_it_is(
    on_node: Program, node: fake_nvml.FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    for lost, other in ((0, 1), (1, 0)):
        node.state.gpu[lost].any_error, node.state.gpu[other].any_error = 15, 0
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        diagnosis = found(on_node)
        assert diagnosis["automatic"]["backend"] == "nvml"
        [one] = diagnosis["findings"]
        assert f"GPU {lost} " in one["what"]
        assert "lost" in one["what"]
        assert "reboot" in one["remedy"]
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", str(other))
        assert findings(on_node) == []


def test_a_gpu_cut_into_slices_is_found_wherever_it_is(on_node: Program, node: fake_nvml.FakeNvml) -> None:
    for index in ALL:
        node.state.gpu[index].mig, node.state.gpu[1 - index].mig = 1, 0
        [one] = findings(on_node)
        assert f"GPU {index} " in one
        assert "MIG" in one


def test_a_driver_that_does_not_start_is_named(on_node: Program, node: fake_nvml.FakeNvml) -> None:
    node.state.init_error = 18
    [one] = findings(on_node)
    assert "versions" in one


def test_gpus_of_several_models_are_judged_by_what_the_job_uses(
    on_node: Program, node: fake_nvml.FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.state.gpu[0].name, node.state.gpu[0].energy_error = b"NVIDIA GeForce GTX 1070", 3
    assert ["energy" in one for one in findings(on_node)] == [True]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    [order] = found(on_node)["findings"]
    assert "CUDA_DEVICE_ORDER" in order["remedy"]
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert findings(on_node) == []


@pytest.mark.parametrize("call", ["SupportedMemoryClocks", "SupportedGraphicsClocks"])
def test_a_driver_that_lists_no_clocks_is_one_finding(
    on_node: Program, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    import pynvml

    def refuses(*_: object) -> None:
        raise pynvml.NVMLError(3)

    monkeypatch.setattr(pynvml, f"nvmlDeviceGet{call}", refuses)
    [one] = found(on_node)["findings"]
    assert "0, 1" in one["what"]
    assert "clocks" in one["what"]
    assert "root" not in one["remedy"]
    assert "CAP_SYS_ADMIN" not in one["remedy"]


def test_missing_rights_are_one_finding_for_all_gpus(
    on_node: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("perseus_ds.device.nvml.missing_right", lambda: "user 1000")
    [one] = found(on_node)["findings"]
    assert "0, 1" in one["what"]
    assert "CAP_SYS_ADMIN" in one["remedy"]
    assert findings(on_node, "--config", block(tmp_path, mode="observe")) == []


@pytest.mark.parametrize(
    ("version", "has_gpus"),
    [
        ("cuda: Optional[str] = None\nhip: Optional[str] = None\n", False),
        ("cuda = None\n", False),
        ("cuda = None\nhip = '7.0'\n", True),
        ("cuda = '11.8'\n", True),
        ("__version__ = 'of a build that states neither'\n", None),
    ],
)
def test_a_torch_without_cuda_is_known_by_its_files(
    torch_built_for: Callable[[str], None], version: str, *, has_gpus: bool | None
) -> None:
    torch_built_for(version)
    assert torch_has_gpus() is has_gpus


def test_a_torch_without_cuda_trains_on_the_cpu(
    on_node: Program, torch_built_for: Callable[[str], None]
) -> None:
    torch_built_for("cuda = None\n")
    diagnosis = found(on_node)
    assert diagnosis["automatic"]["backend"] == "null"
    assert ["CUDA" in one["what"] for one in diagnosis["findings"]] == [True]


def test_doctor_judges_the_device_that_the_configuration_names(
    on_node: Program, node: fake_nvml.FakeNvml, torch_built_for: Callable[[str], None], tmp_path: Path
) -> None:
    """A simulated job minds neither a lost GPU nor a torch without CUDA; its savings are simulated."""
    node.state.gpu[1].any_error = 15
    torch_built_for("cuda = None\n")
    config = block(tmp_path, device="simulated")
    diagnosis = found(on_node, "--config", config)
    assert diagnosis["device"] == "simulated"
    [one] = diagnosis["findings"]
    assert "simulated" in one["what"]
    assert "simulated" not in one["remedy"]
    assert "automatic takes" not in on_node("doctor", "--config", config).out


def test_doctor_without_a_gpu_recommends_nothing_that_the_configuration_has(
    perseus: Program, tmp_path: Path
) -> None:
    for device in ("simulated", "null"):
        for one in found(perseus, "--config", block(tmp_path, device=device))["findings"]:
            assert device not in one["remedy"]
