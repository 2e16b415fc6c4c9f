"""Every example in configs/: read by us, by DeepSpeed's own reader and by the block's JSON Schema."""

import json
from pathlib import Path

import hjson
import pytest

from perseus_ds.config import load, parse, read_block
from perseus_ds.device.simulated.settings import simulated_settings

ROOT = Path(__file__).parents[3]
WHOLE = sorted((ROOT / "configs").glob("*.json"))
BLOCKS = sorted((ROOT / "configs" / "blocks").glob("*.json"))
SCHEMA = json.loads((ROOT / "docs/reference/schemas/block.schema.json").read_text())


@pytest.mark.parametrize("file", [*WHOLE, *BLOCKS], ids=lambda file: file.name)
def test_every_example_passes_with_its_comments(file: Path) -> None:
    config = load(file, {}) if file in WHOLE else parse({"enabled": True, **read_block(file)}, {})
    assert config.enabled
    simulated_settings(config.simulated)
    if file in WHOLE:
        assert config.run_dir != "perseus_runs/default"
        assert (config.device == "simulated") == (file.name in {"demo.json", "demo-zero.json"})
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed: scripts/setup")
    content = json.loads(json.dumps(hjson.loads(file.read_text())))
    jsonschema.validate(content.get("perseus", content), SCHEMA)


@pytest.mark.parametrize("file", WHOLE, ids=lambda file: file.name)
def test_batch_sizes_agree(file: Path) -> None:
    deepspeed = hjson.loads(file.read_text())
    assert deepspeed["train_micro_batch_size_per_gpu"] >= 1
    replicas = deepspeed.get("train_batch_size", 0) / (
        deepspeed["train_micro_batch_size_per_gpu"] * deepspeed["gradient_accumulation_steps"]
    )
    assert replicas == int(replicas)
