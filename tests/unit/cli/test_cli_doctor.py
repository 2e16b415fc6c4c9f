"""``perseus-ds doctor`` and ``clocks reset``, on a node with fake GPUs."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pynvml
import pytest
from cli_program import Program
from fake_nvml import UUID, FakeNvml

from perseus_ds.cli.doctor import torch_has_gpus, visible_gpus
from perseus_ds.guard import journal
from perseus_ds.guard.claim import OwnershipLock
from perseus_ds.guard.journal import Journal

pytestmark = pytest.mark.usefixtures("cuda_torch")

UUIDS = [UUID.format(index) for index in range(2)]


def touched(node: FakeNvml) -> list[int]:
    return [node.state.gpu[index].sets + node.state.gpu[index].resets for index in range(2)]


def test_doctor_checks_clock_counter_and_reads_and_sets_nothing(on_node: Program, node: FakeNvml) -> None:
    node.state.gpu[0].read_us, node.state.gpu[1].locked_mhz = 2000, 900
    assert on_node("doctor").code == 0
    slow, quick = (one["checks"] for one in json.loads(on_node("doctor", "--json").out)["devices"])
    assert slow["clock_mhz"] > 0
    assert slow["read_p50_ms"] >= 2.0
    assert slow["read_p50_ms"] <= slow["read_max_ms"]
    assert quick["counter_by_power"] is None or quick["counter_by_power"] > 0.0
    assert (node.locked_mhz(), touched(node)) == ([0, 900], [0, 0])


@pytest.mark.thorough
def test_doctor_times_clock_changes_when_asked_to(on_node: Program, node: FakeNvml) -> None:
    for index in range(2):
        node.state.gpu[index].call_us, node.state.gpu[index].settle_us = 4000, 20_000
    answer = on_node("doctor", "--calibrate", "--json")
    assert (answer.code, answer.err) == (0, "")
    assert all(node.state.gpu[index].sets > 0 for index in range(2))
    assert node.locked_mhz() == [0, 0]
    timed = json.loads(answer.out)["calibration"]
    assert [one["index"] for one in timed] == [0, 1]
    for found in (one["calibration"] for one in timed):
        assert found["call_s"] > 0.003
        assert found["up_s"] is None or found["up_s"] > 0.02


def test_doctor_calibrates_no_gpu_that_is_in_use(on_node: Program, node: FakeNvml) -> None:
    node.state.gpu[0].processes, node.state.gpu[1].utilization = 1, 40
    answer = on_node("doctor", "--calibrate")
    assert (answer.code, answer.out.count("not measured")) == (1, 2)
    assert all(words in answer.out for words in ("4000", "40 %"))
    assert touched(node) == [0, 0]


@pytest.mark.thorough
def test_doctor_calibrates_no_gpu_that_is_held_or_locked(on_node: Program, node: FakeNvml) -> None:
    lease = OwnershipLock(UUIDS[0], "train.py (pid 77)")
    answer = on_node("doctor", "--calibrate")
    lease.release()
    assert (answer.code, "train.py" in answer.out) == (0, True)
    assert (node.state.gpu[0].sets, node.state.gpu[1].sets > 0) == (0, True)
    node.state.gpu[0].locked_mhz = 900
    answer = on_node("doctor", "--calibrate")
    assert (answer.code, "900 MHz" in answer.out) == (0, True), answer.out
    assert node.locked_mhz() == [900, 0]


@pytest.mark.thorough
def test_doctor_tells_an_idle_gpu_from_a_slow_one(on_node: Program, node: FakeNvml) -> None:
    """A lock that does not hold is not reached; a guard that has the time takes it for another program."""
    node.state.gpu[0].idle_mhz, node.state.gpu[0].reasons, node.state.gpu[1].forgets = 210, 0x1, 1
    said = on_node("doctor", "--calibrate").out
    assert (said.count("is idle"), said.count("somebody else")) == (1, 1), said


def test_reset_leaves_what_no_journal_knows_unless_all_are_meant(on_node: Program, node: FakeNvml) -> None:
    node.state.gpu[0].locked_mhz = 900
    answer = on_node("clocks", "reset")
    assert (answer.code, "--all" in answer.out, node.locked_mhz()) == (0, True, [900, 0])
    answer = on_node("clocks", "reset", "--all")
    assert (answer.code, answer.err, len(answer.out.splitlines())) == (0, "", 2)
    assert node.locked_mhz() == [0, 0]


def test_an_interface_that_is_not_here_is_named(on_node: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "no-such-card")
    assert "GLOO_SOCKET_IFNAME=no-such-card" in on_node("doctor").out
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert "GLOO_SOCKET_IFNAME" not in on_node("doctor").out


# The GPUs that a job would use, and those that it would not.


def found(on_node: Program, *words: object) -> dict[str, Any]:
    return dict(json.loads(on_node("doctor", "--json", *words).out))


def findings(on_node: Program, *words: object) -> list[str]:
    return [f"{one['what']} / {one['remedy']}" for one in found(on_node, *words)["findings"]]


def block(tmp_path: Path, **keys: object) -> Path:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({"perseus": {"enabled": True, **keys}}))
    return path


LEFT = {
    **dict.fromkeys(("", "-1", "0,0", "{0},{0}", "GPU-deadbeef", "MIG-GPU-x/1/0"), ()),
    **dict.fromkeys(("0,5,1", "0;1"), (0,)),
    **dict.fromkeys(("1", "{1}"), (1,)),
    **dict.fromkeys(("1,0", " 1 ,0 ", "{1},{0}"), (0, 1)),
}


@pytest.mark.parametrize("value", LEFT)
def test_the_gpus_that_cuda_visible_devices_leaves(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value.format(*UUIDS))
    assert visible_gpus([0, 1], dict(enumerate(UUIDS))) == set(LEFT[value])


@pytest.mark.parametrize("value", ["", "MIG-GPU-x/1/0", "1"])
def test_jobs_without_a_gpu_are_warned(on_node: Program, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    diagnosis, left = found(on_node), list(LEFT[value])
    assert [one["identity"]["index"] for one in diagnosis["devices"] if one["visible"]] == left
    warned = [f"CUDA_VISIBLE_DEVICES={value}" in one["what"] for one in diagnosis["findings"]]
    assert warned == [True] * (not left)
    assert diagnosis["automatic"]["backend"] == ("nvml" if left else "null")


Ailment = tuple[int, dict[str, int], list[str]]
AILMENTS: list[Ailment] = [
    *((index, {"any_error": 15}, ["lost", "reboot"]) for index in (0, 1)),
    *((index, {"mig": 1}, ["MIG"]) for index in (0, 1)),
    (0, {"reasons": 0x4}, ["SW_POWER_CAP"]),
    (1, {"limit_mw": 300_000, "default_limit_mw": 400_000}, ["300 W"]),
    (1, {"locked_mhz": 720}, ["720 MHz", "restore_clock_mhz", "reset --all"]),
]


@pytest.mark.parametrize("ailment", AILMENTS, ids=str)
def test_what_ails_a_gpu_is_one_finding_where_jobs_use_it(
    on_node: Program, node: FakeNvml, monkeypatch: pytest.MonkeyPatch, ailment: Ailment
) -> None:
    index, state, words = ailment
    for name, value in state.items():
        setattr(node.state.gpu[index], name, value)
    diagnosis = found(on_node)
    assert diagnosis["automatic"]["backend"] == "nvml"
    [one] = diagnosis["findings"]
    assert f"GPU {index} " in one["what"]
    assert all(word in f"{one['what']} {one['remedy']}" for word in words)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", str(1 - index))
    assert findings(on_node) == []


def test_a_driver_that_does_not_start_is_named(on_node: Program, node: FakeNvml) -> None:
    node.state.init_error = 18
    [one] = findings(on_node)
    assert "versions" in one


def test_gpus_of_several_models(on_node: Program, node: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    node.state.gpu[0].name, node.state.gpu[0].energy_error = b"NVIDIA GeForce GTX 1070", 3
    assert ["energy" in one for one in findings(on_node)] == [True]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    [order] = found(on_node)["findings"]
    assert "CUDA_DEVICE_ORDER" in order["remedy"]
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert findings(on_node) == []


@pytest.mark.parametrize("call", ["SupportedMemoryClocks", "SupportedGraphicsClocks"])
def test_unlisted_clocks_are_a_finding(on_node: Program, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    monkeypatch.setattr(pynvml, f"nvmlDeviceGet{call}", Mock(side_effect=pynvml.NVMLError(3)))
    [one] = found(on_node)["findings"]
    assert all(word in one["what"] for word in ("0, 1", "clocks"))
    assert not any(word in one["remedy"] for word in ("root", "CAP_SYS_ADMIN"))


def test_missing_rights_are_found(on_node: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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


def test_torch_without_cuda_trains_on_cpu(on_node: Program, torch_built_for: Callable[[str], None]) -> None:
    torch_built_for("cuda = None\n")
    diagnosis = found(on_node)
    assert diagnosis["automatic"]["backend"] == "null"
    assert ["CUDA" in one["what"] for one in diagnosis["findings"]] == [True]


def test_doctor_judges_the_device_that_the_configuration_names(
    on_node: Program, node: FakeNvml, torch_built_for: Callable[[str], None], tmp_path: Path
) -> None:
    """A simulated job minds neither a lost GPU nor a torch without CUDA; its savings are simulated."""
    node.state.gpu[1].any_error = 15
    torch_built_for("cuda = None\n")
    config = block(tmp_path, device="simulated")
    diagnosis = found(on_node, "--config", config)
    assert diagnosis["device"] == "simulated"
    [one] = diagnosis["findings"]
    assert ("simulated" in one["what"], "simulated" in one["remedy"]) == (True, False)
    assert "automatic takes" not in on_node("doctor", "--config", config).out


# Clocks that stand locked: ``doctor`` names them, ``clocks reset`` restores them, as in an epilog.

TAKEN_OUT = "GPU-12345678-0000-0000-0000-000000000007"
OWNER = "train.py (pid 77)"


def left(boot_id: str | None = None, uuid: str = UUIDS[0], restore_clock_mhz: int | None = None) -> None:
    journal.write(Journal(uuid, "A100", restore_clock_mhz, OWNER, 77, boot_id or journal.boot_id()))


@pytest.mark.usefixtures("node")
def test_nothing_is_said_of_gpus_that_run_free_or_of_an_earlier_boot(on_node: Program) -> None:
    assert findings(on_node) == []
    assert not Path(os.environ["PERSEUS_GUARD_DIR"]).exists(), "who looks makes no folder"
    left(boot_id="another")
    assert findings(on_node) == []


def test_the_journal_of_a_dead_guard_and_one_that_cannot_be_read(on_node: Program, node: FakeNvml) -> None:
    left()
    node.state.gpu[0].locked_mhz = 720
    [said] = findings(on_node)
    assert all(words in said for words in (UUIDS[0], "train.py", "clocks reset"))
    assert node.locked_mhz() == [720, 0]
    assert on_node("clocks", "reset").code == 0
    assert findings(on_node) == []
    Path(os.environ["PERSEUS_GUARD_DIR"], f"{UUIDS[0]}.json").write_text("{")
    [said] = findings(on_node)
    assert all(words in said for words in (UUIDS[0], "journal"))


def test_what_a_living_job_holds_is_neither_told_nor_reset(on_node: Program, node: FakeNvml) -> None:
    left()
    node.state.gpu[0].locked_mhz = 900
    lease = OwnershipLock(UUIDS[0], OWNER)
    assert findings(on_node) == []
    for words in ((), ("--all",)):
        answer = on_node("clocks", "reset", *words)
        assert (answer.code, UUIDS[0] in answer.out) == (0, True)
        assert node.locked_mhz() == [900, 0]
    lease.release()


@pytest.mark.thorough
def test_a_gpu_that_comes_back_is_put_right_by_its_journal(on_node: Program, node: FakeNvml) -> None:
    own = node.state.gpu[0].uuid
    left(uuid=own.decode(), restore_clock_mhz=1200)
    node.state.gpu[0].uuid = TAKEN_OUT.encode()
    for count in (1, 2):  # the journal of a GPU that is gone stays, and a lock that none tells of
        assert len(findings(on_node)) == count
        assert on_node("clocks", "reset").code == 0
        node.state.gpu[0].locked_mhz = 900
    node.state.gpu[0].uuid = own
    answer = on_node("clocks", "reset")
    assert (answer.code, own.decode() in answer.out) == (0, True)
    assert node.locked_mhz() == [1200, 0]
    assert list(journal.journaled_uuids()) == []


@pytest.mark.slow
def test_a_refusing_driver_is_a_failure_beside_a_living_job_another(on_node: Program, node: FakeNvml) -> None:
    for uuid in UUIDS:
        left(uuid=uuid)
    node.state.gpu[1].reset_error = 15
    answer = on_node("clocks", "reset")
    assert (answer.code, "Traceback" in answer.err, UUIDS[1] in answer.out) == (1, False, True)
    left()
    lease = OwnershipLock(UUIDS[0], OWNER)
    answer = on_node("clocks", "reset")
    lease.release()
    assert answer.code == 3


@pytest.mark.parametrize("words", [("clocks", "reset"), ("doctor",)])
def test_the_root_of_all_is_no_folder_for_journals(
    on_node: Program, node: FakeNvml, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    environment = node.environment() | {"PERSEUS_GUARD_DIR": "/"}
    monkeypatch.setattr(node, "environment", lambda: environment)
    answer = on_node(*words)
    assert "Traceback" not in answer.err
    assert "PERSEUS_GUARD_DIR=/" in answer.err + answer.out
