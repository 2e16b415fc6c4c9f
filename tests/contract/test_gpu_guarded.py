"""A GPU behind its guard keeps the contract: a real guard process on the fake driver."""

from collections.abc import Iterator

import pytest
from fake_nvml import FakeNvml
from gpu_contract import GpuContract

from perseus_ds.device.gpu import DeviceRequest, Gpu
from perseus_ds.device.nvml import NvmlGpu
from perseus_ds.errors import ValueRefusedError
from perseus_ds.guard.client import GuardedGpu
from perseus_ds.guard.spawn import open_guarded


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


@pytest.mark.e2e
def test_a_clock_that_the_driver_lists_and_refuses_ends_no_control(node: FakeNvml) -> None:
    """NVML error 2, from a driver behind a real guard: the next higher clock of its list is asked for."""
    node.state.gpu[0].refused_mhz = 1095
    with open_guarded(NvmlGpu(DeviceRequest("nvml"))) as gpu:
        gpu.lock_clock(900)
        gpu.lock_clock(1095)
        with pytest.raises(ValueRefusedError, match="1095 MHz"):
            gpu.sync()
        assert node.locked_mhz()[0] == 1110
        assert gpu.refused_mhz() == {1095}
        [seen] = gpu.conflicts()
        assert "1095 MHz" in seen.line
        gpu.lock_clock(1080)
        gpu.sync()
        assert node.locked_mhz()[0] == 1080
        assert gpu.given_up() is None
