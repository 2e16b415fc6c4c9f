"""Write the page of a run directory, or compare two runs in a table.

One self-contained HTML page: the saving and its error, the run's course, and one iteration before
and after. It also has the frontier with the clocks of every plan, each GPU, the profile, and
events. trace.json beside it opens in Perfetto. Parts that the job has not written are named, with
the reason. Of two run directories a table is printed, side by side, and no page is written. A
profile in place of a run directory (profile.json or a CSV) is shown alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from perseus_ds.cli.output import DONE, bold, grid, not_negative, refuse_idle, say, sentences
from perseus_ds.errors import ConfigError
from perseus_ds.plan import certified
from perseus_ds.report import EnergyPrices, compare, write_profile_page, write_report
from perseus_ds.report.figures import (
    KEYS,
    Compared,
    Comparison,
    Figures,
    Saving,
    explanation,
    headline,
    labels,
    with_error,
)
from perseus_ds.report.read import Contents, short, signed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds report``."""
    parser.add_argument(
        "run_dir", type=Path, metavar="RUN_DIR", help="run_dir of the job's perseus block, or a profile"
    )
    parser.add_argument("other", type=Path, nargs="?", metavar="OTHER", help="a second run, to compare with")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="PAGE",
        help="default: RUN_DIR/report.html",
    )
    parser.add_argument("--price-per-kwh", type=not_negative, metavar="P", help="money that a kWh costs")
    parser.add_argument("--gco2-per-kwh", type=not_negative, metavar="G", help="grams of CO2 that it emits")
    parser.add_argument(
        "--pue", type=float, metavar="X", help="power usage effectiveness of the building (1)"
    )


def run(options: argparse.Namespace) -> int:
    """Write the page; print the short table and where the page is."""
    if options.run_dir.is_file() or options.other is not None:
        _refuse_prices(options)
    if options.run_dir.is_file() and options.other is None:
        say(f"report: {write_profile_page(options.run_dir, page=options.output)}")
        return DONE
    return _one(options) if options.other is None else _two(options)


def _refuse_prices(options: argparse.Namespace) -> None:
    for name in KEYS:
        if getattr(options, name) is not None:
            raise ConfigError(
                f"--{name.replace('_', '-')} is for the page of one run", hint="leave it out here"
            )


def _one(options: argparse.Namespace) -> int:
    # not for --help
    from perseus_ds.report.figures import figures  # noqa: PLC0415
    from perseus_ds.report.read import read_contents  # noqa: PLC0415

    prices = EnergyPrices(options.price_per_kwh, options.gco2_per_kwh, options.pue)
    contents = read_contents(options.run_dir)
    found = figures(contents)
    page, *others = write_report(contents, found, page=options.output, prices=prices)
    say(report_table(contents, found))
    say(f"report: {page}{''.join(f' (beside it {path.name})' for path in others)}")
    return DONE


def _two(options: argparse.Namespace) -> int:
    # not for --help

    refuse_idle("of two runs no page is written", output=options.output)
    say(comparison_table(compare(options.run_dir, options.other)))
    return DONE


# The short table of a report, and that of two runs: plain ASCII, 80 columns.

_WIDEST_CELL = 24


def report_table(contents: Contents, found: Figures) -> str:
    """Lay the figures of one run out; what is missing is named, with the reason."""
    parts = [f"perseus: {found.job}", bold(_ascii(headline(found)))]
    if found.rows:
        headings = ["", "default clocks", "the plan", "difference"]
        parts += ["", grid(headings, [_cells(row) for row in found.rows])]
    if savings := _savings(found):
        parts += ["", grid(["saving", "energy", "time", "from"], savings, texts=4)]
    if text := explanation(contents, found):
        parts.append(text)
    if found.gap_pct is not None:
        parts.append(f"The plan is {certified(found.gap_pct)}.")
    parts += [f"missing {part.file}: {part.why}" for part in contents.missing]
    return sentences("\n".join(parts))


def comparison_table(found: Comparison) -> str:
    """Lay two runs out beside each other."""
    rows = [[name, *(_cut(value) for value in values)] for name, *values in found.rows]
    return f"{grid(['', *map(_cut, labels(found.runs))], rows, texts=3)}\n{sentences(found.verdict)}"


def _cells(row: Compared) -> list[str]:
    name = f"{row.name}, {row.unit}"
    before, after = short(row.baseline, digits=5), short(row.perseus, digits=5)
    return [name, before, after, f"{signed(row.difference_pct, decimals=2)} %"]


def _savings(found: Figures) -> list[list[str]]:
    where = "simulated, " if found.simulated else ""
    given = (("measured", found.measured, where), ("expected", found.predicted, ""))
    return [_saving(name, saving, source) for name, saving, source in given if saving is not None]


def _saving(name: str, saving: Saving, where: str) -> list[str]:
    slower = with_error(saving.slowdown_pct, saving.slowdown_within_pct, decimals=2, sign=True)
    energy = with_error(saving.saving_pct, saving.within_pct, decimals=2)
    return [name, _ascii(energy), _ascii(slower), f"{where}{saving.source}"]


def _ascii(text: str) -> str:
    return text.replace("\N{PLUS-MINUS SIGN}", "+-")


def _cut(text: str) -> str:
    text = _ascii(text)
    return text if len(text) <= _WIDEST_CELL else f"{text[: _WIDEST_CELL - 2]}.."
