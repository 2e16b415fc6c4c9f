"""Leaving is whole: each thing is given back whatever becomes of the others, and the host goes on."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import MagicMock

import pytest

from perseus_ds.errors import DeviceLostError, EngineError, PerseusError
from perseus_ds.run_directory.events import read_events
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime.accounting import Mode
from perseus_ds.runtime.adapter import Batch
from perseus_ds.runtime.event_log import EventLog
from perseus_ds.runtime.session import Session, followed, parted
from perseus_ds.schedule import Kind


class Parts:
    """A session among stand-ins; what it gives back is noted in order."""

    def __init__(self, *, raises: bool = False) -> None:
        self.given_back: list[str] = []
        self.lifecycle, self.recorder, self.conflict_monitor = MagicMock(), MagicMock(), MagicMock()
        self.sequencer, self.books = MagicMock(error=None, latency_s=0.0), MagicMock(error=None)
        self.log = EventLog(0)
        self.conflict_monitor.check.return_value = None
        self.recorder.trouble.return_value = self.books.trouble.return_value = ""
        self.lifecycle.advance.return_value = None
        self.session = Session(
            self.lifecycle,
            recorder=self.recorder,
            sequencer=self.sequencer,
            device=MagicMock(take=MagicMock(return_value=False)),
            books=self.books,
            conflict_monitor=self.conflict_monitor,
            log=self.log,
            raises=raises,
        )
        for name in ("device", "threads", "hook"):
            self.session.on_leaving(lambda name=name: self.given_back.append(name))  # type: ignore[misc]


def lost(*_: object) -> None:
    raise DeviceLostError("the device is gone")


def test_things_are_given_back_once_in_reverse_order() -> None:
    parts = Parts()
    parts.session.leave()
    parts.session.leave()
    assert parts.given_back == ["hook", "threads", "device"]


@pytest.mark.parametrize("error", [None, ZeroDivisionError("ours")])
def test_everything_is_given_back_before_a_word_is_written(error: Exception | None, tmp_path: Path) -> None:
    parts = Parts()
    parts.log.writes_to(RunDirectory(tmp_path))
    journal = tmp_path / "events.jsonl"
    parts.session.on_leaving(lambda: parts.given_back.append(f"journal: {journal.exists()}"))
    parts.sequencer.before.side_effect = error
    parts.session.before(Kind.FORWARD)
    parts.session.leave()
    assert parts.given_back == ["journal: False", "hook", "threads", "device"]
    (event,) = read_events(journal)
    assert event["event"] == ("ended" if error is None else "disabled")


def test_a_log_that_fails_keeps_nothing_from_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts()
    monkeypatch.setattr(EventLog, "event", lost)
    parts.session.leave()
    assert parts.given_back == ["hook", "threads", "device"]


def test_one_that_fails_keeps_no_other_from_its_turn(capsys: pytest.CaptureFixture[str]) -> None:
    parts = Parts()
    parts.session.on_leaving(lost)
    parts.session.leave()
    assert parts.given_back == ["hook", "threads", "device"]
    assert capsys.readouterr().err.count("gone") == 1


@pytest.mark.parametrize("error", [DeviceLostError("gone"), ZeroDivisionError("ours")])
def test_an_error_within_an_instruction_never_reaches_the_host(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = Parts()
    parts.sequencer.before.side_effect = error
    parts.session.before(Kind.FORWARD)
    assert parts.given_back == ["hook", "threads", "device"]
    parts.lifecycle.tell_failure.assert_called_once_with()
    said = capsys.readouterr().err
    assert said.count("perseus: off") == 1
    assert str(error) in said


def test_it_leaves_even_where_everybody_else_is_gone() -> None:
    parts = Parts()
    parts.sequencer.after.side_effect = lost
    parts.conflict_monitor.note_failure.side_effect = lost
    parts.lifecycle.tell_failure.side_effect = EngineError("a rank fell silent")
    parts.session.after(Kind.BACKWARD)
    assert parts.given_back == ["hook", "threads", "device"]


def test_the_error_is_raised_at_the_end_of_the_iteration_where_the_user_wants_that() -> None:
    parts = Parts(raises=True)
    parts.sequencer.before.side_effect = lost
    parts.session.before(Kind.FORWARD)
    with pytest.raises(PerseusError, match="gone"):
        parts.session.iteration_ends()
    assert parts.given_back == ["hook", "threads", "device"]


def test_a_batch_of_a_size_that_nobody_knows_yet_is_not_listened_to() -> None:
    parts = Parts()
    parts.lifecycle.begins.side_effect = lambda _, batch: None if batch == Batch(6) else MagicMock()
    assert [parts.session.iteration_begins(Batch(size)) for size in (6, 4)] == [False, True]


def test_ranks_that_train_batches_of_different_sizes_part_with_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parts = Parts()
    parts.lifecycle.advance.return_value = parted(4, 6)
    parts.session.iteration_begins(Batch(4))
    parts.session.iteration_ends()
    assert parts.given_back == ["hook", "threads", "device"]
    (line,) = capsys.readouterr().err.splitlines()
    assert "off" in line
    assert "microbatches" in line


def test_who_follows_another_says_nothing_and_raises_where_the_user_wants_that(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for raises in (False, True):
        parts = Parts(raises=raises)
        parts.lifecycle.advance.return_value = followed()
        parts.session.iteration_begins(Batch(4))
        if raises:
            with pytest.raises(EngineError, match="another rank"):
                parts.session.iteration_ends()
        else:
            parts.session.iteration_ends()
        assert parts.given_back == ["hook", "threads", "device"]
        assert not parts.session.iteration_begins(Batch(4))
        parts.lifecycle.tell_failure.assert_not_called()
    assert capsys.readouterr().err == ""


def test_an_iteration_without_control_counts_for_neither_side() -> None:
    parts = Parts()
    for index, controlled in enumerate((True, False, True)):
        parts.lifecycle.settings.mode, parts.recorder.finish.return_value = Mode.PERSEUS, index
        parts.conflict_monitor.control.controlled = controlled
        parts.session.iteration_begins(Batch(4))
        parts.session.iteration_ends()
    assert [call.kwargs["known"] for call in parts.books.ran.call_args_list] == [True, False, True]
    assert parts.given_back == []


def test_a_journal_that_cannot_be_written_ends_the_journal_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    log = EventLog(0)
    log.writes_to(RunDirectory(tmp_path / "file" / "run"))
    log.event("first", "one")
    log.event("second", "two")
    journal = tmp_path / "file" / "run" / "events.jsonl"
    about, *said = capsys.readouterr().err.splitlines()
    assert str(journal) in about
    assert said == ["perseus: one", "perseus: two"]


def test_only_rank_0_speaks_and_says_things_once(capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (0, 1):
        log = EventLog(rank)
        log.line_once("hello")
        log.line_once("hello")
    assert capsys.readouterr().err == "perseus: hello\n"


def test_rank_0_records_that_it_followed_another_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The one that failed said why, and cannot write the journal: it is rank 0's."""
    directory = RunDirectory(tmp_path)
    log = EventLog(0)
    log.writes_to(directory)
    followed().log(log)
    [event] = read_events(directory.events)
    assert event["event"] == "disabled"
    assert "another rank" in str(event["reason"])
    assert capsys.readouterr().err == ""
