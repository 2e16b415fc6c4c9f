"""Windows of energy that any program measures: joules with their errors, without torch."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from lone_job import NotingGpu

import perseus_ds
from perseus_ds.errors import DeviceError, DeviceLostError, DeviceUnavailableError

POWER_W = 200.0


class SteadyGpu(NotingGpu):
    """Takes the same power all the time; its counter moves every 20 ms."""

    def now_s(self) -> float:
        return time.monotonic()

    def energy_j(self) -> float:
        if self.fails is not None:
            raise self.fails
        return POWER_W * (time.monotonic() // 0.02 * 0.02)

    def power_w(self) -> float:
        return POWER_W


def test_a_window_has_energy_time_and_error() -> None:
    with perseus_ds.EnergyMonitor(SteadyGpu(counter_period_s=0.05)) as monitor:
        monitor.begin_window("all")
        begun_s = time.monotonic()
        monitor.begin_window("first")
        time.sleep(0.2)
        first = monitor.end_window("first")
        time.sleep(0.1)
        whole = monitor.end_window("all")
        passed_s = time.monotonic() - begun_s
        assert monitor.warnings == ()
    assert 0.2 <= first.time_s < whole.time_s <= passed_s + 0.1
    for used in (first, whole):
        assert 0.0 < used.energy_se_j < 0.5 * used.energy_j
        assert abs(used.energy_j - POWER_W * used.time_s) < 5.0 * used.energy_se_j
        assert used.power_w == pytest.approx(used.energy_j / used.time_s)


def test_names_are_of_open_windows() -> None:
    with perseus_ds.EnergyMonitor(SteadyGpu(counter_period_s=0.05)) as monitor:
        monitor.begin_window("a")
        with pytest.raises(ValueError, match="open"):
            monitor.begin_window("a")
        with pytest.raises(ValueError, match="open"):
            monitor.end_window("b")
        monitor.close()


@pytest.mark.parametrize(
    ("gpu", "error"),
    [(NotingGpu(counter_period_s=None), DeviceUnavailableError), (NotingGpu(), DeviceLostError)],
    ids=["no counter", "lost"],
)
def test_a_gpu_without_energy_is_refused(gpu: NotingGpu, error: type[DeviceError]) -> None:
    gpu.fails = DeviceLostError("gone")
    with pytest.raises(error):
        perseus_ds.EnergyMonitor(gpu)


def test_it_is_imported_without_torch() -> None:
    program = (
        "import sys, perseus_ds\n"
        "assert 'numpy' not in sys.modules\n"
        "perseus_ds.EnergyMonitor\n"
        "print([name for name in ('torch', 'numpy', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run(  # this Python, and the program above
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
