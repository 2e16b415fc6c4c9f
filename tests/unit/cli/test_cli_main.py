"""The program as a whole: commands, help, exit codes, and what it imports."""

from pathlib import Path

import pytest

import perseus_ds
from perseus_ds.cli import main
from perseus_ds.cli.main import COMMANDS, REMOVED_OPTIONS, parser


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"perseus-ds {perseus_ds.__version__}\n"


@pytest.mark.parametrize("words", [[], ["fly"], ["plan"], ["show", "p", "--deadline", "-1"], ["clocks"]])
def test_wrong_usage_is_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert "usage: perseus-ds" in capsys.readouterr().err


@pytest.mark.parametrize("removed", REMOVED_OPTIONS)
def test_what_was_removed_is_refused_with_what_to_do_instead(
    removed: str, capsys: pytest.CaptureFixture[str]
) -> None:
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
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert f"usage: perseus-ds {command}" in text


def test_the_document_names_every_command() -> None:
    text = (Path(__file__).parents[3] / "docs" / "commands.md").read_text()
    missing = [command for command in COMMANDS if f"## {command}" not in text]
    assert missing == []


def test_ctrl_c_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("perseus_ds.cli.doctor.run", interrupt)
    assert main(["doctor"]) == 130
    assert capsys.readouterr() == ("", "")


def test_an_error_of_the_system_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> int:
        raise PermissionError(13, "Permission denied", "/root/plan.json")

    monkeypatch.setattr("perseus_ds.cli.doctor.run", fail)
    assert main(["doctor"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "/root/plan.json" in line


def test_only_the_called_command_has_its_arguments() -> None:
    assert "--frontier-csv" not in parser("show").format_help()
