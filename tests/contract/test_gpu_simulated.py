"""The simulated GPU and the null device keep the contract."""

import pytest
from gpu_contract import GpuContract

from perseus_ds.device.gpu import Gpu
from perseus_ds.device.simulated.gpu import SimulatedGpu, VirtualTime
from perseus_ds.device.simulated.models import MODELS
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.guard.open import NullGpu


class TestSimulatedGpu(GpuContract):
    @pytest.fixture(params=sorted(MODELS))
    def gpu(self, request: pytest.FixtureRequest) -> Gpu:
        self.time = VirtualTime(100.0)
        return SimulatedGpu(SimulatedSettings(gpu=request.param), time=self.time)

    def settle(self, gpu: Gpu) -> None:
        self.time.pass_s(1.0)


class TestNullGpu(GpuContract):
    @pytest.fixture
    def gpu(self) -> Gpu:
        return NullGpu()
