"""Kernels measured, cut and planned by the commands, then played in a real DeepSpeed job in virtual time."""

import json
from pathlib import Path
from typing import Any

import pytest
from jobs import block, names, train_until
from ranks import config, run_ranks

from perseus_ds.cli.main import main
from perseus_ds.kernels.trace import KERNEL_TRACES, KernelClass, KernelTrace, LaunchSequence
from perseus_ds.schedule import Kind

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

GPU = "rtx-3080-ti"
STAGES, LAYERS, ROWS, WIDTH = 2, 6, 16_384, 2048
AUDITS = 3
PREDICTED_WITHIN = 0.9
"""Points: kernels were measured one by one, each as warm as it makes the GPU."""
HIDDEN, WIDE = (ROWS, WIDTH), (ROWS, 4 * WIDTH)
LAYER = [
    ("layernorm", (HIDDEN,)),
    ("gemm", (HIDDEN, (WIDTH, 3 * WIDTH))),
    ("softmax", ((128, 2048, 1024),)),
    ("residual", (HIDDEN, HIDDEN, HIDDEN)),
    ("gemm", (HIDDEN, (WIDTH, 4 * WIDTH))),
    ("gelu", (WIDE,)),
    ("gemm", (WIDE, (4 * WIDTH, WIDTH))),
]


def stage_trace() -> KernelTrace:
    """A transformer's layers on every stage; a backward runs every kernel twice."""
    classes = tuple(dict.fromkeys(KernelClass(name, shapes, "float16") for name, shapes in LAYER))
    layer = [classes.index(KernelClass(name, shapes, "float16")) for name, shapes in LAYER]
    forward = tuple(layer * LAYERS)
    backward = tuple(kernel for kernel in reversed(forward) for _ in range(2))
    sequences = [
        LaunchSequence(stage, kind, launches)
        for stage in range(STAGES)
        for kind, launches in ((Kind.FORWARD, forward), (Kind.BACKWARD, backward))
    ]
    return KernelTrace(classes, tuple(sequences))


def summary_of(run_dir: Path, trace: Path, latency_s: float, **objective: object) -> dict[str, Any]:
    perseus = block(
        run_dir,
        profile={"min_window_s": 8.0, "max_clocks": 6, "warmup_iterations": 2},
        audit={"every_iterations": 12, "iterations": 8},
        objective=objective,
        simulated={"gpu": GPU, "kernels": str(trace), "switch_latency_s": latency_s},
    )
    content = config(gradient_clipping=1.0, perseus=perseus)
    run_ranks(STAGES, train_until, content, STAGES, lambda at: names(at).count("measured") >= AUDITS)
    return json.loads((run_dir / "summary.json").read_text())


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kernels") / "trace.json"
    KERNEL_TRACES.write(stage_trace(), path)
    return path


@pytest.fixture(scope="module")
def kernels(trace: Path) -> Path:
    profile = trace.parent / "kernels.json"
    options = ["-o", str(profile), "--simulated", GPU, "--window-s", "0.5"]
    assert main(["kernels", "measure", str(trace), *options]) == 0
    return profile


@pytest.mark.parametrize(("latency_ms", "at_least"), [(1.0, 2.0), (38.0, 0.0)])
def test_clocks_for_kernels_save_more_than_whole_clocks(
    trace: Path, kernels: Path, tmp_path: Path, latency_ms: float, at_least: float
) -> None:
    lines = tmp_path / "timelines.json"
    options = ["--latency-ms", str(latency_ms), "--timelines", str(lines)]
    assert main(["kernels", "plan", str(kernels), str(trace), *options]) == 0
    whole = summary_of(tmp_path / "whole", trace, latency_ms / 1e3)
    joined = summary_of(tmp_path / "joined", trace, latency_ms / 1e3, timelines=str(lines))
    assert joined["saving_pct"] >= whole["saving_pct"] + at_least
    assert joined["slowdown_pct"] <= 0.5
    assert joined["saving_pct"] == pytest.approx(joined["predicted_saving_pct"], abs=PREDICTED_WITHIN)
