"""Every file in configs/, comments and all, through DeepSpeed's own configuration."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

FILES = sorted((Path(__file__).parents[3] / "configs").glob("*.json"))

# Gives each file as many replicas as its batch sizes ask for.
PROGRAM = """
import json, sys
import hjson
from deepspeed import comm
from deepspeed.runtime.config import DeepSpeedConfig

comm.get_rank = lambda: 0

class ReplicaStatus:
    def __init__(self, content):
        micro = content["train_micro_batch_size_per_gpu"] * content["gradient_accumulation_steps"]
        self.count = content.get("train_batch_size", micro) // micro
    def get_data_parallel_world_size(self):
        return self.count

read = {}
for path in sys.argv[1:]:
    config = DeepSpeedConfig(path, ReplicaStatus(hjson.load(open(path))))
    read[path] = config._param_dict["perseus"]
print(json.dumps(read))
"""


def test_every_file_is_accepted_with_its_block() -> None:
    announced = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, *map(str, FILES)],
        capture_output=True,
        text=True,
        check=True,
    )
    read = json.loads(announced.stdout.splitlines()[-1])
    assert list(read) == [str(file) for file in FILES]
    assert all(block["enabled"] is True for block in read.values())
