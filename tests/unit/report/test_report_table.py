"""The table that rank 0 prints: right figures, 80 columns, plain ASCII."""

import re
from pathlib import Path

import pytest
from cli_program import WriteRun

from perseus_ds.cli.report import report_table
from perseus_ds.errors import PerseusError
from perseus_ds.report.figures import figures
from perseus_ds.report.read import load_run


def table(run_dir: Path) -> str:
    contents = load_run(run_dir)
    return report_table(contents, figures(contents))


def test_a_whole_run_fits_a_log_file(write_run: WriteRun) -> None:
    text = table(write_run())
    assert text.isascii()
    assert "\x1b" not in text
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert {"2", "4", "1f1b,", "simulated", "A100-SXM4-80GB"} <= set(lines[0].split())
    assert {"12.0", "less", "+0.2", "measured", "simulated"} <= set(lines[1].split())
    assert "kWh" in lines[2], "what it is worth stands before everything else"
    cells = {tuple(line.split()[-5:]) for line in lines}
    assert {
        ("s", "1.0000", "1.0020", "+0.20", "%"),
        ("J", "1000.0", "880.00", "-12.00", "%"),
        ("W", "1000.0", "878.24", "-12.18", "%"),
    } <= cells
    measured, expected = (next(x for x in lines if x.startswith(name)) for name in ("measured", "expected"))
    assert measured.split()[:5] == ["measured", "12.00", "%", "+0.20", "%"]
    assert {"simulated,", "12", "40"} <= set(measured.split())
    assert expected.split()[:2] == ["expected", "12.50"]
    assert "agrees" in " ".join(lines)


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ({"event": "attached", "mode": "profile"}, r"plan\.json: mode"),
        ({"event": "disabled", "reason": "the GPU was lost"}, r"summary\.json: .*GPU.*lost"),
    ],
)
def test_says_what_is_missing_and_why(write_run: WriteRun, event: dict[str, object], why: str) -> None:
    found = " ".join(table(write_run("profile", events=[event])).split())
    assert re.search(why, found)
    assert "measured" not in found


@pytest.mark.parametrize("there", [True, False])
def test_a_directory_without_a_job_is_refused(tmp_path: Path, *, there: bool) -> None:
    run_dir = tmp_path / "run"
    if there:
        run_dir.mkdir()
    with pytest.raises(PerseusError, match="written" if there else "no such"):
        table(run_dir)
