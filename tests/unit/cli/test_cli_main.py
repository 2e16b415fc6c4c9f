"""The program as a whole: commands, help, exit codes, and what it imports."""

import json
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from cli_program import Refused

import perseus_ds
from perseus_ds.cli import main
from perseus_ds.cli.main import COMMANDS, REMOVED_OPTIONS


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"perseus-ds {perseus_ds.__version__}\n"


USAGE = [
    *([], ["fly"], ["plan"], ["clocks"]),
    ["show", "p", "--deadline", "-1"],
    ["simulate", "p", "q", "--pipelines", "0"],
    ["guardd", "--allow", "gpu=*"],
    ["guardd", "--allow", "user=nobody-of-that-name gpus=*"],
]


@pytest.mark.parametrize("words", USAGE, ids=" ".join)
def test_wrong_usage_is_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert "usage: perseus-ds" in said
    assert all(word in said for word in words if word.startswith("--"))


@pytest.mark.parametrize("removed", REMOVED_OPTIONS)
def test_what_was_removed_says_what_to_do_instead(removed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*removed.split(), "a", "--", "b"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert f"`{removed}`" in line
    assert REMOVED_OPTIONS[removed] in line


def test_a_removed_option_of_the_command_to_run_is_not_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(REMOVED_OPTIONS, "clocks --gone", "go on")
    with pytest.raises(SystemExit):
        main(["clocks", "--", "--gone"])
    assert "was removed" not in capsys.readouterr().err
    assert main(["clocks", "--gone=1"]) == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_a_section(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert f"usage: perseus-ds {command}" in text
    assert ("--frontier-csv" in text) == (command == "plan"), "the called command alone has its arguments"
    assert f"## {command}" in (Path(__file__).parents[3] / "docs" / "commands.md").read_text()


def test_ctrl_c_is_quiet_and_an_error_of_the_system_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("perseus_ds.cli.doctor.run", Mock(side_effect=KeyboardInterrupt))
    assert main(["doctor"]) == 130
    assert capsys.readouterr() == ("", "")
    denied = PermissionError(13, "Permission denied", "/root/.plan.json.tmp", None, "/root/plan.json")
    monkeypatch.setattr("perseus_ds.cli.doctor.run", Mock(side_effect=denied))
    assert main(["doctor"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "/root/plan.json" in line


@pytest.mark.parametrize(
    "words",
    [
        ("show", "PLAN", "--power", "--plan", 0),
        ("show", "PLAN", "--power", "--graph", "graph.dot"),
        ("show", "PLAN", "--power", "--min-energy"),
        ("show", "PLAN", "--power", "--max-slowdown", 0),
        ("kernels", "trace", "--run-dir", "R", "-o", "out.json", "--iterations", 3),
        ("kernels", "show", "KERNELS", "--json", "--classes", 3),
        ("report", "PROFILE", "--json"),
        ("show", "PROFILE", "--power"),
    ],
    ids=lambda words: " ".join(map(str, words)),
)
def test_an_option_that_would_do_nothing_is_refused(
    refused: Refused, plan_file: Path, profile_csv: Path, words: tuple[object, ...]
) -> None:
    files = {"PLAN": plan_file, "PROFILE": profile_csv}
    flag = next(word for word in reversed(words) if str(word).startswith("--"))
    assert str(flag) in refused(*(files.get(str(word), word) for word in words))


# What a start of the program loads.

HEAVY = {"torch", "deepspeed", "numba", "scipy", "matplotlib", "omegaconf", "rich", "networkx"}
PROGRAM = """
import contextlib, io, json, sys
from perseus_ds.cli import main
from perseus_ds.cli.main import COMMANDS
loaded = {}
for words in [["--help"], *([command, "--help"] for command in sorted(COMMANDS))]:
    before = set(sys.modules)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main(words)
    loaded[" ".join(words)] = sorted(set(sys.modules) - before)
print(json.dumps(loaded))
"""


@pytest.mark.thorough
def test_help_loads_no_heavy_library_and_the_list_of_commands_nothing_but_python() -> None:
    command = [sys.executable, "-c", PROGRAM]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    loaded: dict[str, list[str]] = json.loads(told.stdout)
    heavy = {words: sorted(HEAVY.intersection(modules)) for words, modules in loaded.items()}
    assert heavy.pop("kernels --help") in ([], ["scipy"])  # it chooses by HiGHS
    assert not any(heavy.values()), heavy
    ours = ("perseus_ds.plan", "perseus_ds.solver", "perseus_ds.report")
    assert not [one for one in loaded["doctor --help"] if one.startswith(ours)]
    assert not {"numpy", "pydantic"}.intersection(loaded["--help"])
    assert "perseus_ds.simulation.emulator" not in loaded["plan --help"]
    assert any("numpy" in modules for modules in loaded.values())  # the list can show what is loaded
    assert len(loaded) > 10
