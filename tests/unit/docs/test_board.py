"""The Grafana board that ships, held against a real Prometheus: each query finds what a job exposes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from perseus_ds.runtime.metrics import Metric

MONITORING = Path(__file__).parents[3] / "configs" / "monitoring"
BOARD: dict[str, Any] = json.loads((MONITORING / "grafana.json").read_text())
QUERIES = [(panel["title"], target["expr"]) for panel in BOARD["panels"] for target in panel["targets"]]


def test_every_query_asks_for_metrics_that_there_are() -> None:
    known = {metric.title for metric in Metric}
    asked = {name for _, query in QUERIES for name in re.findall(r"perseus_\w+", query)}
    assert asked <= known
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
