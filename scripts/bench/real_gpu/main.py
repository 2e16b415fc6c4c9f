"""A DeepSpeed job on one GPU that observes, and without the plugin, in turns: times, losses. See README.md.

python scripts/bench/real_gpu/main.py [--engine pipeline|zero] [-o FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Self

import deepspeed
import torch
from deepspeed.pipe import PipelineModule
from torch import Tensor, nn
from torch.nn import functional

import perseus_ds
from perseus_ds.runtime.session import Session

VOCABULARY = 8192
LEFT_OUT, COMPARED = 4, 8  # iterations: after attach, which count for nothing; whose losses are compared
_USUAL = {"attached", "no_slack", "warming_up", "observed", "ended"}


def layers(options: argparse.Namespace) -> list[nn.Module]:
    """Return the model, layer by layer."""
    width = options.width
    heads = max(1, width // 128)
    blocks = [
        nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        for _ in range(options.layers)
    ]
    return [nn.Embedding(VOCABULARY, width), *blocks, nn.Linear(width, VOCABULARY, bias=False)]


def loss_of(scores: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy."""
    return functional.cross_entropy(scores.flatten(0, 1).float(), targets.flatten())


@dataclass(frozen=True)
class Block:
    """Some iterations, means of one: its time, the training thread's CPU time, and that spent in our calls.

    ``losses`` are to the last bit.
    """

    wall_s: float
    cpu_s: float
    ours_s: float
    losses: list[str]


class OurCalls:
    """Count the seconds that the training thread spends in what our hooks call."""

    def __init__(self) -> None:
        self.spent_s = 0.0
        for name in ("iteration_begins", "before", "after", "iteration_ends"):
            setattr(Session, name, self._timed(getattr(Session, name)))

    def _timed(self, call: Callable[..., object]) -> Callable[..., object]:
        @wraps(call)
        def timed(*args: object, **kwargs: object) -> object:
            began_s = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self.spent_s += time.perf_counter() - began_s

        return timed


class Training:
    """One engine and its data, from the same seed each time."""

    def __init__(self, options: argparse.Namespace, ours: OurCalls) -> None:
        torch.manual_seed(1234)
        self._options, self._ours = options, ours
        config = {
            "train_micro_batch_size_per_gpu": options.batch,
            "gradient_accumulation_steps": options.microbatches,
            "steps_per_print": 10**9,
            "bf16": {"enabled": options.device == "cuda"},
            "zero_optimization": {"stage": 1 if options.engine == "zero" else 0},
        }
        model: Any = layers(options)
        if options.engine == "pipeline":
            model = PipelineModule(model, num_stages=1, loss_fn=loss_of)
        else:
            model = nn.Sequential(*model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        self.engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
        generator = torch.Generator().manual_seed(7)
        shape = (64, options.batch, options.context)
        self._tokens = torch.randint(VOCABULARY, shape, generator=generator).to(self.engine.device)
        self._next = 0

    def __iter__(self) -> Self:
        """Go on for ever."""
        return self

    def __next__(self) -> tuple[Tensor, Tensor]:
        """Return tokens and what follows each."""
        self._next += 1
        tokens = self._tokens[self._next % len(self._tokens)]
        return tokens, tokens.roll(-1, 1)

    def step(self) -> Tensor:
        """One iteration; the last loss, not read."""
        if self._options.engine == "pipeline":
            loss: Tensor = self.engine.train_batch(data_iter=self)
            return loss.detach().clone()
        for _ in range(self._options.microbatches):
            tokens, targets = next(self)
            loss = loss_of(self.engine(tokens), targets)
            self.engine.backward(loss)
            self.engine.step()
        return loss.detach().clone()

    def block(self, iterations: int) -> Block:
        """Run some iterations."""
        self._synchronize()
        ours_s, cpu_s, began_s = self._ours.spent_s, time.thread_time(), time.perf_counter()
        losses = [self.step() for _ in range(iterations)]
        self._synchronize()
        spent_s = time.perf_counter() - began_s, time.thread_time() - cpu_s, self._ours.spent_s - ours_s
        return Block(*(one / iterations for one in spent_s), [float(loss).hex() for loss in losses])

    def _synchronize(self) -> None:
        if self._options.device == "cuda":
            torch.cuda.synchronize()


def turns(training: Training, options: argparse.Namespace, block: Mapping[str, object]) -> dict[str, object]:
    """Run blocks without and with the plugin: off, on, on, off, ..."""
    took: dict[bool, list[Block]] = {True: [], False: []}
    training.block(options.iterations)
    for turn in range(4 * options.turns):
        served = turn % 4 in {1, 2}
        if served:
            perseus_ds.attach(training.engine, config=block)
            training.block(LEFT_OUT)
        one = training.block(options.iterations)
        took[served].append(one)
        if served:
            perseus_ds.detach(training.engine)
        name, figures = "with" if served else "without", (one.wall_s, one.cpu_s, one.ours_s)
        print(f"turn {turn}: {name}, s of wall, CPU, our calls: {figures}", flush=True)
    return {
        "iteration_ms": 1e3 * statistics.mean(one.wall_s for one in took[False]),
        "in_our_calls_ms": 1e3 * statistics.mean(one.ours_s for one in took[True]),
        "change": change(took, lambda one: one.wall_s),
        "change_of_cpu": change(took, lambda one: one.cpu_s),
    }


def change(took: Mapping[bool, list[Block]], of: Callable[[Block], float]) -> dict[str, object]:
    """Compare neighbours, two and two: change and standard error in per cent, and all turns in ms."""
    figures = {served: [of(one) for one in blocks] for served, blocks in took.items()}
    pairs = [
        sum(figures[True][two : two + 2]) / sum(figures[False][two : two + 2]) - 1.0
        for two in range(0, len(figures[True]), 2)
    ]
    error = statistics.stdev(pairs) / len(pairs) ** 0.5 if len(pairs) > 1 else float("nan")
    return {
        "pct": 100.0 * statistics.mean(pairs),
        "error_pct": 100.0 * error,
        "with_ms": [1e3 * one for one in figures[True]],
        "without_ms": [1e3 * one for one in figures[False]],
    }


def losses_of(options: argparse.Namespace, ours: OurCalls, block: Mapping[str, object] | None) -> list[str]:
    """Train a fresh engine for some iterations, by a block or without the plugin."""
    training = Training(options, ours)
    if block is not None:
        perseus_ds.attach(training.engine, config=block)
    losses = training.block(COMPARED).losses
    if block is not None:
        perseus_ds.detach(training.engine)
    training.engine.destroy()
    del training
    if options.device == "cuda":
        torch.cuda.empty_cache()
    return losses


def main() -> None:
    """Compare losses, then times; print and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--engine", choices=("pipeline", "zero"), default="pipeline")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--iterations", type=int, default=16, help="of one turn")
    parser.add_argument("--turns", type=int, default=3, help="times off, on, on, off")
    parser.add_argument("-o", type=Path, dest="output")
    options = parser.parse_args()
    for name, value in {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517", "RANK": "0"}.items():
        os.environ.setdefault(name, value)
    os.environ |= {"LOCAL_RANK": "0", "WORLD_SIZE": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled first, on a CPU
    deepspeed.init_distributed()
    ours = OurCalls()
    with tempfile.TemporaryDirectory() as folder:
        block = {"enabled": True, "run_dir": folder, "mode": "observe"}  # sets no clock
        torch.use_deterministic_algorithms(True)  # torch's own; else two runs differ anyway
        plain = [losses_of(options, ours, None) for _ in range(2)]
        served = losses_of(options, ours, block)
        torch.use_deterministic_algorithms(False)
        found: dict[str, object] = {
            "torch": torch.__version__,
            "gpu": torch.cuda.get_device_name() if options.device == "cuda" else "none",
            "engine": options.engine,
            "two_runs_without_agree": plain[0] == plain[1],
            "with_agrees": served == plain[1],
            "last_losses": [one[-1] for one in (*plain, served)],
        }
        print(json.dumps(found), flush=True)  # it stands, whatever cuts the rest short
        found |= turns(Training(options, ours), options, block)
        lines = [
            line for file in Path(folder).rglob("events.jsonl") for line in file.read_text().splitlines()
        ]
        found["events"] = [event for event in map(json.loads, lines) if event["event"] not in _USUAL]
    text = json.dumps(found, indent=1)
    if options.output is not None:
        options.output.write_text(text)
    print(text)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
