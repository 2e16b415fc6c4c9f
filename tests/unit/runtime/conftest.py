"""A host in virtual time, a run directory with rank 0's log, and a job of this process alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from lone_job import alone, logging_in
from virtual_host import VirtualHost, closing

from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime.event_log import EventLog


@pytest.fixture
def host() -> Iterator[VirtualHost]:
    with closing(VirtualHost()) as host:
        yield host


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path)


@pytest.fixture
def log(tmp_path: Path) -> EventLog:
    return logging_in(tmp_path)


@pytest.fixture(scope="module")
def process_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with alone(tmp_path_factory.mktemp("group") / "store"):
        yield
