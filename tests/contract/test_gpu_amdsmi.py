"""The AMD backend keeps the contract, on a fake library under the real amdsmi binding."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fake_amdsmi
import pytest
from fake_amdsmi import UUID, FakeAmdsmi
from gpu_contract import GpuContract
from hosts import eventually

from perseus_ds.device.amd import AmdGpu, load_amdsmi
from perseus_ds.device.gpu import DeviceRequest, EventReason, Gpu
from perseus_ds.errors import DevicePermissionError, DeviceUnavailableError, DeviceUnsupportedError
from perseus_ds.guard.client import GuardedGpu
from perseus_ds.guard.open import choose
from perseus_ds.guard.repair import Outcome, Repair, repair


@pytest.fixture
def amd_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeAmdsmi:
    why_not = fake_amdsmi.missing()
    if why_not is not None:
        pytest.skip(why_not)
    node = FakeAmdsmi(tmp_path / "gpus")
    for name, value in node.environment().items():
        monkeypatch.setenv(name, value)
    return node


class TestAmdGpu(GpuContract):
    @pytest.fixture
    def gpu(self, amd_node: FakeAmdsmi) -> Iterator[Gpu]:
        with AmdGpu(DeviceRequest("amdsmi", local_rank=1)) as gpu:
            yield gpu


@pytest.mark.e2e
class TestGuardedAmdGpu(GpuContract):
    @pytest.fixture
    def gpu(self, amd_node: FakeAmdsmi) -> Iterator[Gpu]:
        with choose(DeviceRequest("amdsmi", local_rank=1)).gpu as gpu:
            assert isinstance(gpu, GuardedGpu)
            yield gpu
        assert amd_node.limits_mhz() == [0, 0]

    def settle(self, gpu: Gpu) -> None:
        gpu.sync()


def opened(node: FakeAmdsmi, **numbers: int) -> AmdGpu:
    """The first GPU, whose driver has these numbers."""
    for name, value in numbers.items():
        setattr(node.state.gpu[0], name, value)
    return AmdGpu(DeviceRequest("amdsmi"))


@pytest.mark.parametrize(
    "request_",
    [DeviceRequest("amdsmi", uuid=UUID.format(1)), DeviceRequest("amdsmi", pci_bus_id="0000:02:00.0")],
)
def test_a_device_is_found_by_what_torch_knows_of_it(amd_node: FakeAmdsmi, request_: DeviceRequest) -> None:
    with AmdGpu(request_) as gpu:
        found = gpu.identify()
    assert (found.index, found.name, found.driver) == (1, "Fake MI300X", "9.99.1")


def test_a_device_that_is_not_there_is_named(amd_node: FakeAmdsmi) -> None:
    with pytest.raises(DeviceUnavailableError, match="GPU 7"):
        AmdGpu(DeviceRequest("amdsmi", local_rank=7))
    assert choose(DeviceRequest("automatic")).backend != "amdsmi", "nobody has tried it on a real GPU"


@pytest.mark.parametrize(
    ("numbers", "reasons"),
    [
        ({}, EventReason.NONE),
        ({"load_pct": 0}, EventReason.GPU_IDLE),
        ({"power_capped": 1}, EventReason.SW_POWER_CAP),
        ({"hot": 1}, EventReason.SW_THERMAL),
        ({"hot": 1, "no_violations": 1}, EventReason.NONE),
    ],
)
def test_a_throttle_has_a_reason(amd_node: FakeAmdsmi, numbers: dict[str, int], reasons: EventReason) -> None:
    with opened(amd_node, **numbers) as gpu:
        assert gpu.achieved().event_reasons == reasons


def test_a_part_that_takes_no_limit_and_has_no_counter_says_so(amd_node: FakeAmdsmi) -> None:
    with opened(amd_node, no_energy=1) as gpu:
        assert gpu.capabilities().counter_period_s is None
        with pytest.raises(DeviceUnsupportedError, match="error 2"):
            gpu.energy_j()
    amd_node.state.gpu[0].no_limits = 1
    with choose(DeviceRequest("amdsmi")).gpu as gpu:
        assert not gpu.capabilities().can_lock
        assert "no limits" in str(gpu.capabilities().why_not)
        with pytest.raises(DeviceUnsupportedError):
            gpu.lock_clock(1500)


def test_without_the_right_the_remedy_is_named(amd_node: FakeAmdsmi) -> None:
    with opened(amd_node, denied=1) as gpu, pytest.raises(DevicePermissionError, match="root"):
        gpu.lock_clock(1500)


@pytest.mark.e2e
def test_an_operators_limit_is_asked_for_and_comes_back_exactly(amd_node: FakeAmdsmi) -> None:
    amd_node.state.gpu[0].limit_mhz = 1733
    with choose(DeviceRequest("amdsmi", restore_clock_mhz=1733)).gpu as gpu:
        gpu.lock_clock(1500)
        gpu.sync()
        assert amd_node.limits_mhz() == [1500, 0]
    assert amd_node.limits_mhz() == [1733, 0]


@pytest.mark.e2e
def test_a_killed_guard_is_made_good_through_the_same_library(amd_node: FakeAmdsmi) -> None:
    code = (
        "import os, signal; from perseus_ds.device.gpu import DeviceRequest;"
        "from perseus_ds.guard.open import choose;"
        "gpu = choose(DeviceRequest('amdsmi')).gpu; gpu.lock_clock(1500); gpu.sync();"
        "os.kill(gpu._guard.pid, signal.SIGKILL); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    assert amd_node.limits_mhz() == [1500, 0]
    done: list[Repair] = []  # held until the killed guard is gone, and its lease with it
    assert eventually(lambda: done.extend(repair()) or done[-1].outcome is not Outcome.HELD)
    assert done[-1].outcome is Outcome.RESTORED
    assert UUID.format(0) in str(done[-1])
    assert amd_node.limits_mhz() == [0, 0]


@pytest.mark.e2e
def test_without_the_library_one_line_says_what_to_install(amd_node: FakeAmdsmi, tmp_path: Path) -> None:
    code = (
        "from perseus_ds.device.gpu import DeviceRequest; from perseus_ds.guard.open import choose;"
        "choose(DeviceRequest('amdsmi'))"
    )
    command, places = [sys.executable, "-c", code], dict.fromkeys(("ROCM_HOME", "ROCM_PATH"), str(tmp_path))
    told = subprocess.run(command, env=places, capture_output=True, text=True, check=False)
    assert told.stdout == ""
    assert "DeviceUnavailableError: amdsmi" in told.stderr
    assert "amd-smi-lib" in told.stderr


def test_closed_twice_is_shut_down_once(amd_node: FakeAmdsmi, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = AmdGpu(DeviceRequest("amdsmi", local_rank=1))
    library, stopped = load_amdsmi(), []
    monkeypatch.setattr(library, "amdsmi_shut_down", lambda: stopped.append(True))
    gpu.close()
    gpu.close()
    assert stopped == [True]


@pytest.mark.parametrize(("load", "busy", "idle"), [(0, None, True), (7, "7 %", False), ("N/A", None, True)])
def test_the_load_says_who_works_and_who_idles(
    amd_node: FakeAmdsmi, monkeypatch: pytest.MonkeyPatch, load: object, busy: str | None, *, idle: bool
) -> None:
    with AmdGpu(DeviceRequest("amdsmi", local_rank=1)) as gpu:
        monkeypatch.setattr(load_amdsmi(), "amdsmi_get_gpu_activity", lambda _: {"gfx_activity": load})
        told = gpu.busy()
        assert (told is None) == (busy is None)
        assert busy is None or busy in str(told)
        assert bool(gpu.achieved().event_reasons & EventReason.GPU_IDLE) == idle


def test_energy_power_and_temperature_are_in_their_units_where_the_firmware_tells_them(
    amd_node: FakeAmdsmi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A counter in steps of microjoules; the power of the socket; the hottest spot."""
    count = {"energy_accumulator": 2_000_000, "counter_resolution": 15.3}
    with AmdGpu(DeviceRequest("amdsmi")) as gpu:
        assert gpu.temperature_c() is None
        amd_node.state.gpu[0].temperature_c = 63
        assert gpu.temperature_c() == 63.0
        monkeypatch.setattr(load_amdsmi(), "amdsmi_get_energy_count", lambda _: count)
        assert gpu.energy_j() == pytest.approx(30.6, rel=1e-12)
        for told, power_w in ((412, 412.0), ("N/A", None)):
            answer = {"current_socket_power": told}
            monkeypatch.setattr(load_amdsmi(), "amdsmi_get_power_info", lambda _, answer=answer: answer)
            assert gpu.power_w() == power_w


@pytest.mark.e2e
@pytest.mark.parametrize("code", [55, 10, 13, 2, None])
def test_no_code_is_final_on_the_way_back(amd_node: FakeAmdsmi, code: int | None) -> None:
    gpu = choose(DeviceRequest("amdsmi")).gpu
    gpu.lock_clock(1000)
    gpu.sync()
    assert amd_node.limits_mhz() == [1000, 0]
    amd_node.strike(for_s=0.3, code=code)
    gpu.close()
    assert amd_node.limits_mhz() == [0, 0]
