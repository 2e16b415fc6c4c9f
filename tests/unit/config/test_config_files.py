"""Every file in configs/, read by us and by DeepSpeed's own reader; every block in a file of its own."""

from pathlib import Path

import hjson
import pytest

from perseus_ds.config import load, parse, read_block
from perseus_ds.device.simulated.settings import simulated_settings

FILES = sorted((Path(__file__).parents[3] / "configs").glob("*.json"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_is_accepted_with_a_run_directory_of_its_own(file: Path) -> None:
    config = load(file, {})
    assert config is not None
    assert config.run_dir != "perseus_runs/default"
    simulated_settings(config.simulated)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_batch_sizes_agree(file: Path) -> None:
    deepspeed = hjson.loads(file.read_text())
    assert deepspeed["train_micro_batch_size_per_gpu"] >= 1
    replicas = deepspeed.get("train_batch_size", 0) / (
        deepspeed["train_micro_batch_size_per_gpu"] * deepspeed["gradient_accumulation_steps"]
    )
    assert replicas == int(replicas)


def test_only_demos_use_a_simulated_device() -> None:
    simulated = {file.name for file in FILES if (config := load(file, {})) and config.device == "simulated"}
    assert simulated == {"demo.json", "demo-zero.json"}


BLOCKS = sorted((Path(__file__).parents[3] / "configs" / "blocks").glob("*.json"))


@pytest.mark.parametrize("file", BLOCKS, ids=lambda file: file.name)
def test_every_block_of_ours_passes_with_its_comments(file: Path) -> None:
    config = parse({"enabled": True, **read_block(file)}, {})
    assert config.enabled
    simulated_settings(config.simulated)
