"""Every way to switch the plugin on in a job whose code stays as it is, and every way to get that wrong."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from deepspeed.pipe import LayerSpec, PipelineModule
from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology
from jobs import Trained, block, events, lines, names, plain_losses, train
from ranks import Layer, Said, batches, config, deepspeed, run_ranks
from torch import nn

pytestmark = pytest.mark.e2e

STEPS, STAGES = 5, 2
Named = Mapping[int, str]


def plain() -> list[list[str]]:
    return plain_losses(STEPS, ranks=STAGES, stages=STAGES)


def test_a_configuration_in_base64_is_served_like_a_file(tmp_path: Path) -> None:
    """As gpt-neox hands it to DeepSpeed: one word. Where there is no plan, observing asks for no clock."""
    content = config(gradient_clipping=1.0, perseus=block(tmp_path / "run", mode="observe"))
    word = base64.urlsafe_b64encode(json.dumps(content).encode()).decode()
    said = run_ranks(STAGES, train, word, STAGES, STEPS)
    assert names(tmp_path / "run")[0] == "attached"
    assert "predicted" not in names(tmp_path / "run")
    assert [one.value.locks for one in said] == [0] * STAGES
    assert [one.value.losses for one in said] == plain()


def by_file(rank: int, content: Mapping[str, Any], named: Named) -> Trained:
    """``PERSEUS_CONFIG`` as each rank's node has it; every rank stands for a node."""
    os.environ.update(PERSEUS_CONFIG=named.get(rank, named[0]), LOCAL_RANK="0")
    return train(rank, content, STAGES, STEPS)


def served_by(named: Named, content: Mapping[str, Any] | None = None) -> list[Said]:
    return run_ranks(STAGES, by_file, content or config(gradient_clipping=1.0), named)


@pytest.mark.parametrize("ending", ["json", "yaml"])
def test_a_file_switches_on_what_was_configured_in_code(tmp_path: Path, ending: str) -> None:
    file, run_dir = tmp_path / f"perseus.{ending}", tmp_path / "run"
    file.write_text(
        f"run_dir: {run_dir}\ndevice: simulated\nmode: observe\n"
        if ending == "yaml"
        else json.dumps({"run_dir": str(run_dir), "device": "simulated", "mode": "observe"})
    )
    said = served_by({0: str(file)})
    assert names(run_dir)[0] == "attached"
    assert [one.value.losses for one in said] == plain()


def test_a_bad_file_is_one_line_and_training_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "perseus.json"
    file.write_text('{"run_dir": "runs", "profile": {')
    said = served_by({0: str(file)})
    (line,) = lines(said[0])
    assert "cut short" in line
    assert lines(said[1]) == []
    assert [one.value.attached for one in said] == [False] * STAGES
    assert [one.value.losses for one in said] == plain()


def test_files_that_differ_between_nodes_are_told_and_rank_0s_holds(tmp_path: Path) -> None:
    for node, clocks in enumerate((3, 4)):
        text = json.dumps(block(tmp_path / "run", mode="observe", profile={"max_clocks": clocks}))
        (tmp_path / f"{node}.json").write_text(text)
    said = served_by({node: str(tmp_path / f"{node}.json") for node in range(2)})
    assert names(tmp_path / "run")[0] == "attached"
    assert len(lines(said[1])) == 1
    assert "1.json differs" in lines(said[1])[0]
    assert [one.value.losses for one in said] == plain()


def two_stages_by_two_tensor_ranks(rank: int, content: Mapping[str, Any]) -> list[float]:
    """Tensor-parallel peers hold the same layers here: what is tested is how they are counted."""
    del rank
    module = PipelineModule(
        [LayerSpec(Layer), LayerSpec(Layer)],
        topology=PipeModelDataParallelTopology(num_pp=2, num_mp=2, num_dp=1),
        loss_fn=nn.functional.mse_loss,
        seed_layers=True,
    )
    engine, *_ = deepspeed.initialize(
        model=module, model_parameters=list(module.parameters()), config=dict(content)
    )
    data = batches()
    return [float(engine.train_batch(data)) for _ in range(STEPS)]


def test_tensor_parallel_peers_are_no_replicas(tmp_path: Path) -> None:
    content = config(perseus=block(tmp_path / "run", mode="observe"))
    said = run_ranks(4, two_stages_by_two_tensor_ranks, content)
    attached = events(tmp_path / "run")[0]
    assert attached["replicas"] == 1
    assert "2 tensor-parallel" in lines(said[0])[0]
