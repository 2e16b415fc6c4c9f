"""The null device keeps the contract."""

import pytest
from gpu_contract import GpuContract

from perseus_ds.device.gpu import Gpu
from perseus_ds.guard.open import NullGpu


class TestNullGpu(GpuContract):
    @pytest.fixture
    def gpu(self) -> Gpu:
        return NullGpu()
