"""Two engines trained in turn by one process, on the same GPUs: two profiles, two plans, two figures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jobs import block, lines, names
from ranks import batches, build, config, run_ranks

from perseus_ds.device.simulated.gpu import opened_gpus
from perseus_ds.profile import read_profile
from perseus_ds.schedule import Kind

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

STAGES = 2
STEPS = 36
WIDTHS = ((8, 16), (16, 8))


def trained(rank: int, contents: tuple[Mapping[str, Any], Mapping[str, Any]]) -> tuple[list[str], int]:
    """A generator and its critic, say."""
    del rank
    engines = [build(one, stages=STAGES, inner=inner) for one, inner in zip(contents, WIDTHS, strict=True)]
    data, losses = batches(), []
    for _ in range(STEPS):
        losses += [float(engine.train_batch(data)).hex() for engine in engines]
    return losses, len(opened_gpus())


def test_each_has_its_own_files_and_figures_on_the_same_gpu(tmp_path: Path) -> None:
    """Both have the same block, run directory included; the second has larger batches."""
    contents = tuple(config(size, perseus=block(tmp_path)) for size in (4, 6))
    served = run_ranks(STAGES, trained, contents)
    plain = run_ranks(STAGES, trained, (config(4), config(6)))
    assert [one.value[0] for one in served] == [one.value[0] for one in plain]
    assert [one.value[1] for one in served] == [1] * STAGES, "one GPU for both"
    baseline_s = []
    for number, folder, size, heavy in ((1, tmp_path, 4, 1), (2, tmp_path / "engine2", 6, 0)):
        assert {"profiled", "running", "measured"} <= set(names(folder))
        said = [line for line in lines(served[0]) if f"engine {number}:" in line]
        assert any("running plan" in line for line in said)
        summary = json.loads((folder / "summary.json").read_text())
        assert summary["facts"]["microbatches"] == size
        assert summary["slowdown_pct"] < 2.0
        profile = read_profile(folder / "profile.json")
        forward_s = [profile.of(stage, Kind.FORWARD)[0].time_s for stage in (0, 1)]
        assert forward_s[heavy] == pytest.approx(2 * forward_s[1 - heavy], rel=0.02)
        baseline_s.append(summary["baseline"]["iteration_time_s"])
    assert 1.2 * baseline_s[0] < baseline_s[1] < 1.6 * baseline_s[0], "no iteration holds the other engine's"
