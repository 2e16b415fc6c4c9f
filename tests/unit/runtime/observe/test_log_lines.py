"""Lines of the job go through the standard library's logging: never to standard output."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from perseus_ds.runtime.event_log import EventLog


class Kept(logging.Handler):
    """A handler of the application's own."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture(params=["", "perseus_ds"])
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    logger, handler = logging.getLogger(request.param or None), Kept()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def test_where_nothing_is_configured_lines_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    EventLog(0).line("hello")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "perseus: hello\n")


def test_an_application_that_configured_logging_gets_them_alone(
    kept: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    EventLog(0).line("50 %")
    EventLog(1).line("said by rank 0")
    EventLog(1).line_here("mine")
    found = [(one.name, one.levelname, one.getMessage()) for one in kept.records]
    assert found == [
        ("perseus_ds", "INFO", "50 %"),
        ("perseus_ds", "WARNING", "mine"),
    ]
    assert capsys.readouterr() == ("", "")


def test_they_can_be_silenced(kept: Kept) -> None:
    logger = logging.getLogger("perseus_ds")
    before = logger.level
    logger.setLevel(logging.ERROR)
    EventLog(0).line("hello")
    logger.setLevel(before)
    assert kept.records == []


def test_a_handler_that_fails_does_not_reach_the_host(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "emit", lambda _: 1 // 0)
    EventLog(0).line("hello")
