"""Batches that change their size or overflow, and two engines with batches of their own: whole jobs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from deepspeed.accelerator import get_accelerator
from jobs import UNEVEN, agreed, block, events, lines, names
from ranks import Said, batches, build, config, run_ranks

from perseus_ds.device.simulated.gpu import opened_gpus
from perseus_ds.plan import read_plans
from perseus_ds.profile import read_profile
from perseus_ds.schedule import Kind

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

STAGES = 2

# A ramp of the batch size, 2 -> 4 -> 8 microbatches and back: one profile, a plan for each size.

RAMP = ((2, 5), (4, 4), (8, 30), (4, 24))
AGAIN = ((8, 8), (2, 4))
MICROBATCH = 2  # samples


def on_a_ramp(rank: int, content: Mapping[str, Any], ramp: tuple[tuple[int, int], ...]) -> list[str]:
    engine, data, losses = build(content, stages=STAGES, inner=UNEVEN[-STAGES:]), batches(), []
    for microbatches, steps in ramp:
        engine.set_train_batch_size(MICROBATCH * microbatches)
        losses += [float(engine.train_batch(data)).hex() for _ in range(steps)]
    return losses


@pytest.fixture(scope="module")
def ramped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Said]]:
    run_dir = tmp_path_factory.mktemp("ramped")
    return run_dir, run_ranks(STAGES, on_a_ramp, config(2, perseus=block(run_dir)), RAMP)


def test_a_ramp_has_one_sweep_and_a_plan_and_a_figure_for_each_size(ramped: tuple[Path, list[Said]]) -> None:
    run_dir, said = ramped
    plain = run_ranks(STAGES, on_a_ramp, config(2), RAMP)
    assert [one.value for one in said] == [one.value for one in plain]
    assert names(run_dir).count("profiled") == 1
    assert not any("run at" in line for line in lines(said[0]))
    assert [one["microbatches"] for one in events(run_dir, "batch_size")] == [4, 8]
    for size in (8, 4):
        whose = f"perseus: batches of {size} microbatches: "
        assert any(line.startswith(f"{whose}running plan") for line in lines(said[0]))
        assert any(line.startswith(f"{whose}measured: ") for line in lines(said[0]))
    sizes = {read_plans(file).fingerprint["microbatches"] for file in run_dir.glob("plan.*json")}
    assert sizes == {"4", "8"}
    figures = {one["microbatches"]: one for one in events(run_dir, "measured")}
    assert set(figures) == {4, 8}
    assert all(abs(one["slowdown_pct"]) < 1.0 for one in figures.values())


def test_plans_are_found_again_and_new_sizes_planned(ramped: tuple[Path, list[Said]], tmp_path: Path) -> None:
    for name in ("profile.json", "plan.json", "plan.m4.json"):
        (tmp_path / name).write_bytes((ramped[0] / name).read_bytes())
    told = lines(run_ranks(STAGES, on_a_ramp, config(8, perseus=block(tmp_path)), AGAIN)[0])
    assert any("running plan" in line for line in told)
    assert any("2 microbatches:" in line and "planning" in line for line in told)
    assert not any("8 microbatches:" in line and "planning" in line for line in told)
    assert not any("profiling" in line for line in told)
    assert read_plans(tmp_path / "plan.m2.json").fingerprint["microbatches"] == "2"


# In fp16 iterations whose gradients overflow end without a step, and count for neither side.

EVERY = 7
"""Batches from one to the next whose numbers have squares that fp16 cannot hold."""


def in_fp16(rank: int, run_dir: Path) -> int:
    type(get_accelerator()).is_fp16_supported = lambda _: True  # torch's CPU computes in it, slowly
    content = config(fp16={"enabled": True, "loss_scale_window": 1000}, perseus=block(run_dir))
    engine, generator = build(content, stages=4, inner=UNEVEN), torch.Generator().manual_seed(3)
    for iteration in range(400):
        scale = 6e4 if iteration % EVERY == EVERY - 1 else 1.0
        inputs = scale * torch.randn(2, 8, generator=generator)
        engine.train_batch(iter([(inputs.half(), torch.sin(inputs).half())] * 4))
        if agreed(names(run_dir).count("measured") > 1):
            return int(engine.skipped_steps)
    return -1


def test_skipped_steps_are_counted_and_on_neither_side(tmp_path: Path) -> None:
    (skipped,) = {one.value for one in run_ranks(4, in_fp16, tmp_path)}
    assert skipped > 2
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["facts"]["skipped_steps"] > 1
    assert abs(summary["slowdown_pct"]) < 5.0


# Two engines trained in turn by one process, on the same GPUs: two profiles, two plans, two figures.

WIDTHS = ((8, 16), (16, 8))


def of_two_engines(rank: int, contents: tuple[Mapping[str, Any], ...]) -> tuple[list[str], int]:
    """A generator and its critic, say."""
    engines = [build(one, stages=STAGES, inner=inner) for one, inner in zip(contents, WIDTHS, strict=True)]
    data, losses = batches(), []
    for _ in range(36):
        losses += [float(engine.train_batch(data)).hex() for engine in engines]
    return losses, len(opened_gpus())


def test_each_has_its_own_files_and_figures_on_the_same_gpu(tmp_path: Path) -> None:
    """Both have the same block, run directory included; the second has larger batches."""
    contents = tuple(config(size, perseus=block(tmp_path)) for size in (4, 6))
    served = run_ranks(STAGES, of_two_engines, contents)
    plain = run_ranks(STAGES, of_two_engines, (config(4), config(6)))
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
