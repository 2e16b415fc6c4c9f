"""Our 1F1B against DeepSpeed's TrainSchedule: the same computations in the same order on every stage."""

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


def test_same_order_for_every_size() -> None:
    sizes = [(stages, microbatches) for stages in STAGES for microbatches in MICROBATCHES]
    announced = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        input=json.dumps(sizes),
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = json.loads(announced.stdout.splitlines()[-1])
    ours = {
        f"{stages} {microbatches} {stage}": "".join(instruction.kind.value for instruction in order)
        for stages, microbatches in sizes
        for stage, order in enumerate(textbook("1f1b", stages=stages, microbatches=microbatches).orders)
    }
    assert len(ours) == sum(STAGES) * len(MICROBATCHES)
    assert ours == theirs
