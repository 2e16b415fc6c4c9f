"""Write a run directory's report: the pictures that its parts allow, and the page that holds them."""

from __future__ import annotations

from pathlib import Path

from perseus_ds.report.contents import Contents, read_contents
from perseus_ds.report.contents.figures import figures, headline
from perseus_ds.report.contents.worth import EnergyPrices
from perseus_ds.report.timeline.trace import write_trace
from perseus_ds.report.walk.walk import Walk, walk_of
from perseus_ds.run_directory import write_whole


def write_report(
    run_dir: Path, *, page: Path | None = None, prices: EnergyPrices | None = None
) -> list[Path]:
    """Write ``report.html``, pictures, walk and trace beside it; return their paths, the page first.

    Parts that are missing are named on the page, with the reason. ``prices`` that are not given are those
    of the job's block, where it has some.

    Raises:
        PerseusError: the directory does not exist, or holds nothing of a job.
        OSError: the report cannot be written there.
    """
    # matplotlib loads here: a job that only prints the table shall not wait for it.
    from perseus_ds.report.page.page import page_of  # noqa: PLC0415
    from perseus_ds.report.pictures.gallery import draw_all  # noqa: PLC0415

    contents = read_contents(run_dir)
    found = figures(contents)
    target = run_dir / "report.html" if page is None else page
    target.parent.mkdir(parents=True, exist_ok=True)
    pictures = list(draw_all(contents, found, target.parent))
    walk = None if contents.plans is None else walk_of(contents.plans)
    others = _beside(contents, walk, target.parent)
    page_text = page_of(contents, found, pictures, title=headline(found), walk=walk, prices=prices)
    write_whole(target, page_text)
    return [target, *(picture.path for picture in pictures), *others]


def _beside(contents: Contents, walk: Walk | None, directory: Path) -> list[Path]:
    """What is not a picture of the page: the walk as a GIF, the trace."""
    from perseus_ds.report.walk.gif import write_gif  # noqa: PLC0415  # as above

    written = [] if walk is None else [write_gif(walk, directory / "walk.gif")]
    if contents.timelines:
        written.append(
            write_trace(contents.in_order(), directory / "trace.json", critical=contents.critical_paths())
        )
    return written
