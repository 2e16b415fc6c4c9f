"""The model of a change: what it is made of, and calls that take their turns."""

import math

import pytest

from perseus_ds.device.clock_change import Calibration, ClockChange, queue_call
from perseus_ds.errors import DeviceError
from perseus_ds.guard.open import NullGpu

MEASURED = Calibration(
    call_s=0.010, up_s=0.036, down_s=0.030, together_s=0.071, counter_period_s=0.1, unreached=0
)


def test_up_and_down_take_their_own_time() -> None:
    change = ClockChange(call_s=0.01, settle_up_s=0.02, settle_down_s=0.005)
    assert change.latency_s(1000, 1400) == pytest.approx(0.03)
    assert change.latency_s(1400, 1000) == pytest.approx(0.015)
    assert change.longest_s == pytest.approx(0.03)


def test_a_calibration_says_what_a_change_is_made_of() -> None:
    change = ClockChange.of(NullGpu().capabilities(), MEASURED, gpus=8)
    assert change.latency_s(1, 2) == pytest.approx(0.036)
    assert change.latency_s(2, 1) == pytest.approx(0.030)
    assert change.queue_s == pytest.approx(0.005)  # seven others, 35 ms in all


def test_without_a_calibration_what_the_device_declares() -> None:
    assert ClockChange.of(NullGpu().capabilities()) == ClockChange()


@pytest.mark.parametrize("value", [-1e-3, math.nan, math.inf])
@pytest.mark.parametrize("name", ["call_s", "settle_up_s", "settle_down_s", "queue_s", "stall_s"])
def test_what_is_no_duration_is_refused(name: str, value: float) -> None:
    with pytest.raises(DeviceError, match=name):
        ClockChange(**{name: value})


def test_a_queue_longer_than_the_call_is_refused() -> None:
    with pytest.raises(DeviceError, match=r"queue_s.*call_s"):
        ClockChange(call_s=0.01, queue_s=0.02)


def test_eight_calls_at_once_take_their_turns() -> None:
    driver_free_s, in_force_s = -math.inf, []
    for _ in range(8):
        _, driver_free_s, one_s = queue_call(1.0, -math.inf, driver_free_s, -math.inf, 0.010, 0.036, 0.005)
        in_force_s.append(one_s)
    assert in_force_s == pytest.approx([1.036 + 0.005 * turn for turn in range(8)])


def test_a_gpu_makes_one_call_after_the_other_and_nothing_overtakes() -> None:
    free_s, _, up_s = queue_call(0.0, -math.inf, -math.inf, -math.inf, 0.010, 0.040, 0.0)
    free_s, _, down_s = queue_call(0.001, free_s, -math.inf, up_s, 0.010, 0.010, 0.0)
    assert (free_s, up_s) == pytest.approx((0.020, 0.040))
    assert down_s == up_s  # its own latency would have it in force at 20 ms
    assert queue_call(0.5, free_s, -math.inf, down_s, 0.010, 0.040, 0.0)[2] == pytest.approx(0.540)
