"""The blocks in files of their own that we ship."""

from pathlib import Path

import pytest

from perseus_ds.config import parse, read_block
from perseus_ds.device.simulated.settings import simulated_settings

FILES = sorted((Path(__file__).parents[3] / "configs" / "blocks").glob("*.json"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_block_of_ours_passes_with_its_comments(file: Path) -> None:
    config = parse({"enabled": True, **read_block(file)}, {})
    assert config.enabled
    simulated_settings(config.simulated)


def test_there_are_some() -> None:
    assert FILES
