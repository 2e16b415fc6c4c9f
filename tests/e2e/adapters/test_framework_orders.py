"""Our orders against those of the frameworks, for every size, each read in a Python of its own.

torch 2.13's ``Schedule1F1B.pipeline_order`` is wrong on the last rank (it starts at microbatch 1), so 1F1B
is compared with DeepSpeed's and Megatron's instead.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from perseus_ds.schedule import TEXTBOOK, Kind, dag_of, textbook

pytestmark = pytest.mark.e2e


def told(program: str, asked: Sequence[object]) -> Any:  # noqa: ANN401
    """Run a program and return what it prints as JSON when it is asked for some sizes."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


V_SHAPED = ("zbv", "dualpipe-v")
NAMES = {
    "interleaved": "ScheduleInterleaved1F1B",
    "interleaved-zb": "ScheduleInterleavedZeroBubble",
    "looped-bfs": "ScheduleLoopedBFS",
    "zbv": "ScheduleZBVZeroBubble",
    "dualpipe-v": "ScheduleDualPipeV",
}
SIZES = [
    (name, ranks, chunks, microbatches)
    for name in NAMES
    for ranks in (2, 3, 4, 8)
    for chunks in ((2,) if name in V_SHAPED else (2, 3))
    for microbatches in (2 * ranks, 2 * ranks + 1, 4 * ranks)
]

# Prints, for every size, the orders of all ranks with transfers, or why torch refuses the size.
TORCH = """
import json, sys
import torch
from torch import distributed, nn
from torch.distributed import pipelining
from torch.distributed.pipelining import schedules
from torch.testing._internal.distributed.fake_pg import FakeStore

def orders(name, ranks, chunks, microbatches):
    stages = [
        pipelining.PipelineStage(nn.Identity(), chunk * ranks, chunks * ranks, torch.device("meta"))
        for chunk in range(chunks)
    ]
    try:
        schedule = getattr(schedules, name)(stages, microbatches, loss_fn=lambda *_: None)
    except ValueError as error:
        return str(error)
    return [
        " ".join(str(sub) for action in order for sub in (action.sub_actions or (action,)))
        for _, order in sorted(schedule.pipeline_order_with_comms.items())
    ]

answers, ranks = {}, None
for size in sorted(json.load(sys.stdin), key=lambda size: size[1]):
    if size[1] != ranks:
        if ranks is not None:
            distributed.destroy_process_group()
        ranks = size[1]
        distributed.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    answers[" ".join(map(str, size))] = orders(*size)
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def theirs() -> Mapping[str, list[str] | str]:
    return told(TORCH, [(NAMES[name], *sizes) for name, *sizes in SIZES])


@pytest.mark.parametrize(
    ("name", "ranks", "chunks", "microbatches"), SIZES, ids=[" ".join(map(str, size)) for size in SIZES]
)
def test_torchs_order_and_transfers(
    name: str, ranks: int, chunks: int, microbatches: int, theirs: Mapping[str, list[str] | str]
) -> None:
    orders = theirs[f"{NAMES[name]} {ranks} {chunks} {microbatches}"]
    if isinstance(orders, str):
        assert "multiple" in orders  # torch cannot split these microbatches into rounds
        return
    rounds = max(1, microbatches // ranks)
    schedule = textbook(
        name,
        stages=ranks * chunks,
        microbatches=microbatches,
        chunks=chunks,
        group=microbatches // rounds if TEXTBOOK[name].grouped else None,
    )
    assert [" ".join(map(str, order)) for order in schedule.orders] == [
        " ".join(word for word in order.split() if not word.strip("0123456789FBIW")) for order in orders
    ]
    letters = {Kind.SEND_ACTIVATION: "SEND_F", Kind.SEND_GRAD: "SEND_B"}
    dag = dag_of(schedule)
    sent = {
        f"{stage}{letters[kind]}{dag.nodes[before].microbatch}"
        for (before, _), (stage, kind) in dag.buffered.items()
    }
    assert sent == {word for order in orders for word in order.split() if "SEND" in word}


INTERLEAVED = [
    (ranks, chunks, microbatches, group)
    for ranks in range(2, 9)
    for chunks in (2, 3)
    for group in (ranks, ranks + 1, 2 * ranks)
    for microbatches in (2 * group, 3 * group)
]

# Prints, for every size, Megatron's table and every rank's warm-up.
MEGATRON = """
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


def test_megatrons_passes_and_warm_up() -> None:
    pytest.importorskip("megatron.core", reason="megatron-core is not installed")
    answers = told(MEGATRON, INTERLEAVED)
    for (ranks, chunks, microbatches, group), theirs in zip(INTERLEAVED, answers, strict=True):
        size = {"stages": ranks * chunks, "microbatches": microbatches, "chunks": chunks, "group": group}
        plain, at_once = textbook("interleaved", **size), textbook("interleaved-fb", **size)
        for rank, order in enumerate(plain.orders):
            text = [str(instruction) for instruction in order]
            assert [word for word in text if "F" in word] == [
                f"{chunk * ranks + rank}F{microbatch}" for microbatch, chunk in theirs["table"]
            ]
            assert [word for word in text if "B" in word] == [
                f"{(chunks - 1 - chunk) * ranks + rank}B{microbatch}" for microbatch, chunk in theirs["table"]
            ]
            ahead = next(place for place, word in enumerate(text) if "B" in word)
            assert ahead == min(theirs["warm_up"][0][rank] + 1, microbatches * chunks)
            both = at_once.orders[rank]
            assert len([i for i in both if i.kind is Kind.FORWARD]) == theirs["warm_up"][1][rank]
            for kind in (Kind.FORWARD, Kind.BACKWARD):
                parts = [part for i in both for part in i.parts if part.kind is kind]
                assert parts == [i for i in order if i.kind is kind]
