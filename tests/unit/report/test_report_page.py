"""The page: one file, no network, every part that is there, and the reason for every part that is not."""

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from perseus_ds.cli import main
from perseus_ds.report import write_report
from perseus_ds.report.contents import read_contents
from perseus_ds.report.contents.figures import figures
from perseus_ds.report.contents.worth import EnergyPrices
from perseus_ds.report.page.page import page_of
from perseus_ds.report.page.timeline_svg import timelines_svg
from perseus_ds.run_directory import RecordedIteration

pytestmark = pytest.mark.thorough

_VOID = {"meta", "img", "link", "br", "rect", "path", "input"}


class _Balanced(HTMLParser):
    """Notes tags that are closed out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID and (not self.open or self.open.pop() != tag):
            self.wrong.append(tag)


@pytest.fixture(scope="module")
def paths(run_writer: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """What one whole run's report is: drawn once, since drawing takes a second."""
    return write_report(run_writer(tmp_path_factory.mktemp("report") / "run"))


@pytest.fixture(scope="module")
def text(paths: list[Path]) -> str:
    return paths[0].read_text()


def test_writes_the_page_and_the_pictures(paths: list[Path]) -> None:
    pictures = ["timeline.png", "causes.png", "saving.png", "frontier.png", "clocks.png", "profile.png"]
    assert [path.name for path in paths] == ["report.html", *pictures, "walk.gif", "trace.json"]
    for path in paths[1 : 1 + len(pictures)]:
        assert path.read_bytes().startswith(b"\x89PNG")


def test_the_page_is_well_formed_and_needs_no_network(text: str) -> None:
    page = _Balanced()
    page.feed(text)
    assert (page.open, page.wrong) == ([], [])
    assert not re.search(r"https?://|src=\"(?!data:)|@import|<link", text)
    assert text.count("data:image/png;base64,") == 5


@pytest.mark.parametrize(
    "words",
    [
        "12.0 % less energy at +0.2 % time, measured on a simulated GPU",
        "energy saved, predicted",
        "A100-SXM4-80GB",
        "0F0: forward of microbatch 0, 1410 MHz",
        "running",
    ],
)
def test_the_page_tells_everything(text: str, words: str) -> None:
    assert words in text


def test_text_from_outside_is_escaped(write_run: Callable[..., Path]) -> None:
    run_dir = write_run(events=[{"event": "disabled", "reason": "<script>alert(1)</script>"}])
    assert "<script>alert" not in write_report(run_dir)[0].read_text()


def test_a_profile_alone_makes_a_page_that_says_what_is_missing(write_run: Callable[..., Path]) -> None:
    run_dir = write_run("profile", events=[{"event": "attached", "mode": "profile"}])
    paths = write_report(run_dir)
    assert [path.name for path in paths] == ["report.html", "profile.png"]
    assert "mode profile does not write it" in paths[0].read_text()


def test_profile_and_plan_draw_the_frontier(write_run: Callable[..., Path]) -> None:
    paths = write_report(write_run("profile", "plan"))
    assert [path.name for path in paths] == [
        "report.html",
        "frontier.png",
        "clocks.png",
        "profile.png",
        "walk.gif",
    ]
    assert "predicted from a simulated GPU" in paths[0].read_text()


def test_the_page_can_go_elsewhere(write_run: Callable[..., Path], tmp_path: Path) -> None:
    page = tmp_path / "elsewhere" / "page.html"
    paths = write_report(write_run(), page=page)
    assert paths[0] == page
    assert {path.parent for path in paths} == {page.parent}
    assert not (tmp_path / "run" / "report.html").exists()


@pytest.mark.parametrize("missing", ["profile.json", "plan.json", "summary.json", "timelines.json"])
def test_any_one_part_may_be_missing(write_run: Callable[..., Path], missing: str) -> None:
    run_dir = write_run()
    (run_dir / missing).unlink()
    contents = read_contents(run_dir)
    assert f"<td>{missing}</td>" in page_of(contents, figures(contents), [], title="a page without pictures")


def test_prices_stand_on_the_page_where_there_are_some(write_run: Callable[..., Path]) -> None:
    run_dir = write_run()
    contents = read_contents(run_dir)
    plain = page_of(contents, figures(contents), [], title="t")
    assert "energy per day of training" in plain
    assert "money per day" not in plain
    assert "PUE" not in plain
    prices = EnergyPrices(price_per_kwh=0.25, gco2_per_kwh=400.0, pue=1.2)
    priced = page_of(contents, figures(contents), [], title="t", prices=prices)
    assert "at 0.25 per kWh" in priced
    assert "at 400 g per kWh" in priced
    assert "PUE 1.2" in priced


def test_prices_are_given_to_the_command(write_run: Callable[..., Path]) -> None:
    run_dir = write_run()
    prices = ["--price-per-kwh", "0.25", "--gco2-per-kwh", "400", "--pue", "1.2"]
    assert main(["report", str(run_dir), *prices, "--output", str(run_dir / "priced.html")]) == 0
    priced = (run_dir / "priced.html").read_text()
    assert all(words in priced for words in ("at 0.25 per kWh", "at 400 g per kWh", "PUE 1.2"))


def test_a_timeline_on_the_page_has_ticks_and_a_foot_under_the_critical_path(
    timelines: list[RecordedIteration],
) -> None:
    one = timelines[-1]
    critical = [span.instruction for span in one.spans][:3]
    drawn = timelines_svg([one], critical={one.name: critical})
    assert drawn.count('class="critical"') == len(critical)
    assert drawn.count('class="tick"') >= 5
    assert ">0 s</text>" in drawn


@pytest.mark.parametrize("file", ["profile.json", "plan.json", "summary.json", "timelines.json"])
def test_whatever_a_file_holds_it_is_named_and_nothing_breaks(
    write_run: Callable[..., Path], file: str
) -> None:
    run_dir = write_run()
    whole = (run_dir / file).read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"\xff\xfe\x00", b"[]", b"{}", b"null", b"[" * 100_000):
        (run_dir / file).write_bytes(damaged)
        (missing,) = read_contents(run_dir).missing
        assert missing.file == file
        assert "\n" not in missing.why
    (run_dir / file).unlink()
    (run_dir / file).mkdir()
    assert [missing.file for missing in read_contents(run_dir).missing] == [file]


def test_torn_files_are_named_and_the_rest_is_drawn(write_run: Callable[..., Path]) -> None:
    run_dir = write_run()
    for name in ("timelines.json", "summary.json"):
        path = run_dir / name
        path.write_text(path.read_text()[:-40])
    paths = write_report(run_dir)
    assert "frontier.png" in [path.name for path in paths]
    text = paths[0].read_text()
    assert "<td>timelines.json</td>" in text
    assert "<td>summary.json</td>" in text
