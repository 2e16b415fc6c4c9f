"""``perseus-ds doctor`` and ``clocks reset``, on a node with fake GPUs."""

import json

import fake_nvml
import pytest
from cli_program import Program

from perseus_ds.guard.claim import OwnershipLock

pytestmark = pytest.mark.usefixtures("cuda_torch")


def test_doctor_in_json(on_node: Program, node: fake_nvml.FakeNvml) -> None:
    found = json.loads(on_node("doctor", "--json").out)
    assert [device["identity"]["index"] for device in found["devices"]] == [0, 1]
    assert found["devices"][0]["capabilities"]["clocks_mhz"][0] == 1410
    assert {backend["name"] for backend in found["backends"]} >= {"nvml", "simulated", "null"}
    assert found["automatic"]["backend"] == "nvml"
    assert {"hook", "missing_right", "findings"} <= set(found)


def test_doctor_sets_nothing(on_node: Program, node: fake_nvml.FakeNvml) -> None:
    node.state.gpu[1].locked_mhz = 900
    assert on_node("doctor").code == 0
    assert node.locked_mhz() == [0, 900]
    assert [node.state.gpu[index].sets + node.state.gpu[index].resets for index in range(2)] == [0, 0]


def test_doctor_checks_clock_counter_and_the_cost_of_reads(
    on_node: Program, node: fake_nvml.FakeNvml
) -> None:
    node.state.gpu[0].read_us = 2000
    slow, quick = (one["checks"] for one in json.loads(on_node("doctor", "--json").out)["devices"])
    assert slow["clock_mhz"] > 0
    assert slow["read_p50_ms"] >= 2.0
    assert slow["read_p50_ms"] <= slow["read_max_ms"]
    assert quick["counter_by_power"] is None or quick["counter_by_power"] > 0.0
    assert node.state.gpu[0].sets == 0


@pytest.mark.thorough
def test_doctor_times_clock_changes_when_asked_to(afresh_on_node: Program, node: fake_nvml.FakeNvml) -> None:
    for index in range(2):
        node.state.gpu[index].call_us, node.state.gpu[index].settle_us = 4000, 20_000
    answer = afresh_on_node("doctor", "--calibrate", "--json")
    assert (answer.code, answer.err) == (0, "")
    assert all(node.state.gpu[index].sets > 0 for index in range(2))
    assert node.locked_mhz() == [0, 0]
    found = json.loads(answer.out)["calibration"]
    assert [one["index"] for one in found] == [0, 1]
    for one in found:
        assert one["calibration"]["call_s"] > 0.003
        assert one["calibration"]["up_s"] is None or one["calibration"]["up_s"] > 0.02


def test_doctor_calibrates_no_gpu_that_is_in_use(on_node: Program, node: fake_nvml.FakeNvml) -> None:
    node.state.gpu[0].processes, node.state.gpu[1].utilization = 1, 40
    answer = on_node("doctor", "--calibrate")
    assert answer.code == 1
    assert answer.out.count("not measured") == 2
    assert "4000" in answer.out
    assert "40 %" in answer.out
    assert [node.state.gpu[index].sets + node.state.gpu[index].resets for index in range(2)] == [0, 0]


@pytest.mark.thorough
def test_doctor_calibrates_no_gpu_that_a_job_holds(
    on_node: Program, node: fake_nvml.FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSEUS_GUARD_DIR", node.environment()["PERSEUS_GUARD_DIR"])
    lease = OwnershipLock(fake_nvml.UUID.format(0), "train.py (pid 77)")
    answer = on_node("doctor", "--calibrate")
    lease.release()
    assert answer.code == 0
    assert "train.py" in answer.out
    assert (node.state.gpu[0].sets, node.state.gpu[1].sets > 0) == (0, True)


@pytest.mark.thorough
def test_doctor_leaves_an_operators_lock_alone(on_node: Program, node: fake_nvml.FakeNvml) -> None:
    node.state.gpu[0].locked_mhz = 900
    answer = on_node("doctor", "--calibrate")
    assert (answer.code, "900 MHz" in answer.out) == (0, True)
    assert node.locked_mhz() == [900, 0]


@pytest.mark.thorough
def test_doctor_tells_an_idle_gpu_from_a_slow_one(on_node: Program, node: fake_nvml.FakeNvml) -> None:
    node.state.gpu[0].forgets, node.state.gpu[0].reasons, node.state.gpu[1].forgets = 1, 0x1, 1
    said = on_node("doctor", "--calibrate").out
    assert said.count("is idle") == 1
    assert said.count("not reached") == 1


def test_doctor_says_what_operators_have_set_of_power(on_node: Program, node: fake_nvml.FakeNvml) -> None:
    node.state.gpu[0].limit_mw = node.state.gpu[0].default_limit_mw = 400_000
    node.state.gpu[1].limit_mw, node.state.gpu[1].default_limit_mw = 300_000, 400_000
    found = json.loads(on_node("doctor", "--json").out)
    [unusual] = found["findings"]
    assert "GPU 1" in unusual["what"]
    assert "300 W" in unusual["what"]
    [_, second] = found["devices"]
    assert (second["power"]["limit_w"], second["power"]["default_limit_w"]) == (300.0, 400.0)


def test_doctor_says_what_is_throttled(on_node: Program, node: fake_nvml.FakeNvml) -> None:
    node.state.gpu[0].reasons = 0x4
    [one] = json.loads(on_node("doctor", "--json").out)["findings"]
    assert "GPU 0 " in one["what"]
    assert "SW_POWER_CAP" in one["what"]


def test_clocks_reset_finds_nothing_to_do(on_node: Program, node: fake_nvml.FakeNvml) -> None:
    node.state.gpu[0].locked_mhz = 900
    answer = on_node("clocks", "reset")
    assert answer.code == 0
    assert "--all" in answer.out
    assert node.locked_mhz() == [900, 0]


def test_clocks_reset_all_resets_every_gpu(afresh_on_node: Program, node: fake_nvml.FakeNvml) -> None:
    node.state.gpu[0].locked_mhz = 900
    answer = afresh_on_node("clocks", "reset", "--all")
    assert (answer.code, answer.err) == (0, "")
    assert len(answer.out.splitlines()) == 2
    assert node.locked_mhz() == [0, 0]


def test_doctor_names_an_interface_that_is_not_here(
    on_node: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "no-such-card")
    assert "GLOO_SOCKET_IFNAME=no-such-card" in on_node("doctor").out
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert "GLOO_SOCKET_IFNAME" not in on_node("doctor").out
