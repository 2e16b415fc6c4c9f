"""Our interleaved order against megatron-core's own table and warm-up, for every rank and size."""

import importlib.util
import json
import subprocess
import sys

import pytest

from perseus_ds.schedule import Kind, textbook

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not importlib.util.find_spec("megatron"), reason="megatron-core is not installed"),
]

SIZES = [
    (ranks, chunks, microbatches, group)
    for ranks in range(2, 9)
    for chunks in (2, 3)
    for group in (ranks, ranks + 1, 2 * ranks)
    for microbatches in (2 * group, 3 * group)
]

# Prints, for every size, Megatron's table and every rank's warm-up.
PROGRAM = """
import json, sys
from types import SimpleNamespace
from megatron.core.pipeline_parallel.schedules import get_pp_rank_microbatches, get_schedule_table

def warm_up(rank, ranks, chunks, microbatches, group, at_once):
    place = SimpleNamespace(
        pp_group=SimpleNamespace(size=lambda: ranks, rank=lambda: rank),
        virtual_pipeline_model_parallel_size=chunks,
    )
    flag = {"overlap_moe_expert_parallel_comm": at_once}
    return get_pp_rank_microbatches(microbatches, chunks, group, p2p_communicator=place, **flag)[2]

print(json.dumps([
    {
        "table": get_schedule_table(microbatches, chunks, group),
        "warm_up": [
            [warm_up(rank, ranks, chunks, microbatches, group, at_once) for rank in range(ranks)]
            for at_once in (False, True)
        ],
    }
    for ranks, chunks, microbatches, group in json.load(sys.stdin)
]))
"""


def test_same_passes_and_warm_up() -> None:
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        input=json.dumps(SIZES),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = json.loads(told.stdout.splitlines()[-1])
    for (ranks, chunks, microbatches, group), theirs in zip(SIZES, answers, strict=True):
        schedule = textbook(
            "interleaved", stages=ranks * chunks, microbatches=microbatches, chunks=chunks, group=group
        )
        for rank, order in enumerate(schedule.orders):
            text = [str(instruction) for instruction in order]
            assert [word for word in text if "F" in word] == [
                f"{chunk * ranks + rank}F{microbatch}" for microbatch, chunk in theirs["table"]
            ]
            assert [word for word in text if "B" in word] == [
                f"{(chunks - 1 - chunk) * ranks + rank}B{microbatch}" for microbatch, chunk in theirs["table"]
            ]
            ahead = next(place for place, word in enumerate(text) if "B" in word)
            assert ahead == min(theirs["warm_up"][0][rank] + 1, microbatches * chunks)
        at_once = textbook(
            "interleaved-fb", stages=ranks * chunks, microbatches=microbatches, chunks=chunks, group=group
        )
        for rank, order in enumerate(at_once.orders):
            alone = [i for i in order if i.kind is Kind.FORWARD]
            assert len(alone) == theirs["warm_up"][1][rank]
            plain = schedule.orders[rank]
            for kind in (Kind.FORWARD, Kind.BACKWARD):
                parts = [part for i in order for part in i.parts if part.kind is kind]
                assert parts == [i for i in plain if i.kind is kind]
