"""The power limit that the driver enforces, among a rank's numbers: what it is now, not what it was once."""

from __future__ import annotations

from pathlib import Path

from lone_job import NotingGpu

from perseus_ds.device.clock_agenda import AskedClocks, RequestCounts
from perseus_ds.device.gpu import OperatorSettings
from perseus_ds.errors import DeviceUnavailableError
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime.accounting import RankBooks
from perseus_ds.runtime.energy_monitor import EnergyWatch
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.metrics import Metric, RankMetrics, Sources
from perseus_ds.schedule import textbook

PERIOD_S = 15.0


class LimitedGpu(NotingGpu):
    """A GPU with a power limit, or a driver that does not answer for it."""

    limit_w: float | None = 400.0
    answers = True

    def operator_settings(self) -> OperatorSettings:
        if not self.answers:
            raise DeviceUnavailableError("the driver does not answer")
        return OperatorSettings(limit_w=self.limit_w)


def test_the_limit_is_that_of_the_last_look(tmp_path: Path) -> None:
    gpu, now_s = LimitedGpu(), [0.0]
    watch, counts = EnergyWatch(gpu), RequestCounts()
    books = RankBooks(watch, sightings=tuple, overrun_share=lambda: 0.0, clock_requests=counts)
    sources = Sources(gpu, watch, books, AskedClocks(), lambda: counts, lambda: 0, lambda: None, {})
    job = Job(1, 2, 1, 0, textbook("1f1b", stages=2, microbatches=2), {})
    figures = RankMetrics(job, RunDirectory(tmp_path), sources, now_s=lambda: now_s[0])

    def limits_w() -> list[float]:
        now_s[0] += PERIOD_S
        figures.turn()
        return [one.value for one in figures.samples() if one.metric is Metric.POWER_LIMIT]

    assert limits_w() == [400.0]
    gpu.limit_w = 300.0
    assert limits_w() == [300.0]
    gpu.answers = False
    assert limits_w() == [], "what is not known is left out"
    gpu.answers, gpu.limit_w = True, None
    assert limits_w() == []
    gpu.limit_w = 250.0
    assert limits_w() == [250.0]
