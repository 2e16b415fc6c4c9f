"""Write a run directory's report, one page with the trace beside it."""

from __future__ import annotations

from pathlib import Path

from perseus_ds.profile import read_profile
from perseus_ds.report.contents import Contents
from perseus_ds.report.contents.figures import Figures, figures
from perseus_ds.report.contents.worth import EnergyPrices
from perseus_ds.report.timeline.trace import write_trace
from perseus_ds.run_directory import write_whole


def write_report(
    contents: Contents, found: Figures, *, page: Path | None = None, prices: EnergyPrices | None = None
) -> list[Path]:
    """Write ``report.html`` and the trace beside it; return their paths, the page first.

    Parts that are missing are named on the page, with the reason.

    Raises:
        OSError: the report cannot be written there.
    """
    from perseus_ds.report.page.page import page_of  # noqa: PLC0415  # jinja2: not for who prints a table

    target = contents.run_dir / "report.html" if page is None else page
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = []
    if contents.timelines:
        path = target.parent / "trace.json"
        beside = [write_trace(contents.in_order(), path, critical=contents.critical_paths())]
    write_whole(target, page_of(contents, found, prices=prices, trace=beside[0].name if beside else ""))
    return [target, *beside]


def write_profile_page(profile: Path, *, page: Path | None = None) -> Path:
    """Write the page of a profile alone, ours or the CSV of Zeus; return its path.

    Raises:
        ProfileError: it cannot be read.
        OSError: the page cannot be written there.
    """
    from perseus_ds.report.page.page import page_of  # noqa: PLC0415  # as above

    contents = Contents(profile.parent, read_profile(profile), None, None, {}, (), ())
    target = profile.with_suffix(".html") if page is None else page
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, page_of(contents, figures(contents)))
    return target
