"""Megatron's own wrapper of whole iterations: warm-up, one capture, replays; a whole job on CPUs.

A CPU has no graph: one that stands in for it runs the captured pass once more at each replay.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from jobs import block, events, lines, names, until_measured
from ranks import Said, run_ranks

pytest.importorskip("megatron.core", reason="megatron-core is not installed")

from megatron.core import full_cuda_graph
from megatron.core.full_cuda_graph import FullCudaGraphWrapper, StaticBufferLoader
from megatron_jobs import Job, Shape, _forward_step

import perseus_ds
from perseus_ds.adapters.megatron import PASSES, STEPS

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SHAPE = Shape(2, microbatches=4, layers_per_chunk=2, settings={"cuda_graph_impl": "full_iteration"})
WARM_UP = 2


class Graph:
    """Runs the pass that was captured."""

    run: Callable[[], object] = staticmethod(lambda: None)

    def register_generator_state(self, state: object) -> None:
        """There is none."""

    def replay(self) -> None:
        FullCudaGraphWrapper.result["training"] = Graph.run()


class GraphedJob(Job):
    """Trains by Megatron's wrapper, as its training script does."""

    captured_with_us = False

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        cuda: Any = torch.cuda
        cuda.CUDAGraph, cuda.graph = Graph, _capturing
        full_cuda_graph.get_all_rng_states = dict

    def wrap(self) -> None:
        run_pass = self.schedules.get_forward_backward_func()

        def passes(**keywords: Any) -> object:  # noqa: ANN401
            def again() -> object:
                batches = StaticBufferLoader.static_buffers["training"]
                return run_pass(**(keywords | {"data_iterator": [iter(batches)]}))

            Graph.run = again
            if _inside:
                module = vars(self.schedules)
                self.captured_with_us |= any(hasattr(module[name], "__perseus_ds__") for name in STEPS)
            return run_pass(**keywords)

        passes.__name__ = run_pass.__name__
        self.run_pass = FullCudaGraphWrapper(passes, cuda_graph_warmup_steps=WARM_UP)
        self.data = [({"batch": list(one)} for one in data) for data in self.data]

    def call(self, run_pass: Any = None, **changes: Any) -> list[str]:  # noqa: ANN401
        return super().call(run_pass, **({"forward_step_func": _step, "forward_only": False} | changes))


_inside: list[bool] = []


@contextmanager
def _capturing(*_: object, **__: object) -> Iterator[None]:
    _inside.append(True)
    yield
    _inside.clear()


def _step(data: Iterator[Mapping[str, Any]], model: Any, **words: Any) -> Any:  # noqa: ANN401
    return _forward_step(iter([tuple(next(data)["batch"])]), model, **words)


def train(rank: int, config: Mapping[str, Any] | None, steps: int) -> tuple[list[list[str]], bool, list[str]]:
    job = GraphedJob(SHAPE)
    before = {name: getattr(job.schedules, name) for name in (*PASSES, *STEPS)}
    graph = FullCudaGraphWrapper.__call__
    if config is not None:
        perseus_ds.attach(job.schedules, config=config)
    job.wrap()
    losses = until_measured(job.step, config, steps)
    perseus_ds.detach(job.schedules)
    left = [name for name, thing in before.items() if getattr(job.schedules, name) is not thing]
    left += ["__call__"] * (FullCudaGraphWrapper.__call__ is not graph)
    return losses, job.captured_with_us, left


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Said]]:
    run_dir = tmp_path_factory.mktemp("graphs") / "run"
    perseus = block(
        run_dir,
        objective={"policy": "max_slowdown", "max_slowdown_pct": 5.0},
        profile={"min_window_s": 4.0, "warmup_iterations": 2, "max_slower_pct": 50.0, "settle_s": 5.0},
        simulated={"forward_s": [0.2, 0.3]},
    )
    return run_dir, run_ranks(2, train, perseus, 2000)


def test_it_is_weighed_profiled_planned_run_and_measured(job: tuple[Path, list[Said]]) -> None:
    order = ["weighing", "weighed", "profiling", "profiled", "planning", "running", "measured"]
    assert list(dict.fromkeys(name for name in names(job[0]) if name in order)) == order, lines(job[1][0])
    assert events(job[0])[0]["fingerprint"]["iterations"] == "replayed"
    summary = json.loads((job[0] / "summary.json").read_text())
    assert summary["saving_pct"] > 5.0
    assert summary["slowdown_pct"] < 6.0


def test_losses_are_those_without_us_and_nothing_of_ours_is_captured(job: tuple[Path, list[Said]]) -> None:
    said = [one.value for one in job[1]]
    plain = [one.value for one in run_ranks(2, train, None, len(said[0][0]))]
    assert [one[0] for one in said] == [one[0] for one in plain]
    assert [one[1:] for one in said] == [(False, [])] * 2
