"""Write a run directory's report: the pictures that its parts allow, and the page that holds them."""

from __future__ import annotations

from pathlib import Path

from perseus_ds.report.contents import read_contents
from perseus_ds.report.figures import figures
from perseus_ds.report.headline import headline
from perseus_ds.run_directory import write_whole


def write_report(run_dir: Path, *, page: Path | None = None) -> list[Path]:
    """Write ``report.html`` and PNGs beside it; return their paths, the page first.

    Parts that are missing are named on the page, with the reason.

    Raises:
        PerseusError: the directory does not exist, or holds nothing of a job.
        OSError: the report cannot be written there.
    """
    # matplotlib loads here: a job that only prints the table shall not wait for it.
    from perseus_ds.report.gallery import draw_all  # noqa: PLC0415
    from perseus_ds.report.page import page_of  # noqa: PLC0415

    contents = read_contents(run_dir)
    found = figures(contents)
    target = run_dir / "report.html" if page is None else page
    target.parent.mkdir(parents=True, exist_ok=True)
    pictures = list(draw_all(contents, found, target.parent))
    write_whole(target, page_of(contents, found, pictures, title=headline(found)))
    return [target, *(picture.path for picture in pictures)]
