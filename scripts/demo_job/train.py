"""Train a small GPT on the source of Python's standard library: an ordinary DeepSpeed pipeline job.

    deepspeed --num_gpus 4 scripts/demo_job/train.py --deepspeed_config configs/demo.json

Nothing here knows of Perseus.
"""

from __future__ import annotations

import argparse
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import deepspeed
import torch
from deepspeed.pipe import LayerSpec, PipelineModule
from deepspeed.runtime.pipe.engine import PipelineEngine
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY = 256  # a character is a byte
TEXT_BYTES = 2_000_000
WIDTH = 32
HEADS = 4


class Embedding(nn.Module):
    """Characters and their places as vectors."""

    def __init__(self, context: int) -> None:
        super().__init__()
        self.character = nn.Embedding(VOCABULARY, WIDTH)
        self.place = nn.Embedding(context, WIDTH)

    def forward(self, characters: Tensor) -> Tensor:
        """Shape: [batch, context] -> [batch, context, WIDTH]."""
        places = torch.arange(characters.shape[1], device=characters.device)
        return self.character(characters) + self.place(places)


class Block(nn.Module):
    """One pre-norm transformer layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.norm_2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden: Tensor) -> Tensor:
        """Shape: [batch, context, WIDTH] -> the same."""
        hidden = hidden + self.projection(self._attend(self.qkv(self.norm_1(hidden))))
        return hidden + self.down(functional.gelu(self.up(self.norm_2(hidden))))

    @staticmethod
    def _attend(qkv: Tensor) -> Tensor:
        query, key, value = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in qkv.chunk(3, dim=-1))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return mixed.transpose(1, 2).flatten(-2)


class Head(nn.Module):
    """Vectors back to a score for every character: what makes the last stage the heaviest."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.scores = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Shape: [batch, context, WIDTH] -> [batch, context, VOCABULARY]."""
        return self.scores(self.norm(hidden))


def loss_of(scores: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of the next character."""
    return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())


def standard_library() -> Tensor:
    """Read the same text on every rank: the top-level modules of this Python, in the order of their names."""
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    text = b"\n".join(module.read_bytes() for module in modules)[:TEXT_BYTES]
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long()


def microbatches(text: Tensor, *, size: int, context: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Cut random pieces out of the text, for ever: characters and the ones that follow them."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(text) - context - 1, (size,), generator=generator)
        pieces = torch.stack([text[start : start + context + 1] for start in starts])
        yield pieces[:, :-1].contiguous(), pieces[:, 1:].contiguous()


def train(
    engine: PipelineEngine, batches: Iterator[tuple[Tensor, Tensor]], options: argparse.Namespace
) -> None:
    """Run the steps, telling the loss on rank 0."""
    began = time.perf_counter()
    for step in range(1, options.steps + 1):
        loss = float(engine.train_batch(data_iter=batches))
        if engine.global_rank != 0:
            continue
        if options.losses is not None:
            with options.losses.open("a") as file:
                file.write(f"{step},{loss.hex()}\n")
        if step == 1 or step % options.print_every == 0:
            seconds = time.perf_counter() - began
            print(f"step {step:4d} of {options.steps}   loss {loss:.4f}   {seconds:5.1f} s", flush=True)


def options_from_command_line() -> argparse.Namespace:
    """Read our own options and those that DeepSpeed adds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stages", type=int, default=4, help="pipeline stages; the rest is data parallel")
    parser.add_argument("--blocks", type=int, default=12, help="transformer layers")
    parser.add_argument("--context", type=int, default=64, help="characters that the model sees")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--print-every", type=int, default=10, help="steps between two lines about the loss")
    parser.add_argument("--losses", type=Path, help="append step,loss (hexadecimal, exact) to this file")
    parser.add_argument("--local_rank", type=int, default=-1, help="set by the launcher")
    return deepspeed.add_config_arguments(parser).parse_args()


def main() -> None:
    """Build the pipeline and train it."""
    options = options_from_command_line()
    # On a CPU DeepSpeed would first compile collectives that only inference uses (a minute, and a compiler).
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed()
    layers = [
        LayerSpec(Embedding, options.context),
        *(LayerSpec(Block) for _ in range(options.blocks)),
        LayerSpec(Head),
    ]
    model = PipelineModule(
        layers,
        num_stages=options.stages,
        loss_fn=loss_of,
        partition_method="type:Block",
        seed_layers=True,
        seed_fn=torch.manual_seed,
        base_seed=options.seed,
    )
    engine, *_ = deepspeed.initialize(args=options, model=model)
    batches = microbatches(
        standard_library(),
        size=engine.train_micro_batch_size_per_gpu(),
        context=options.context,
        seed=options.seed + engine.grid.get_data_parallel_id(),
    )
    train(engine, batches, options)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
