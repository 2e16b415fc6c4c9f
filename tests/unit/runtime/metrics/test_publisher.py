"""The thread that publishes: each of its troubles is one line, and none ends it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from virtual_host import VirtualHost

from perseus_ds.runtime.metrics import Labels, Metric, MetricSample, Publisher

EVERY_S = 15.0
CHANGED = RuntimeError("dictionary changed size during iteration")


class Troubled:
    """Figures whose turns fail in a given order; the last error repeats for ever."""

    labels = Labels(gpu={}, job={})

    def __init__(self, errors: Sequence[Exception | None]) -> None:
        self._errors = list(errors)
        self.turns = 0

    def turn(self) -> None:
        error = self._errors[min(self.turns, len(self._errors) - 1)]
        self.turns += 1
        if error is not None:
            raise error

    def samples(self) -> list[MetricSample]:
        return [MetricSample(Metric.ENERGY, float(self.turns))]


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        pytest.param([None], [], id="no trouble"),
        pytest.param([CHANGED, None], [], id="read while it changed, once"),
        pytest.param([CHANGED, None, CHANGED, None], [], id="and again later"),
        pytest.param([CHANGED], ["RuntimeError"], id="for ever"),
        pytest.param([RuntimeError("CUDA error")], ["RuntimeError"], id="another RuntimeError"),
        pytest.param(
            [KeyError("a"), KeyError("b"), KeyError("a")], ["KeyError: 'a'", "KeyError: 'b'"], id="two"
        ),
    ],
)
def test_each_trouble_is_one_line(tmp_path: Path, errors: list[Exception | None], said: list[str]) -> None:
    host, lines, figures = VirtualHost(), list[str](), Troubled(errors)
    publisher = Publisher(figures, tmp_path / "a.prom", say=lines.append, threads=host)
    host.sleep(20.5 * EVERY_S)
    publisher.close()
    assert len(lines) == len(said)
    assert all(text in line for text, line in zip(said, lines, strict=True))
    assert figures.turns == 22, "one in 15 s, and the last"
    assert host.failures == []
    host.close()


def test_texts_that_are_never_the_same_do_not_fill_the_log(tmp_path: Path) -> None:
    host, lines = VirtualHost(), list[str]()
    figures = Troubled([ValueError(str(number)) for number in range(100)])
    publisher = Publisher(figures, tmp_path / "a.prom", say=lines.append, threads=host)
    host.sleep(60.0 * EVERY_S)
    publisher.close()
    assert len(lines) == 8
    host.close()
