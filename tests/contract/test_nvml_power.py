"""What operators have set of power and clocks, read through the real pynvml."""

import pytest
from fake_nvml import FakeNvml

from perseus_ds.device.gpu import DeviceRequest, OperatorSettings, setting_changes
from perseus_ds.device.nvml import NvmlGpu
from perseus_ds.errors import DeviceLostError

pynvml = pytest.importorskip("pynvml")
BLACKWELL, HOPPER = 10, 9


def read(node: FakeNvml, **numbers: int) -> OperatorSettings:
    for name, value in numbers.items():
        setattr(node.state.gpu[0], name, value)
    with NvmlGpu(DeviceRequest("nvml")) as gpu:
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
