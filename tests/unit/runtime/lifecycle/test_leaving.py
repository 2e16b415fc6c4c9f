"""Leaving is whole: each thing is given back whatever becomes of the others, and the host goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from perseus_ds.errors import DeviceLostError, EngineError, PerseusError
from perseus_ds.run_directory import RunDirectory
from perseus_ds.runtime.adapter import Batch
from perseus_ds.runtime.comm.status import JobStatus
from perseus_ds.runtime.lifecycle.session import Session
from perseus_ds.runtime.measure.accounting import Mode
from perseus_ds.runtime.measure.recorder import Iteration
from perseus_ds.runtime.observe.event_log import EventLog
from perseus_ds.schedule import Kind

STAND_INS = ("lifecycle", "recorder", "requests", "scalars")


class Parts:
    """A session among stand-ins; what it gives back is noted in order."""

    def __init__(self, *, raises: bool = False) -> None:
        self.given_back: list[str] = []
        self.status_exchange, self.sizes = MagicMock(), MagicMock()
        self.sequencer, self.conflict_monitor = MagicMock(), MagicMock()
        stand_ins: dict[str, Any] = {name: MagicMock(error=None) for name in STAND_INS}
        self.conflict_monitor.check.return_value = None
        context = MagicMock(
            conflict_monitor=self.conflict_monitor, watch=MagicMock(error=None), log=EventLog(0)
        )
        self.account, self.recorder = context.account, stand_ins["recorder"]
        self.recorder.trouble.return_value = ""
        self.session = Session(
            sizes=self.sizes,
            status_exchange=self.status_exchange,
            sequencer=self.sequencer,
            device=MagicMock(),
            context=context,
            raises=raises,
            **stand_ins,
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


def test_one_that_fails_keeps_no_other_from_its_turn(capsys: pytest.CaptureFixture[str]) -> None:
    parts = Parts()
    parts.session.on_leaving(lost)
    parts.session.leave()
    assert parts.given_back == ["hook", "threads", "device"]
    assert capsys.readouterr().out == "perseus: while leaving: the device is gone\n"


@pytest.mark.parametrize("error", [DeviceLostError("gone"), ZeroDivisionError("a bug of ours")])
def test_an_error_within_an_instruction_never_reaches_the_host(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = Parts()
    parts.sequencer.before.side_effect = error
    parts.session.before(Kind.FORWARD)
    assert parts.given_back == ["hook", "threads", "device"]
    parts.status_exchange.fail.assert_called_once_with()
    said = capsys.readouterr().out
    assert said.count("perseus: off, training goes on at default clocks: ") == 1
    assert str(error) in said


def test_it_leaves_even_where_everybody_else_is_gone() -> None:
    parts = Parts()
    parts.sequencer.after.side_effect = lost
    parts.conflict_monitor.failed.side_effect = lost
    parts.status_exchange.fail.side_effect = EngineError("a rank fell silent")
    parts.session.after(Kind.BACKWARD)
    assert parts.given_back == ["hook", "threads", "device"]


def test_the_error_is_raised_at_the_end_of_the_iteration_where_the_user_wants_that() -> None:
    parts = Parts(raises=True)
    parts.sequencer.before.side_effect = lost
    parts.session.before(Kind.FORWARD)
    with pytest.raises(PerseusError, match="the device is gone"):
        parts.session.iteration_ends()
    assert parts.given_back == ["hook", "threads", "device"]


def test_a_batch_of_a_size_that_nobody_knows_yet_is_not_listened_to() -> None:
    parts = Parts()
    parts.sizes.meet.side_effect = lambda batch: None if batch == Batch(6) else MagicMock()
    assert [parts.session.iteration_begins(Batch(size)) for size in (6, 4)] == [False, True]


def test_ranks_that_train_batches_of_different_sizes_part_with_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parts = Parts()
    parts.status_exchange.turn.return_value = JobStatus(
        failed=False, plans_ready=0, iteration_s=1.0, sizes=(4, 6)
    )
    parts.session.iteration_begins(Batch(4))
    parts.session.iteration_ends()
    assert parts.given_back == ["hook", "threads", "device"]
    assert capsys.readouterr().out == (
        "perseus: off, training goes on at default clocks: ranks train batches of 4 and of 6 microbatches at "
        "once, which no plan fits (every replica has to train as many microbatches)\n"
    )


def test_an_iteration_without_control_counts_for_neither_side() -> None:
    parts = Parts()
    lifecycle, recorder = parts.session.lifecycle, parts.recorder
    recorder.passed.side_effect = lambda: [Iteration(recorder.finish.return_value, 0.0, 1.0, (MagicMock(),))]
    parts.status_exchange.turn.return_value = None
    for index, controlled in enumerate((True, False, True)):
        lifecycle.mode, recorder.finish.return_value = Mode.PERSEUS, index  # type: ignore[misc]
        parts.conflict_monitor.control.controlled = controlled
        parts.session.iteration_begins(Batch(4))
        parts.session.iteration_ends()
    assert [call.args[0] for call in parts.account.add.call_args_list] == [
        Mode.PERSEUS,
        Mode.NEITHER,
        Mode.PERSEUS,
    ]
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
    assert capsys.readouterr().out.splitlines() == [
        f"perseus: {journal} is not written any more: Not a directory",
        "perseus: one",
        "perseus: two",
    ]


def test_only_rank_0_speaks_and_says_things_once(capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (0, 1):
        log = EventLog(rank)
        log.line_once("hello")
        log.line_once("hello")
    assert capsys.readouterr().out == "perseus: hello\n"
