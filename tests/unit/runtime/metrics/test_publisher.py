"""The thread that publishes: each of its troubles is one line, and none ends it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from virtual_host import VirtualHost

from perseus_ds.runtime.metrics.ledger import EnergyLedger
from perseus_ds.runtime.metrics.metric import Labels, Metric, MetricSample
from perseus_ds.runtime.metrics.publisher import Publisher
from perseus_ds.runtime.metrics.textfile import TextFile

CHANGED = RuntimeError("dictionary changed size during iteration")


class Troubled:
    """Figures whose turns fail in a given order; the last error repeats for ever."""

    def __init__(self, errors: Sequence[Exception | None]) -> None:
        self._errors = list(errors)
        self.turns = 0

    def turn(self) -> None:
        error = self._errors[min(self.turns, len(self._errors) - 1)]
        self.turns += 1
        if error is not None:
            raise error

    def samples(self) -> Iterable[MetricSample]:
        return [MetricSample(Metric.ENERGY, float(self.turns))]


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        pytest.param([None], [], id="no trouble"),
        pytest.param([CHANGED, None], [], id="read while it changed, once"),
        pytest.param([CHANGED, None, CHANGED, None], [], id="and again later"),
        pytest.param([CHANGED], ["RuntimeError: dictionary changed size during iteration"], id="for ever"),
        pytest.param([RuntimeError("CUDA error")], ["RuntimeError: CUDA error"], id="another RuntimeError"),
        pytest.param(
            [KeyError("a"), KeyError("b"), KeyError("a")], ["KeyError: 'a'", "KeyError: 'b'"], id="two"
        ),
    ],
)
def test_each_trouble_is_one_line(tmp_path: Path, errors: list[Exception | None], said: list[str]) -> None:
    host, lines, figures = VirtualHost(), list[str](), Troubled(errors)
    file = TextFile(tmp_path / "a.prom", Labels(gpu={}, job={}))
    ledger = EnergyLedger(tmp_path / "energy.json", "GPU-0")
    publisher = Publisher(figures, ledger, file, every_s=1.0, say=lines.append, threads=host)
    host.sleep(20.5)
    publisher.close()
    assert lines == [f"metrics: {text}; training goes on" for text in said]
    assert figures.turns == 22, "one a second, and the last"
    assert host.failures == []
    host.close()


def test_texts_that_are_never_the_same_do_not_fill_the_log(tmp_path: Path) -> None:
    host, lines = VirtualHost(), list[str]()
    figures = Troubled([ValueError(str(number)) for number in range(100)])
    file = TextFile(tmp_path / "a.prom", Labels(gpu={}, job={}))
    ledger = EnergyLedger(tmp_path / "energy.json", "GPU-0")
    publisher = Publisher(figures, ledger, file, every_s=1.0, say=lines.append, threads=host)
    host.sleep(60.0)
    publisher.close()
    assert len(lines) == 8
    host.close()


def test_energy_is_counted_every_second_whenever_figures_are_due(tmp_path: Path) -> None:
    host, figures, counted_s = VirtualHost(), Troubled([None]), list[float]()
    file = TextFile(tmp_path / "a.prom", Labels(gpu={}, job={}))
    ledger = EnergyLedger(tmp_path / "energy.json", "GPU-0")
    publisher = Publisher(
        figures,
        ledger,
        file,
        every_s=15.0,
        say=print,
        threads=host,
        count=lambda: counted_s.append(host.now_s()),
    )
    host.sleep(30.5)
    publisher.close()
    assert figures.turns == 4, "at 0, 15 and 30 s, and the last"
    assert [at_s - counted_s[0] for at_s in counted_s] == pytest.approx([*range(31), 30.5], abs=0.01)
    host.close()
