"""The NVML backend keeps the contract, alone and behind its guard, on the fake driver under pynvml."""

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest
from fake_nvml import UUID, FakeNvml
from gpu_contract import GpuContract

import perseus_ds
from perseus_ds.device.gpu import DeviceRequest, EventReason, Gpu, OperatorSettings, setting_changes
from perseus_ds.device.nvml import NvmlGpu
from perseus_ds.errors import (
    DeviceLostError,
    DevicePermissionError,
    DeviceUnavailableError,
    DeviceUnsupportedError,
    ValueRefusedError,
)
from perseus_ds.guard.client import GuardedGpu
from perseus_ds.guard.open import backends, choose
from perseus_ds.guard.spawn import open_guarded


class TestNvmlGpu(GpuContract):
    @pytest.fixture
    def gpu(self, node: FakeNvml) -> Iterator[Gpu]:
        with NvmlGpu(DeviceRequest("nvml", local_rank=1)) as gpu:
            yield gpu


@pytest.mark.parametrize(
    "address",
    [
        {"uuid": UUID.format(1)},
        {"uuid": UUID.format(1).removeprefix("GPU-")},
        {"pci_bus_id": "00000000:01:00.0"},
    ],
)
def test_a_device_is_found_by_its_uuid_or_its_bus(node: FakeNvml, address: dict[str, str]) -> None:
    with NvmlGpu(DeviceRequest("nvml", **address)) as gpu:
        assert (gpu.identify().index, gpu.identify().uuid) == (1, UUID.format(1))
        assert gpu.device_file() == "/dev/nvidia1"


def opened(node: FakeNvml, **numbers: int) -> NvmlGpu:
    """The first GPU, whose driver has these numbers."""
    for name, value in numbers.items():
        setattr(node.state.gpu[0], name, value)
    return NvmlGpu(DeviceRequest("nvml"))


def test_a_lock_outlives_its_process_and_a_throttle_has_its_reason(node: FakeNvml) -> None:
    with opened(node, reasons=0x4, persistence=0) as gpu:
        assert gpu.achieved().event_reasons is EventReason.SW_POWER_CAP
        assert gpu.capabilities().persistence is False
        gpu.lock_clock(705)
    assert node.locked_mhz() == [705, 0]


def test_an_older_driver_or_binding_is_read_by_its_older_names(node: FakeNvml) -> None:
    node.state.gpu[0].reasons, node.state.gpu[0].temperature_c = 0x4, 48
    code = (
        "import pynvml; from perseus_ds.device.gpu import DeviceRequest;"
        "from perseus_ds.device.nvml import NvmlGpu; gpu = NvmlGpu(DeviceRequest('nvml'));"
        "print(gpu.achieved().event_reasons.name, gpu.temperature_c());"
        "vars(pynvml).pop('nvmlDeviceGetTemperatureV', None); print(gpu.temperature_c())"
    )
    environment = node.environment(old_driver=True)
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    assert told.stdout.decode().split() == ["SW_POWER_CAP", "48.0", "48.0"]


def test_a_service_that_sets_clocks_comes_first_and_one_that_would_only_read_does_not() -> None:
    names = [one.name for one in backends() if one.automatic]
    assert names == ["guardd", "nvml", "null"]
    assert "clocks" in str(backends()[0].try_open(DeviceRequest("automatic", lock=False)))


def test_automatic_takes_no_gpu_by_its_number(node: FakeNvml) -> None:
    """A job on the CPU of a GPU node: the GPUs here are others'."""
    choice = choose(DeviceRequest("automatic", local_rank=1))
    assert (choice.backend, choice.gpu.capabilities().can_lock) == ("null", False)
    assert "CPU" in choice.reason
    with choose(DeviceRequest("automatic", local_rank=0, uuid=UUID.format(1))).gpu as gpu:
        assert gpu.identify().index == 1


def test_without_the_right_to_lock_it_is_read(node: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perseus_ds.device.nvml.missing_right", lambda: "user 1000 is not root")
    choice = choose(DeviceRequest("automatic", uuid=UUID.format(0)))
    assert choice.backend == "nvml"
    assert not choice.gpu.capabilities().can_lock
    assert "user 1000" in choice.reason
    choice.gpu.close()


@pytest.mark.parametrize(
    ("numbers", "highest_mhz"),
    [
        ({}, 1410),
        ({"app_mhz": 1155, "default_app_mhz": 1155}, 1410),
        ({"app_mhz": 1200, "default_app_mhz": 1155}, 1200),
        ({"boost_mhz": 1305}, 1305),
        ({"app_mhz": 1200, "default_app_mhz": 1155, "boost_mhz": 1305}, 1200),
        ({"app_mhz": 1410, "default_app_mhz": 1410, "boost_mhz": 1410}, 1410),
    ],
    ids=["none", "the default is no ceiling", "application clock", "customer boost", "both", "as an H100's"],
)
def test_an_operators_ceiling_stays_one(node: FakeNvml, numbers: dict[str, int], highest_mhz: int) -> None:
    """A lock overrides an application clock upwards."""
    with opened(node, **numbers) as gpu:
        assert gpu.capabilities().default_clock_mhz == highest_mhz
        assert (gpu.operator_settings().ceiling_mhz or 1410) == highest_mhz
        with pytest.raises(DeviceUnsupportedError):
            gpu.lock_clock(highest_mhz + 15)


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ({}, None),
        ({"used_mib": 4}, None),
        ({"processes": 2}, "process 4000"),
        ({"utilization": 7}, "7 %"),
        ({"used_mib": 20_000}, "20000 MiB"),
        ({"silent": 1}, None),
        ({"silent": 1, "processes": 2, "utilization": 7}, "7 %"),
        ({"silent": 2}, "not report"),
    ],
)
def test_who_works_on_a_gpu_is_said(node: FakeNvml, numbers: dict[str, int], says: str | None) -> None:
    with opened(node, **numbers) as gpu:
        told = gpu.busy()
        assert (told is None) == (says is None)
        assert says is None or says in str(told)


def test_energy_power_and_temperature_have_units(node: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    """A counter in millijoules; the power of this instant; the chip's sensor."""
    with NvmlGpu(DeviceRequest("nvml")) as gpu:
        assert gpu.temperature_c() is None
        node.state.gpu[0].temperature_c = 57
        assert gpu.temperature_c() == 57.0
        assert gpu.power_w() == pytest.approx(0.2 * gpu.achieved().clock_mhz)
        monkeypatch.delattr("pynvml.NVML_FI_DEV_POWER_INSTANT")
        assert gpu.power_w() is None
        monkeypatch.setattr("pynvml.nvmlDeviceGetTotalEnergyConsumption", lambda _: 123_456_789)
        assert gpu.energy_j() == 123_456.789


def test_without_a_counter_energy_is_refused(node: FakeNvml) -> None:
    with opened(node, energy_error=3) as gpu:
        assert gpu.capabilities().counter_period_s is None
        with pytest.raises(DeviceUnsupportedError):
            gpu.energy_j()


@pytest.mark.parametrize(
    ("request_", "numbers", "error", "says"),
    [
        (DeviceRequest("nvml", local_rank=9), {}, DeviceUnsupportedError, "GPU 9"),
        (DeviceRequest("nvml", uuid="GPU-dead"), {}, DeviceUnavailableError, "GPU-dead.*_VISIBLE_DEVICES"),
        (DeviceRequest("nvml", uuid="MIG-1234"), {}, DeviceUnsupportedError, "MIG slice"),
        (DeviceRequest("nvml"), {"mig": 1}, DeviceUnsupportedError, "nvidia-smi -mig"),
        (DeviceRequest("nvml"), {"init_error": 9}, DeviceUnavailableError, "not loaded"),
    ],
)
def test_a_gpu_that_cannot_be_opened_says_why(
    node: FakeNvml, request_: DeviceRequest, numbers: dict[str, int], error: type[Exception], says: str
) -> None:
    for name, value in numbers.items():
        setattr(node.state if name == "init_error" else node.state.gpu[0], name, value)
    with pytest.raises(error, match=says):
        NvmlGpu(request_)


@pytest.mark.parametrize(
    ("field", "code", "error"),
    [
        ("set_error", 2, ValueRefusedError),
        ("set_error", 4, DevicePermissionError),
        ("set_error", 3, DeviceUnsupportedError),
        ("set_error", 15, DeviceLostError),
        ("any_error", 15, DeviceLostError),
    ],
)
def test_a_driver_error_is_ours(node: FakeNvml, field: str, code: int, error: type[Exception]) -> None:
    with NvmlGpu(DeviceRequest("nvml")) as gpu:
        setattr(node.state.gpu[0], field, code)
        with pytest.raises(error, match=f"NVML error {code}"):
            gpu.lock_clock(705)


# What operators have set of power and clocks.


BLACKWELL, HOPPER = 10, 9


def read(node: FakeNvml, **numbers: int) -> OperatorSettings:
    with opened(node, **numbers) as gpu:
        return gpu.operator_settings()


def test_a_driver_that_states_nothing_is_believed_and_defaults_are_nothing_unusual(node: FakeNvml) -> None:
    found = read(node)
    assert found == OperatorSettings()
    assert (found.fields(), list(found.unusual())) == ({}, [])
    found = read(node, limit_mw=400_000, default_limit_mw=400_000, app_mhz=1100, default_app_mhz=1100)
    assert found.fields() == {"power_limit": "400 W", "application_clock": "default"}
    assert list(found.unusual()) == []


def test_everything_that_others_set_is_read(node: FakeNvml) -> None:
    found = read(
        node,
        limit_mw=300_000,
        default_limit_mw=400_000,
        app_mhz=1200,
        default_app_mhz=1100,
        architecture=BLACKWELL,
        smoothing=3,
        power_profile=5,
    )
    assert found == OperatorSettings(300.0, 400.0, 1200, True, (5,))
    assert found.fields() == {
        "power_limit": "300 W",
        "application_clock": "1200 MHz",
        "power_smoothing": "on",
        "power_profiles": "5",
    }
    assert list(found.unusual()) == [
        "power limit 300 W instead of 400 W",
        "application clock or customer boost 1200 MHz",
        "power smoothing on",
        "workload power profile 5",
    ]


@pytest.mark.parametrize(
    ("numbers", "smoothing"),
    [
        ({"smoothing": 1}, False),
        ({"smoothing": 2}, True),
        ({}, None),
        ({"smoothing": 2, "architecture": HOPPER}, None),
    ],
)
def test_smoothing_of_blackwell(node: FakeNvml, numbers: dict[str, int], *, smoothing: bool | None) -> None:
    assert read(node, **{"architecture": BLACKWELL, **numbers}).smoothing is smoothing


def test_a_driver_that_refuses_leaves_out_what_it_refuses_and_a_lost_gpu_is_said(node: FakeNvml) -> None:
    with NvmlGpu(DeviceRequest("nvml")) as gpu:
        for code in (3, 4, 999):
            node.state.gpu[0].any_error = code
            assert gpu.operator_settings() == OperatorSettings()
        node.state.gpu[0].any_error = 15
        with pytest.raises(DeviceLostError):
            gpu.operator_settings()


def test_power_profiles_are_the_bits_of_all_words(node: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(_: object, current: object) -> None:
        mask = current._obj.enforcedProfilesMask.mask
        mask[0], mask[1], mask[len(mask) - 1] = 0b101, 0b1, 1 << 31

    monkeypatch.setattr(pynvml, "nvmlDeviceWorkloadPowerProfileGetCurrentProfiles", answer)
    words = len(pynvml.c_nvmlWorkloadPowerProfileCurrentProfiles_v1_t().enforcedProfilesMask.mask)
    assert read(node).profiles == (0, 2, 32, 32 * words - 1)


def test_a_binding_without_these_names_is_served(node: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NVML_FI_PWR_SMOOTHING_ENABLED", "nvmlDeviceWorkloadPowerProfileGetCurrentProfiles"):
        monkeypatch.delattr(pynvml, name)
    found = read(node, architecture=BLACKWELL, smoothing=2, power_profile=5)
    assert (found.smoothing, found.profiles) == (None, None)


def test_only_what_both_readings_state_has_changed() -> None:
    before, now = {"power_limit": "400 W", "power_profiles": "1"}, {"power_limit": "300 W"}
    [told] = setting_changes(before, now)
    assert told.startswith("power limit")
    assert "300 W" in told.partition("400 W")[2]
    assert list(setting_changes({}, now)) == []


# Behind its guard: a real guard process.


@pytest.mark.e2e
class TestGuardedGpu(GpuContract):
    @pytest.fixture
    def gpu(self, node: FakeNvml) -> Iterator[Gpu]:
        with open_guarded(NvmlGpu(DeviceRequest("nvml"))) as gpu:
            yield gpu
        assert node.locked_mhz() == [0, 0]

    def settle(self, gpu: Gpu) -> None:
        assert isinstance(gpu, GuardedGpu)
        gpu.sync()


ONE_CLOCK = """
from perseus_ds.device.gpu import DeviceRequest
from perseus_ds.device.nvml import NvmlGpu
from perseus_ds.guard.spawn import open_guarded
with open_guarded(NvmlGpu(DeviceRequest("nvml"))) as gpu:
    gpu.lock_clock(900)
    gpu.sync()
"""


@pytest.mark.e2e
def test_an_old_backport_beside_us_hides_no_module_of_the_guard(node: FakeNvml, tmp_path: Path) -> None:
    """Lists of requirements still name ``dataclasses`` and ``pathlib``, which no longer import."""
    venv.create(tmp_path / "venv", symlinks=True)
    [site] = (tmp_path / "venv").glob("lib/python*/site-packages")
    shutil.copytree(Path(perseus_ds.__file__).parent, site / "perseus_ds")
    shutil.copy(pynvml.__file__, site)
    (site / "dataclasses.py").write_text("raise ImportError")
    words = [tmp_path / "venv" / "bin" / "python", "-c", ONE_CLOCK]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(words, check=True, cwd=tmp_path, env=environment)
    assert (node.state.gpu[0].sets, node.state.gpu[0].resets) == (1, 1)
