"""A rank's samples through prometheus_client (the extra ``metrics``): as text, and served to scrapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from perseus_ds.errors import ConfigError
from perseus_ds.runtime.metrics.metric import Form, Labels, Metric, MetricSample

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily


class _Collected:
    """Answers each scrape with what holds then."""

    def __init__(self, samples: Callable[[], Sequence[MetricSample]], labels: Labels) -> None:
        self._samples = samples
        self._labels = labels

    def collect(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        """Return one family for each metric that there is; values that are not finite are left out."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415  # an extra

        rows: dict[Metric, list[MetricSample]] = {}
        for one in self._samples():
            if math.isfinite(one.value):
                rows.setdefault(one.metric, []).append(one)
        for metric, samples in rows.items():
            kind = CounterMetricFamily if metric.form is Form.COUNTER else GaugeMetricFamily
            known = [self._labels.of(one) for one in samples]
            family = kind(metric.title, metric.text, labels=list(known[0]))
            for one, labels in zip(samples, known, strict=True):
                family.add_metric(list(labels.values()), one.value)
            yield family


def text_of(samples: Sequence[MetricSample], labels: Labels) -> bytes:
    """Return samples in the text format that node_exporter's collector reads."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415  # an extra

    registry = CollectorRegistry()
    registry.register(_Collected(lambda: samples, labels))
    return bytes(generate_latest(registry))


def serve(port: int, samples: Callable[[], Sequence[MetricSample]], labels: Labels) -> Callable[[], None]:
    """Serve from a thread of its own; return what ends it.

    Raises:
        ConfigError: the port is taken.
    """
    from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415  # an extra

    registry = CollectorRegistry()
    registry.register(_Collected(samples, labels))
    try:
        server, _ = start_http_server(port, registry=registry)
    except OSError as error:
        raise ConfigError(
            f"perseus.metrics.port: port {port} of this host cannot be served: {error.strerror}",
            hint="name another port; each rank of a host takes one, from metrics.port on",
        ) from error

    def end() -> None:
        server.shutdown()
        server.server_close()

    return end
