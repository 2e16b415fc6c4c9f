"""A job of one rank over the real communicator: what is made is what comes, what fails is what is raised."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist

from perseus_ds.errors import ConfigError
from perseus_ds.runtime.channel import ControlChannel


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[ControlChannel]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield ControlChannel()
    dist.destroy_process_group()


def refuse() -> object:
    raise ConfigError("no such key")


def test_what_rank_0_makes_is_what_comes(channel: ControlChannel) -> None:
    assert channel.broadcast_result(lambda: {"plan": 3}) == {"plan": 3}
    assert channel.gather_results(lambda: 7) == [7]


def test_what_fails_is_raised_as_it_is(channel: ControlChannel) -> None:
    with pytest.raises(ConfigError, match="key"):
        channel.broadcast_result(refuse)
    with pytest.raises(ConfigError, match="key"):
        channel.gather_results(refuse)
