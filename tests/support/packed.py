"""Sequences of log-normal lengths packed one after another, their boundaries, and the work that they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count

import numpy as np
import torch

PERIOD = 3
"""Iterations after which the same lengths come again, as in `varied_loads`."""
SEQUENCES, MEDIAN, SIGMA, LONGEST = 4, 12.0, 0.6, 64
VOCABULARY = 32


def lengths_of(replica: int, iteration: int, microbatches: int) -> list[list[int]]:
    """Lengths of the sequences in each microbatch of an iteration; the same ones come again."""
    random = np.random.default_rng([replica, iteration % PERIOD])
    drawn = np.round(MEDIAN * random.lognormal(0.0, SIGMA, (microbatches, SEQUENCES)))
    return [[int(length) for length in one] for one in np.clip(drawn, 1, LONGEST)]


def simulated(microbatches: int, replicas: int = 2) -> dict[str, object]:
    """Settings by which simulated GPUs take as long as these loads ask for."""
    packs = [pack for r in range(replicas) for n in range(PERIOD) for pack in lengths_of(r, n, microbatches)]
    mean = [sum(length**power for pack in packs for length in pack) / len(packs) for power in (1, 2)]
    return {"mean_forward_s": 0.1, "load_terms": [0.1, 0.7, 0.2], "mean_load": mean}


def packed(replica: int, microbatches: int) -> Iterator[Mapping[str, torch.Tensor]]:
    """Microbatches for ever: tokens and labels in one row, positions within each sequence, boundaries."""
    generator = torch.Generator().manual_seed(replica)
    for iteration in count():
        for lengths in lengths_of(replica, iteration, microbatches):
            tokens = torch.randint(VOCABULARY, (1, sum(lengths) + 1), generator=generator)
            yield {
                "tokens": tokens[:, :-1],
                "labels": tokens[:, 1:],
                "position_ids": torch.cat([torch.arange(length) for length in lengths])[None],
                "cu_seqlens": torch.tensor([0, *np.cumsum(lengths).tolist()], dtype=torch.int32),
            }
