"""Our 1F1B and DualPipe-V against DeepSpeed's own: the same computations in the same order on every rank."""

import json
import subprocess
import sys

import pytest

from perseus_ds.schedule import textbook

pytestmark = pytest.mark.e2e

STAGES = range(1, 9)
MICROBATCHES = range(1, 13)

# Prints, for every size and stage, DeepSpeed's forwards and backwards as one string of F and B.
PROGRAM = """
import json, sys
from deepspeed.runtime.pipe.schedule import BackwardPass, ForwardPass, TrainSchedule

LETTER = {ForwardPass: "F", BackwardPass: "B"}
sizes, orders = json.load(sys.stdin), {}
for stages, microbatches in sizes:
    for stage in range(stages):
        steps = TrainSchedule(microbatches, stages, stage).steps()
        letters = "".join(LETTER.get(type(command), "") for step in steps for command in step)
        orders[f"{stages} {microbatches} {stage}"] = letters
print(json.dumps(orders))
"""

# Prints, for every size and rank, DualPipe-V's computations with their model stage and microbatch.
DUALPIPE_V = """
import json, sys
from deepspeed.runtime.pipe.schedule import BackwardPass, DualPipeVSchedule, ForwardPass

LETTER = {ForwardPass: "F", BackwardPass: "B"}
sizes, orders = json.load(sys.stdin), {}
for ranks, microbatches in sizes:
    for rank in range(ranks):
        steps = DualPipeVSchedule(microbatches, ranks, rank).steps()
        orders[f"{ranks} {microbatches} {rank}"] = " ".join(
            f"{2 * ranks - 1 - rank if c.phase else rank}{LETTER[type(c)]}{c.buffer_id % microbatches}"
            for step in steps for c in step if type(c) in LETTER
        )
print(json.dumps(orders))
"""


def test_same_order_for_every_size() -> None:
    sizes = [(stages, microbatches) for stages in STAGES for microbatches in MICROBATCHES]
    theirs = told(PROGRAM, sizes)
    ours = {
        f"{stages} {microbatches} {stage}": "".join(instruction.kind.value for instruction in order)
        for stages, microbatches in sizes
        for stage, order in enumerate(textbook("1f1b", stages=stages, microbatches=microbatches).orders)
    }
    assert len(ours) == sum(STAGES) * len(MICROBATCHES)
    assert ours == theirs


def test_same_dualpipe_v_for_every_size() -> None:
    sizes = [
        (ranks, microbatches) for ranks in range(2, 9) for microbatches in range(2 * ranks, 3 * ranks + 2)
    ]
    theirs = told(DUALPIPE_V, sizes)
    ours = {
        f"{ranks} {microbatches} {rank}": " ".join(map(str, order))
        for ranks, microbatches in sizes
        for rank, order in enumerate(
            textbook("dualpipe-v-whole", stages=2 * ranks, microbatches=microbatches).orders
        )
    }
    assert ours == theirs


def told(program: str, sizes: list[tuple[int, int]]) -> dict[str, str]:
    """Run a program beside ours with the sizes on its standard input, and read the orders that it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        input=json.dumps(sizes),
        capture_output=True,
        text=True,
        check=True,
    )
    orders: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return orders
