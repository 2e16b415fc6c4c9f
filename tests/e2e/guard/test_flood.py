"""A trainer that asks faster than the driver can: never blocked, never out of order, never lost."""

import random

import pytest
from fake_nvml import FakeNvml

from perseus_ds.device.gpu import DeviceRequest
from perseus_ds.guard.open import choose

pytestmark = pytest.mark.e2e

REQUESTS = 100_000
LOOKS = 50


def test_a_hundred_thousand_requests_end_at_the_last(node: FakeNvml) -> None:
    draw, gpu_state = random.Random(3), node.state.gpu[0]
    with choose(DeviceRequest("nvml")).gpu as gpu:
        clocks_mhz = gpu.capabilities().clocks_mhz
        for _ in range(LOOKS):
            gpu_state.call_us = draw.choice([0, 100, 3000])
            for _ in range(REQUESTS // LOOKS - 1):
                gpu.lock_clock(draw.choice(clocks_mhz))
            last_mhz = draw.choice(clocks_mhz)
            gpu.lock_clock(last_mhz)
            gpu.sync()
            assert node.locked_mhz() == [last_mhz, 0]
        assert gpu_state.sets < REQUESTS
    assert node.locked_mhz() == [0, 0]
