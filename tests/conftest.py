"""What holds for every test."""

import gc
from pathlib import Path

import fake_nvml
import pytest
from hypothesis import HealthCheck, settings
from ranks import hear_what_was_ignored

gc.disable()  # what is imported and collected stays
hear_what_was_ignored()  # by nohup, or a shell that started us with &: what tests start has its own

pytest.register_assert_rewrite("adapter_contract", "gpu_contract")  # show what their assertions compared

# How long an example takes is the machine's business: no test judges a wall clock.
settings.register_profile("perseus", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("perseus")


SLOW_S = 900
"""How long a slow test may take: whole jobs come one after another there, and hosts are busy."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files; let slow tests that state no limit of their own take longer."""
    items.sort(key=lambda item: item.path.parent.name != "golden")  # one worker runs a whole file
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_S))


def pytest_collection_finish() -> None:
    """Keep what stays, modules and tests, out of every later search for garbage."""
    gc.freeze()
    gc.enable()


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
