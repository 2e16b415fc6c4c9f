"""Our orders against torch.distributed.pipelining's own, read off real schedule objects of every size.

torch 2.13's ``Schedule1F1B.pipeline_order`` is wrong on the last rank (it starts at microbatch 1), so 1F1B
is compared with DeepSpeed's and Megatron's instead.
"""

import json
import subprocess
import sys
from collections.abc import Mapping

import pytest

from perseus_ds.schedule import TEXTBOOK, Kind, dag_of, textbook

pytestmark = pytest.mark.e2e

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
PROGRAM = """
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
    asked = [(NAMES[name], *sizes) for name, *sizes in SIZES]
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
    )
    answers: dict[str, list[str] | str] = json.loads(told.stdout.splitlines()[-1])
    return answers


@pytest.mark.parametrize(
    ("name", "ranks", "chunks", "microbatches"), SIZES, ids=[" ".join(map(str, size)) for size in SIZES]
)
def test_same_order_and_same_transfers(
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
