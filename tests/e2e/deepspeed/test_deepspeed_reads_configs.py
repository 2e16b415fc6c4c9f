"""Every file in configs/, comments and all, through DeepSpeed's own configuration."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hjson
import pytest
from deepspeed import comm
from deepspeed.runtime.config import DeepSpeedConfig

FILES = sorted((Path(__file__).parents[3] / "configs").glob("*.json"))


@pytest.mark.filterwarnings("ignore")  # DeepSpeed leaves the file open
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_is_accepted_with_its_block(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With as many replicas as its batch sizes ask for."""
    monkeypatch.setattr(comm, "get_rank", lambda *_: 0)
    content = hjson.loads(path.read_text())
    micro = content["train_micro_batch_size_per_gpu"] * content["gradient_accumulation_steps"]
    replicas = content.get("train_batch_size", micro) // micro
    grid: Any = SimpleNamespace(get_data_parallel_world_size=lambda: replicas)
    read = DeepSpeedConfig(str(path), grid)._param_dict
    assert read["perseus"]["enabled"] is True
