"""The Grafana board that ships, held against a real Prometheus: each query finds what a job exposes."""

from __future__ import annotations

import http.server
import json
import re
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ranks import free_port

from perseus_ds.runtime.metrics import Labels, Metric, MetricSample, text_of

MONITORING = Path(__file__).parents[3] / "configs" / "monitoring"
BOARD: dict[str, Any] = json.loads((MONITORING / "grafana.json").read_text())
QUERIES = [(panel["title"], target["expr"]) for panel in BOARD["panels"] for target in panel["targets"]]


def test_every_query_asks_for_metrics_that_there_are() -> None:
    known = {metric.title for metric in Metric}
    asked = {name for _, query in QUERIES for name in re.findall(r"perseus_\w+", query)}
    assert asked <= known
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


def test_the_settings_of_prometheus_are_clean() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    command = [promtool, "check", "config", str(MONITORING / "prometheus.yml")]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def numbers(turn: int) -> str:
    """What two ranks of a job expose; counters grow."""
    extra = {
        Metric.STRAGGLER: {"straggler_host": "node1", "straggler_gpu": "0000:01:00.0", "cause": "measured"},
        Metric.CONFLICTS: {"kind": "power_cap"},
    }
    samples = [MetricSample(one, 1.0 + turn, extra.get(one, {})) for one in Metric]
    job = {"job": "gpt", "host": "node1"}
    return text_of(samples, Labels({**job, "stage": "0", "gpu_uuid": "GPU-0"}, job)).decode()


@pytest.fixture
def exposed() -> Iterator[int]:
    turns = iter(range(1 << 30))

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(numbers(next(turns)).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture
def prometheus(exposed: int, tmp_path: Path) -> Iterator[str]:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed (Debian: prometheus)")
    settings = (MONITORING / "prometheus.yml").read_text()
    scraped = settings.replace("node1:9100, node2:9100", f"127.0.0.1:{exposed}").replace("15s", "1s")
    (tmp_path / "prometheus.yml").write_text(scraped)
    address = f"127.0.0.1:{free_port()}"
    words = [
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address={address}",
    ]
    process = subprocess.Popen([program, *words], stderr=subprocess.DEVNULL)
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(60)


def rows_of(address: str, query: str) -> list[dict[str, Any]]:
    asked = query.replace("$job", ".*").replace("$__rate_interval", "1m")
    url = f"{address}/api/v1/query?{urllib.parse.urlencode({'query': asked})}"
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return list(json.load(answer)["data"]["result"])
    except (urllib.error.URLError, ConnectionError):
        return []


@pytest.mark.slow
def test_every_panel_finds_its_numbers_in_a_real_prometheus(prometheus: str) -> None:
    until_s = time.monotonic() + 120.0
    waiting = dict.fromkeys(QUERIES)
    while waiting and time.monotonic() < until_s:
        waiting = {known: None for known in waiting if not rows_of(prometheus, known[1])}
        time.sleep(0.2)
    assert not waiting
    [job] = rows_of(prometheus, "count by (job) (perseus_iterations_total)")
    assert job["metric"] == {"job": "gpt"}, "honor_labels keeps the training job's name"
