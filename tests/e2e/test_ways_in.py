"""Every way to switch the plugin on in a job whose code stays as it is, and every way to get that wrong."""

import base64
import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hjson
import pytest
from deepspeed import comm
from deepspeed.pipe import LayerSpec, PipelineModule
from deepspeed.runtime.config import DeepSpeedConfig
from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology
from jobs import Trained, block, events, lines, names, plain_losses, train
from pipelines import Pipeline
from ranks import Layer, Said, config, deepspeed, losses, run_ranks
from torch import nn
from torch.distributed.pipelining import schedules

from perseus_ds.adapters import megatron, torch_pipelining

pytestmark = pytest.mark.e2e

STEPS, STAGES = 5, 2
OBSERVED = {"device": "simulated", "mode": "observe"}
CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.json"))
Named = Mapping[int, str]


@pytest.mark.filterwarnings("ignore")  # DeepSpeed leaves the file open
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_deepspeed_accepts_every_file_of_ours(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comments and all, with as many replicas as its batch sizes ask for."""
    monkeypatch.setattr(comm, "get_rank", lambda *_: 0)
    content = hjson.loads(path.read_text())
    micro = content["train_micro_batch_size_per_gpu"] * content["gradient_accumulation_steps"]
    replicas = content.get("train_batch_size", micro) // micro
    grid: Any = SimpleNamespace(get_data_parallel_world_size=lambda: replicas)
    assert DeepSpeedConfig(str(path), grid)._param_dict["perseus"]["enabled"] is True


def plain() -> list[list[str]]:
    return plain_losses(STEPS, ranks=STAGES, stages=STAGES)


def test_a_configuration_in_base64_is_served_like_a_file(tmp_path: Path) -> None:
    """GPT-NeoX hands DeepSpeed such a word. Where there is no plan, observing asks for no clock."""
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


def served_by(named: Named) -> list[Said]:
    said = run_ranks(STAGES, by_file, config(gradient_clipping=1.0), named)
    assert [one.value.losses for one in said] == plain()
    return said


def test_a_file_switches_on_what_was_configured_in_code(tmp_path: Path) -> None:
    content = OBSERVED | {"run_dir": str(tmp_path / "run")}
    file = tmp_path / "perseus.yaml"
    file.write_text("".join(f"{key}: {value}\n" for key, value in content.items()))
    served_by({0: str(file)})
    assert names(tmp_path / "run")[0] == "attached"


def test_a_bad_file_is_one_line_and_training_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "perseus.json"
    file.write_text('{"run_dir": "runs", "profile": {')
    said = served_by({0: str(file)})
    (line,) = lines(said[0])
    assert "cut short" in line
    assert lines(said[1]) == []
    assert [one.value.attached for one in said] == [False] * STAGES


def test_files_that_differ_between_nodes_are_told_and_rank_0s_holds(tmp_path: Path) -> None:
    for node, clocks in enumerate((3, 4)):
        text = json.dumps(block(tmp_path / "run", mode="observe", profile={"max_clocks": clocks}))
        (tmp_path / f"{node}.json").write_text(text)
    said = served_by({node: str(tmp_path / f"{node}.json") for node in range(2)})
    assert names(tmp_path / "run")[0] == "attached"
    (line,) = lines(said[1])
    assert "1.json differs" in line


def by_megatron(rank: int, file: str) -> list[list[str]]:
    from megatron_jobs import Job, Shape

    os.environ["PERSEUS_CONFIG"] = file
    job = Job(Shape(2))
    if file:
        megatron.watch(job.schedules)
    job.run_pass = job.schedules.get_forward_backward_func()
    return [job.step() for _ in range(STEPS)]


def by_pipelining(rank: int, file: str, *, name: str) -> list[list[str]]:
    os.environ["PERSEUS_CONFIG"] = file
    if file:
        torch_pipelining.watch(schedules)
    pipeline = Pipeline(name, 4)
    return [pipeline.train() for _ in range(STEPS)]


OTHERS = {
    "megatron-core": by_megatron,
    "a stage on every rank": partial(by_pipelining, name="1F1B"),
    "several stages on every rank": partial(by_pipelining, name="InterleavedZeroBubble"),
}


@pytest.mark.parametrize("job", OTHERS.values(), ids=OTHERS)
def test_a_file_switches_on_jobs_of_other_frameworks(tmp_path: Path, job: Callable[..., Any]) -> None:
    if job is by_megatron:
        pytest.importorskip("megatron.core", reason="megatron-core is not installed")
    file = tmp_path / "perseus.json"
    file.write_text(json.dumps(OBSERVED | {"run_dir": str(tmp_path / "run")}))
    served, plain = ([one.value for one in run_ranks(2, job, named)] for named in (str(file), ""))
    assert served == plain
    attached = events(tmp_path / "run")[0]
    assert attached["event"] == "attached"
    assert job is by_megatron or attached["fingerprint"]["inputs"] == "8x8"


def two_stages_by_two_tensor_ranks(rank: int, content: Mapping[str, Any]) -> list[str]:
    """Tensor-parallel peers hold the same layers here: what is tested is how they are counted."""
    module = PipelineModule(
        [LayerSpec(Layer), LayerSpec(Layer)],
        topology=PipeModelDataParallelTopology(num_pp=2, num_mp=2, num_dp=1),
        loss_fn=nn.functional.mse_loss,
        seed_layers=True,
    )
    parameters = list(module.parameters())
    engine, *_ = deepspeed.initialize(model=module, model_parameters=parameters, config=dict(content))
    return losses(engine, STEPS)


def test_tensor_parallel_peers_are_no_replicas(tmp_path: Path) -> None:
    content = config(perseus=block(tmp_path / "run", mode="observe"))
    said = run_ranks(4, two_stages_by_two_tensor_ranks, content)
    assert events(tmp_path / "run")[0]["replicas"] == 1
    assert "2 tensor-parallel" in lines(said[0])[0]
