"""Another job takes a GPU of the node: the plan that runs is made anew, with its part of clock changes."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_nvml import UUID, FakeNvml
from jobs import STAGES, events, names, plain_losses
from node_service import Service
from nodes import beside, block, lived, node_at
from ranks import config

from perseus_ds.device.guard import GuardClient
from perseus_ds.device.guardd import connect

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

NODE_PER_S = 1000.0


def planned_per_s(run_dir: Path) -> float:
    """Changes of clock on this node for which the present plan was made."""
    return float(json.loads((run_dir / "plan.json").read_text())["budget"]["per_node_per_s"])


def planned_anew(run_dir: Path) -> bool:
    """Whether a plan runs that was made after the node was shared: one under way may be the first to."""
    seen = names(run_dir)
    ran = "node_shared" in seen and "running" in seen[seen.index("node_shared") :]
    return ran and planned_per_s(run_dir) < NODE_PER_S


def taking(path: Path, run_dir: Path) -> Callable[[threading.Event], None]:
    """Take the node's last GPU once a plan runs, until the job is over."""

    def act(over: threading.Event) -> None:
        while not over.wait(0.05):
            if "running" in names(run_dir):
                other = GuardClient(connect(path))
                other.take(UUID.format(STAGES), "another job")
                over.wait()
                other.close()

    return act


def test_a_job_that_comes_has_its_part_of_a_nodes_clock_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node_at(tmp_path)
    node = FakeNvml(tmp_path / "five", STAGES + 1, settle_us=3000, period_us=20_000)
    path, run_dir = tmp_path / "guardd.sock", tmp_path / "run"
    monkeypatch.setenv("PERSEUS_GUARDD_SOCKET", str(path))
    objective = {"node_changes_per_s": NODE_PER_S}
    service = Service(node, path)
    try:
        with beside(taking(path, run_dir)):
            content = config(
                gradient_clipping=1.0, perseus=block(run_dir, device="guardd", objective=objective)
            )
            said = lived(node, content, planned_anew)
    finally:
        service.end()
    losses = [one.value.losses for one in said]
    assert losses == plain_losses(len(losses[0]))
    (shared,) = [event for event in events(run_dir) if event["event"] == "node_shared"]
    assert shared["crowd"] == pytest.approx((STAGES + 1) / STAGES)
    assert planned_per_s(run_dir) == pytest.approx(NODE_PER_S * STAGES / (STAGES + 1))
