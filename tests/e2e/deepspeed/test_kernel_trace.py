"""A real DeepSpeed job traced: kernels of every instruction, losses to the last bit."""

import json
from pathlib import Path

import pytest
from jobs import block, happened, names, plain_losses, train_until
from ranks import config, run_ranks

from perseus_ds.kernels.trace import merge, read_trace
from perseus_ds.schedule import Kind

pytestmark = pytest.mark.e2e

TRACED = 2


def test_a_job_is_traced_and_trains_as_ever(tmp_path: Path) -> None:
    content = config(gradient_clipping=1.0, perseus=block(tmp_path, mode="profile", trace_kernels=TRACED))
    said = run_ranks(2, train_until, content, 2, happened("profiled"))
    losses = [one.value.losses for one in said]
    assert losses == plain_losses(len(losses[0]), stages=2, ranks=2)
    assert "kernels_traced" in names(tmp_path)
    trace = merge([read_trace(file) for file in sorted((tmp_path / "kernels").glob("rank*.json"))])
    assert trace.iterations == TRACED
    assert trace.overhead_pct is not None
    assert {(one.stage, one.kind) for one in trace.sequences} == {
        (stage, kind) for stage in (0, 1) for kind in (Kind.FORWARD, Kind.BACKWARD)
    }
    for one in trace.sequences:
        assert one.times == 4
        kernels = [trace.classes[kernel].name for kernel in one.kernels]
        products = {"aten::addmm", "aten::mm"}
        # A layer multiplies twice forward; backward twice for weights and, below the first, for inputs.
        wanted = 2 if one.kind is Kind.FORWARD else 4 if one.stage else 3
        assert sum(name in products for name in kernels) == wanted
    profile = json.loads((tmp_path / "profile.json").read_text())
    assert profile["points"]
