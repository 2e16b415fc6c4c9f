"""What OpenTelemetry's own SDK makes of our numbers, and what it sends."""

from __future__ import annotations

from typing import Any

import pytest

from perseus_ds.runtime.metrics.metric import Labels, Metric, MetricSample

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed (the extra otlp)")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra otlp is not installed")

from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData

from perseus_ds.runtime.metrics.otlp import send

LABELS = Labels(gpu={"gpu_uuid": "GPU-7", "stage": "3"}, job={"job": "gpt", "host": "node1"})
SAMPLES = [
    MetricSample(Metric.ENERGY, 1200.0),
    MetricSample(Metric.POWER, 300.0),
    MetricSample(Metric.PLAN, 4.0),
]


class Kept(MetricExporter):
    """Keeps what the SDK sends."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: dict[str, Any] = {}
        self.resource: dict[str, Any] = {}

    def export(self, metrics_data: MetricsData, timeout_millis: float = 0, **_: object) -> MetricExportResult:
        for resource in metrics_data.resource_metrics:
            self.resource = dict(resource.resource.attributes)
            for scope in resource.scope_metrics:
                self.sent |= {metric.name: metric for metric in scope.metrics}
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 0, **_: object) -> None:
        pass


def test_energy_and_power_have_opentelemetrys_own_names() -> None:
    kept = Kept()
    send(lambda: SAMPLES, LABELS, every_s=3600.0, exporter=kept)()
    energy, power, plan = (kept.sent[name] for name in ("hw.energy", "hw.power", "perseus.plan"))
    assert (energy.unit, energy.data.is_monotonic) == ("J", True)
    [point] = energy.data.data_points
    assert point.value == 1200.0
    assert dict(point.attributes) == {**LABELS.gpu, "hw.id": "GPU-7", "hw.type": "gpu"}
    assert power.unit == "W"
    assert power.data.data_points[0].value == 300.0
    assert dict(plan.data.data_points[0].attributes) == LABELS.job
    assert kept.resource["host.name"] == "node1"
