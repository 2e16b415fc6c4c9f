"""What commands print fits 80 columns: no row wraps, and colour is for terminals alone."""

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_program import Program
from hand_made_run import leave_run

from perseus_ds.cli import main
from perseus_ds.cli.main import COMMANDS
from perseus_ds.profile import Point, Profile, write_profile
from perseus_ds.schedule import Kind

GPUS, MICROBATCHES = 3, 32
_COLOUR = re.compile("\x1b\\[[0-9;]*m")


class Terminal(io.StringIO):
    """Eighty columns that somebody watches."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile of three stages, its plan for 32 microbatches, and two run directories."""
    folder = tmp_path_factory.mktemp("wide")

    def points(time_s: float) -> tuple[Point, ...]:
        return tuple(
            Point(mhz, time_s * (0.2 + 0.8 * 1410 / mhz), time_s * (90 + 260 * (mhz / 1410) ** 3))
            for mhz in (1410, 1100)
        )

    kinds = ((Kind.FORWARD, 5.0), (Kind.BACKWARD, 10.0))
    rows = {(s, kind): points(base_s * (1 + 0.1 * (s % 4))) for s in range(GPUS) for kind, base_s in kinds}
    write_profile(Profile(rows, blocking_power_w=83.64), folder / "profile.json")
    sizes = ["--stages", str(GPUS), "--microbatches", str(MICROBATCHES)]
    assert main(["plan", str(folder / "profile.json"), *sizes, "-o", str(folder / "plan.json")]) == 0
    leave_run(folder / "run", folder / "plan.json")
    leave_run(folder / "other", folder / "plan.json")
    return folder


CALLS = {
    "plan": [
        "plan",
        "profile.json",
        "--stages",
        "3",
        "--microbatches",
        "4",
        "--reserve-pct",
        "1",
        "--verify",
    ],
    "show": ["show", "plan.json"],
    "show beside": ["show", "plan.json", "--beside", "5000"],
    "show power": ["show", "plan.json", "--power"],
    "verify": ["verify", "plan.json"],
    "simulate": ["simulate", "plan.json", "profile.json", "--iterations", "1", "--pipelines", "2"],
    "report": ["report", "run"],
    "report of two": ["report", "run", "other"],
    "convert": ["convert", "profile.json", "profile.csv"],
    "notify": ["notify", "run", "--pipeline", "0", "--slowdown", "1.2"],
    "doctor": ["doctor"],
    "hook": ["hook", "status"],
    "refused": ["show", "none.json"],
}


@pytest.mark.thorough
@pytest.mark.parametrize("call", CALLS)
def test_no_row_is_wider_than_the_terminal(call: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.chdir(folder)
    main(CALLS[call])
    lines = [_COLOUR.sub("", line) for line in (out.getvalue() + err.getvalue()).splitlines()]
    assert lines
    assert [line for line in lines if len(line) > 80] == []


def test_every_command_that_prints_tables_is_tried() -> None:
    elsewhere = {"run", "guardd", "clocks", "kernels", "set", "power"}  # no table, or tried in its own test
    tried = {words[0] for words in CALLS.values()}
    assert {name for name in COMMANDS if name not in tried} <= elsewhere


def coloured(folder: Path, monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> str:
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert main(["show", str(folder / "plan.json")]) == 0
    return stream.getvalue()


def test_colour_is_for_terminals_whose_reader_wants_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" in coloured(folder, monkeypatch, Terminal())
    assert "\x1b[" not in coloured(folder, monkeypatch, io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in coloured(folder, monkeypatch, Terminal())


def test_many_microbatches_are_runs_that_say_every_clock(folder: Path, perseus: Program) -> None:
    text = perseus("show", folder / "plan.json").out
    (last,) = [line for line in text.splitlines() if line.startswith("F stage 2 ")]
    assert last.split()[3:] == [f"0-{MICROBATCHES - 1}:1410"]
    blocks = re.findall(r"^[FB] stage \d+ .*(?:\n {11}.*)*", text, re.MULTILINE)
    assert len(blocks) == 2 * GPUS
    for block in blocks:
        seen: list[int] = []
        for first, _, until in re.findall(r"(?:\s)(\d+)(-(\d+))?:", block):
            seen += range(int(first), int(until or first) + 1)
        assert seen == list(range(MICROBATCHES))


def test_a_file_gets_every_line_whole(folder: Path, perseus: Program) -> None:
    answer: Callable[[], str] = lambda: perseus("show", folder / ("long " * 40 + ".json")).err  # noqa: E731
    assert len(answer().splitlines()) == 1
