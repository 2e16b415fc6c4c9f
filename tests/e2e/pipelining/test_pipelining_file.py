"""Jobs of torch's pipelining that are switched on by a file, and left: training goes on untouched."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from jobs import events
from pipelines import Pipeline
from ranks import run_ranks
from torch.distributed.pipelining import schedules

import perseus_ds
from perseus_ds.adapters import torch_pipelining

pytestmark = pytest.mark.e2e

OURS = {"step", "_maybe_compute_loss", "forward_one_chunk", "backward_one_chunk"}


def train(rank: int, name: str, file: str | None) -> tuple[list[list[str]], bool, bool]:
    if file is not None:
        os.environ["PERSEUS_CONFIG"] = file
        torch_pipelining.watch(schedules)
    pipeline = Pipeline(name, 4)

    def listening() -> bool:
        return any(OURS & vars(one).keys() for one in (pipeline.schedule, *pipeline.stages))

    losses = [pipeline.train() for _ in range(3)]
    before = listening()
    perseus_ds.detach(pipeline.schedule)
    return [*losses, pipeline.train()], before, listening()


@pytest.mark.parametrize("name", ["1F1B", "InterleavedZeroBubble"])
def test_a_file_switches_it_on_and_detaching_gives_everything_back(tmp_path: Path, name: str) -> None:
    file, block = tmp_path / "perseus.json", {"device": "simulated", "mode": "observe"}
    file.write_text(json.dumps(block | {"run_dir": str(tmp_path / "run")}))
    served, plain = ([one.value for one in run_ranks(2, train, name, given)] for given in (str(file), None))
    assert [one[0] for one in served] == [one[0] for one in plain]
    assert [one[1:] for one in served] == [(True, False)] * 2
    attached = events(tmp_path / "run")[0]
    assert attached["event"] == "attached"
    assert attached["fingerprint"]["inputs"] == "8x8"
