"""An audit of several ranks: rank 0 alone reads what all have measured, and all go on alike."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest
from ranks import run_ranks

from perseus_ds.runtime.accounting import Outside, RankBooks, RankReport
from perseus_ds.runtime.channel import ControlChannel
from perseus_ds.runtime.planned_run import Audits

pytestmark = pytest.mark.e2e

RECEIVED: list[int] = []


class Traced(list[float]):
    """Durations that note where they are read."""

    def __reduce__(self) -> tuple[object, ...]:
        return received, (list(self),)


def received(durations_s: list[float]) -> list[float]:
    RECEIVED.append(len(durations_s))
    return durations_s


def audited(rank: int) -> tuple[object, list[int], int]:
    context: Any = SimpleNamespace(job=SimpleNamespace(rank=rank), channel=ControlChannel(), log=mock.Mock())
    report = RankReport(
        rank, 0, rank, {}, Outside(), cast("Any", {"plan": Traced([0.5] * rank)}), overrun_share=0.5
    )
    books = cast("RankBooks", SimpleNamespace(report=lambda _: report))
    found = Audits(books).audit(context, mock.Mock(), mock.Mock(), named="", answers={})
    context.channel.close()
    return found, sorted(RECEIVED), context.log.event.call_count


def test_only_rank_0_receives_reports() -> None:
    first, *others = [one.value for one in run_ranks(3, audited)]
    assert first == (False, [0, 1, 2], 1)
    assert others == [(False, [], 0)] * 2
