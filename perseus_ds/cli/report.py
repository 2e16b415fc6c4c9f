"""Write the page of a run directory, or compare two runs in a table.

One self-contained HTML page: the saving, its error and what it is worth, what was expected, the
frontier with the clocks of every plan, one iteration before and after, the profile, stragglers and
events. trace.json beside it opens in Perfetto. Parts that the job has not written are named, with
the reason. Of two run directories a table is printed, side by side, and no page is written. A
profile in place of a run directory (profile.json or a CSV) is shown alone.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from perseus_ds.cli.output import DONE, bold, grid, not_negative, print_result, pue, refuse_idle, sentences
from perseus_ds.plan.select import gap_in_words
from perseus_ds.report import EnergyPrices, compare, write_profile_page, write_report
from perseus_ds.report.figures import Comparison, Figures, compare_measured_expected, figures, headline
from perseus_ds.report.read import RunData, load_run

_MAX_CELL = 24


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds report``."""
    parser.add_argument(
        "run_dir", type=Path, metavar="RUN_DIR", help="run_dir of the job's perseus block, or a profile"
    )
    parser.add_argument("other", type=Path, nargs="?", metavar="OTHER", help="a second run, to compare with")
    parser.add_argument("-o", "--output", type=Path, metavar="PAGE", help="default: RUN_DIR/report.html")
    parser.add_argument("--price-per-kwh", type=not_negative, metavar="P", help="money that a kWh costs")
    parser.add_argument("--gco2-per-kwh", type=not_negative, metavar="G", help="grams of CO2 that it emits")
    parser.add_argument("--pue", type=pue, metavar="X", help="power usage effectiveness of the building (1)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def run(options: argparse.Namespace) -> int:
    """Write the page; print the short table and where the page is."""
    of_a_profile = options.run_dir.is_file() and options.other is None
    if of_a_profile or options.other is not None:
        prices = {"price_per_kwh": options.price_per_kwh, "gco2_per_kwh": options.gco2_per_kwh}
        refuse_idle("it is for the page of one run", **prices, pue=options.pue)
    if of_a_profile:
        refuse_idle("of a profile there is the page alone", json=options.json)
        print_result(f"report: {write_profile_page(options.run_dir, page=options.output)}")
    elif options.other is not None:
        refuse_idle("of two runs no page is written", output=options.output)
        found = compare(options.run_dir, options.other)
        print_result(json.dumps(asdict(found), indent=1) if options.json else comparison_table(found))
    else:
        _write(options)
    return DONE


def _write(options: argparse.Namespace) -> None:
    prices = EnergyPrices(options.price_per_kwh, options.gco2_per_kwh, options.pue)
    contents = load_run(options.run_dir)
    found = figures(contents)
    page, *others = write_report(contents, found, page=options.output, prices=prices)
    if options.json:
        print_result(json.dumps(asdict(found), indent=1))
        return
    print_result(report_table(contents, found, prices))
    print_result(f"report: {page}{''.join(f' (beside it {path.name})' for path in others)}")


def report_table(contents: RunData, found: Figures, prices: EnergyPrices | None = None) -> str:
    """Lay the figures of one run out: plain ASCII, 80 columns; what is missing is named, with the reason."""
    parts = [found.job, bold(_ascii(headline(found)))]
    if contents.summary is not None:
        parts += [
            f"saved, {name}: {value}"
            for name, value in (prices or EnergyPrices()).per_day(contents.summary).items()
        ]
        parts.append(f"counted: {found.scope}")
    where = "simulated, " if found.simulated else ""
    savings = [
        [name, _ascii(saving.energy), _ascii(saving.time), f"{source}{saving.source}"]
        for name, saving, source in (("measured", found.measured, where), ("expected", found.predicted, ""))
        if saving is not None
    ]
    if savings:
        parts += ["", grid(["", "energy saved", "time", "from"], savings, texts=4)]
    if found.rows:
        headings, cells = ["", "default clocks", "the plan", "difference"], [row.cells for row in found.rows]
        parts += ["", grid(headings, cells)]
    if text := compare_measured_expected(contents, found):
        parts += ["", text]
    if found.gap_pct is not None:
        parts.append(f"The plan is {gap_in_words(found.gap_pct)}.")
    parts += [f"missing {part.file}: {part.why}" for part in contents.missing]
    return sentences("\n".join(parts))


def comparison_table(found: Comparison) -> str:
    """Lay two runs out side by side."""
    rows = [[name, *map(_cell, values)] for name, *values in found.rows]
    return f"{grid(['', *map(_cell, found.labels)], rows, texts=3)}\n{sentences(found.verdict)}"


def _ascii(text: str) -> str:
    return text.replace("\N{PLUS-MINUS SIGN}", "+-")


def _cell(text: str) -> str:
    text = _ascii(text)
    return text if len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 2]}.."
