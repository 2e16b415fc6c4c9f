"""Numbers sent over HTTP by OpenTelemetry's SDK (the extra ``otlp``), energy and power by its own names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from perseus_ds.runtime.metrics.metric import Form, Labels, Metric, MetricSample

_PATIENCE_MS = 2000
_NAMES = {Metric.ENERGY: ("hw.energy", "J"), Metric.POWER: ("hw.power", "W")}
"""Source: OpenTelemetry semantic conventions, "Hardware metrics", with ``hw.id`` and ``hw.type``."""


def send(
    samples: Callable[[], Sequence[MetricSample]],
    labels: Labels,
    *,
    every_s: float,
    address: str = "",
    exporter: MetricExporter | None = None,
) -> Callable[[], None]:
    """Send from a thread of the SDK; return what sends a last time and ends it."""
    limit_s = min(every_s, _PATIENCE_MS / 1000)
    target = exporter or OTLPMetricExporter(endpoint=address, timeout=limit_s)
    reader = PeriodicExportingMetricReader(
        target, export_interval_millis=1000 * every_s, export_timeout_millis=_PATIENCE_MS
    )
    resource = Resource.create({"service.name": "perseus_ds", "host.name": labels.job["host"]})
    provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
    meter = provider.get_meter("perseus_ds")
    for metric in Metric:
        name, unit = _NAMES.get(metric, (metric.title.removesuffix("_total").replace("_", ".", 1), ""))
        make = (
            meter.create_observable_counter if metric.form is Form.COUNTER else meter.create_observable_gauge
        )
        make(name, [partial(_observed, samples, labels, metric)], unit, metric.text)

    def end() -> None:
        provider.shutdown(timeout_millis=_PATIENCE_MS)

    return end


def _observed(
    samples: Callable[[], Sequence[MetricSample]], labels: Labels, metric: Metric, _: CallbackOptions
) -> Iterable[Observation]:
    for one in samples():
        if one.metric is metric:
            known = labels.of(one)
            named = {"hw.id": known["gpu_uuid"], "hw.type": "gpu"} if metric.of_gpu else {}
            yield Observation(one.value, {**known, **named})
