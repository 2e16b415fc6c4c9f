"""Tests find a simulated GPU again by when it was opened."""

from perseus_ds.device.simulated.gpu import SimulatedGpu, VirtualTime, opened_gpus
from perseus_ds.device.simulated.settings import SimulatedSettings


def a_gpu() -> SimulatedGpu:
    return SimulatedGpu(SimulatedSettings(), time=VirtualTime())


def test_the_last_one_opened_is_last_also_after_others_were_thrown_away() -> None:
    kept, thrown_away = a_gpu(), [a_gpu() for _ in range(3)]
    newest = a_gpu()
    thrown_away.clear()
    last = a_gpu()
    assert [gpu for gpu in opened_gpus() if gpu in {kept, newest, last}] == [kept, newest, last]
    assert len({gpu.number for gpu in opened_gpus()}) == len(opened_gpus())
