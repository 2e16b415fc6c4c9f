"""A ramp of the batch size, 2 -> 4 -> 8 microbatches and back: one profile, a plan for each size."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jobs import UNEVEN, block, events, lines, names
from ranks import Said, batches, build, config, run_ranks

from perseus_ds.plan import read_plans

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

STAGES = 2
RAMP = ((2, 5), (4, 4), (8, 30), (4, 24))
AGAIN = ((8, 8), (2, 4))
MICROBATCH = 2  # samples


def trained(rank: int, content: Mapping[str, Any], ramp: tuple[tuple[int, int], ...]) -> list[str]:
    del rank
    engine, data, losses = build(content, stages=STAGES, inner=UNEVEN[-STAGES:]), batches(), []
    for microbatches, steps in ramp:
        engine.set_train_batch_size(MICROBATCH * microbatches)
        losses += [float(engine.train_batch(data)).hex() for _ in range(steps)]
    return losses


@pytest.fixture(scope="module")
def ramped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Said]]:
    run_dir = tmp_path_factory.mktemp("ramped")
    return run_dir, run_ranks(STAGES, trained, config(2, perseus=block(run_dir)), RAMP)


def test_the_sweep_goes_on_across_the_ramp_and_each_size_has_its_own_plan_and_figure(
    ramped: tuple[Path, list[Said]],
) -> None:
    run_dir, said = ramped
    assert [one.value for one in said] == [one.value for one in run_ranks(STAGES, trained, config(2), RAMP)]
    assert names(run_dir).count("profiled") == 1
    assert not any("run at" in line for line in lines(said[0]))
    assert [one["microbatches"] for one in events(run_dir) if one["event"] == "batch_size"] == [4, 8]
    for size in (8, 4):
        whose = f"perseus: batches of {size} microbatches: "
        assert any(line.startswith(f"{whose}running plan") for line in lines(said[0]))
        assert any(line.startswith(f"{whose}measured: ") for line in lines(said[0]))
    sizes = {read_plans(file).fingerprint["microbatches"] for file in run_dir.glob("plan.*json")}
    assert sizes == {"4", "8"}
    figures = {one["microbatches"]: one for one in events(run_dir) if one["event"] == "measured"}
    assert set(figures) == {4, 8}
    assert all(abs(one["slowdown_pct"]) < 1.0 for one in figures.values())


def test_plans_are_found_again_and_a_new_size_gets_its_own(
    ramped: tuple[Path, list[Said]], tmp_path: Path
) -> None:
    run_dir, _ = ramped
    for name in ("profile.json", "plan.json", "plan.m4.json"):
        (tmp_path / name).write_bytes((run_dir / name).read_bytes())
    said = run_ranks(STAGES, trained, config(8, perseus=block(tmp_path)), AGAIN)
    told = lines(said[0])
    assert any("running plan" in line for line in told)
    assert any("2 microbatches:" in line and "planning" in line for line in told)
    assert not any("8 microbatches:" in line and "planning" in line for line in told)
    assert not any("profiling" in line for line in told)
    assert read_plans(tmp_path / "plan.m2.json").fingerprint["microbatches"] == "2"
