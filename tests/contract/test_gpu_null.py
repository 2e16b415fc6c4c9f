"""The null device keeps the contract."""

import pytest

from perseus_ds.device import Gpu, NullGpu
from perseus_ds.testing.gpu_contract import GpuContract


class TestNullGpu(GpuContract):
    @pytest.fixture
    def gpu(self) -> Gpu:
        return NullGpu()
