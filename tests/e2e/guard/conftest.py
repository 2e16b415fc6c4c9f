"""A fake node for tests that start and kill real processes."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "fake_nvml"))

import fake_nvml


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fake_nvml.FakeNvml:
    """A node with two fake NVIDIA GPUs, in this process and in those that it starts."""
    why_not = fake_nvml.missing_compiler()
    if why_not is not None:
        pytest.skip(why_not)
    fake_nvml.load()
    node = fake_nvml.FakeNvml(tmp_path / "gpus")
    for name, value in node.environment().items():
        monkeypatch.setenv(name, value)
    return node
