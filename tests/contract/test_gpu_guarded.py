"""A GPU behind its guard keeps the contract: a real guard process on the fake driver."""

from collections.abc import Iterator

import pytest
from fake_nvml import FakeNvml

from perseus_ds.device import DeviceRequest, Gpu
from perseus_ds.device.guard import GuardedGpu, guarded
from perseus_ds.device.nvidia.nvml import NvmlGpu
from perseus_ds.testing.gpu_contract import GpuContract


@pytest.mark.e2e
class TestGuardedGpu(GpuContract):
    @pytest.fixture
    def gpu(self, node: FakeNvml) -> Iterator[Gpu]:
        with guarded(NvmlGpu(DeviceRequest("nvml"))) as gpu:
            yield gpu
        assert node.locked_mhz() == [0, 0]

    def settle(self, gpu: Gpu) -> None:
        assert isinstance(gpu, GuardedGpu)
        gpu.sync()
