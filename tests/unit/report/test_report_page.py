"""The page: one file, no network, every part that is there, the reason for every other, and its script."""

import json
import re
import shutil
import subprocess
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from cli_program import WriteRun, page_data, unpacked

from perseus_ds.cli import main
from perseus_ds.plan import PlanSet
from perseus_ds.profile import Profile, write_profile
from perseus_ds.profile.files import write_csv
from perseus_ds.report import EnergyPrices, write_report
from perseus_ds.report.figures import figures
from perseus_ds.report.page import MAX_LINES, clocks_mhz, page_of, profile_sections, sampled_plans
from perseus_ds.report.read import load_run
from perseus_ds.run_directory.events import append_event

_VOID = {"meta", "link", "path", "input"}


class _Balanced(HTMLParser):
    """Notes tags that are closed out of order, and what every element with an id is called."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.labels: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("class") == "plot":
            assert given["tabindex"] == "0"
            self.labels[str(given["id"])] = str(given["aria-label"])
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID and (not self.open or self.open.pop() != tag):
            self.wrong.append(tag)


def report(run_dir: Path, **more: object) -> list[Path]:
    contents = load_run(run_dir)
    return write_report(contents, figures(contents), **more)  # type: ignore[arg-type]


def page(run_dir: Path, prices: EnergyPrices | None = None) -> str:
    contents = load_run(run_dir)
    return page_of(contents, figures(contents), prices=prices)


@pytest.fixture(scope="module")
def paths(run_writer: WriteRun, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return report(run_writer(tmp_path_factory.mktemp("report") / "run"))


@pytest.fixture(scope="module")
def text(paths: list[Path]) -> str:
    return paths[0].read_text()


def test_one_well_formed_page_and_the_trace_are_written(paths: list[Path], text: str, plans: PlanSet) -> None:
    assert [path.name for path in paths] == ["report.html", "trace.json"]
    assert json.loads(paths[1].read_text())["traceEvents"]
    found = _Balanced()
    found.feed(text)
    assert (found.open, found.wrong) == ([], [])
    assert not re.search(r"src=|@import|url\(|fetch\(", text)
    assert re.findall(r'href="(?!data:,)([^"]*)"', text) == ["trace.json", "https://ui.perfetto.dev"]
    assert set(found.labels) == {"timeline", "frontier", "clocks", "profile"}
    assert f"{plans.plan(1).saving_pct:.1f} %" in found.labels["frontier"]
    assert all(re.search(r"\d", words) for words in found.labels.values())


def test_text_from_outside_is_escaped(write_run: WriteRun) -> None:
    run_dir = write_run(events=[{"event": "disabled", "reason": "</script><script>alert(1)</script>"}])
    assert "<script>alert" not in report(run_dir)[0].read_text()


def test_a_profile_alone_makes_a_page_that_says_what_is_missing(write_run: WriteRun) -> None:
    paths = report(write_run("profile", events=[{"event": "attached", "mode": "profile"}]))
    assert [path.name for path in paths] == ["report.html"]
    assert "mode profile" in paths[0].read_text()
    assert set(page_data(paths[0].read_text())) == {"profile"}


def test_profile_and_plan_show_the_frontier(write_run: WriteRun) -> None:
    text = page(write_run("profile", "plan"))
    assert set(page_data(text)) == {"frontier", "clocks", "profile"}
    assert "predicted from" in text
    assert "Nothing is" in text


def test_the_frontier_has_every_plan_its_bound_and_where_the_job_runs(text: str, plans: PlanSet) -> None:
    found = page_data(text)["frontier"]
    columns = {"time": plans.iteration_time_s, "energy": plans.energy_j, "bound": plans.lower_bound_j}
    for name, column in columns.items():
        assert found[name] == pytest.approx(column[found["plan"]].tolist(), rel=1e-6)
    assert found["plan"][found["chosen"]] == 1
    assert found["measured"] == [[1.0, 500.0], [1.002, 440.0]]


def test_plans_are_shown_from_end_to_end_and_their_clocks_come_back(text: str, plans: PlanSet) -> None:
    shown = sampled_plans(plans.plan(7))
    assert {0, 7, len(plans) - 1} <= set(shown)
    assert shown == sorted(set(shown))
    assert len(shown) <= 301
    data = page_data(text)
    shown, found = data["frontier"]["plan"], data["clocks"]
    each = unpacked(found["differences"]).reshape(len(shown), -1).cumsum(axis=0, dtype=np.uint16)
    assert (each == clocks_mhz(plans, shown).reshape(len(shown), -1)).all()
    assert {found["low"], found["high"]} <= set(each.ravel().tolist())


def test_the_profile_is_drawn_with_its_errors(text: str, profile: Profile) -> None:
    stage = page_data(text)["profile"]["stages"][0]
    assert [row["words"] for row in stage["kinds"]] == ["forward", "backward"]
    (first, *_), point = stage["kinds"][0]["points"], profile.points[0, next(k for _, k in profile.points)][0]
    assert first == pytest.approx([point.clock_mhz, point.time_s, point.energy_j, 0.0, 0.0], rel=1e-5)


def test_the_saving_comes_first_and_events_last(text: str) -> None:
    headings = re.findall(r"<h2>(.*?)</h2>|<summary>(.*?)</summary>", text)
    order = [next(filter(None, one)).split(",")[0].split(":")[0] for one in headings]
    wanted = ["Measured on a simulated GPU", "The frontier", "One iteration", "The profile", "Events"]
    assert [one for one in order if one in wanted] == wanted
    assert re.search(r"12\.00 %.*?kWh.*?expected", text, re.DOTALL)


def test_a_long_journal_stays_in_its_file(write_run: WriteRun) -> None:
    came_and_went = [{"event": "straggler", "step": 0}, {"event": "straggler_gone", "step": 0}]
    events = [{**event, "step": step} for step in range(600) for event in came_and_went]
    text = page(write_run("plan", events=events))
    assert text.count("straggler gone<") == MAX_LINES // 2
    assert f"last {MAX_LINES} of {len(events)}" in text
    assert f"last {MAX_LINES} of 600" in text
    assert ">step 599<" in text
    assert ">step 1<" not in text


def test_the_page_has_the_times_of_the_first_event_and_of_the_last(write_run: WriteRun) -> None:
    times = ["2026-01-02T03:04:05+00:00", "2026-01-02T09:00:00+00:00", "2026-01-03T13:14:15+00:00"]
    text = page(write_run(events=[{"event": "running", "plan": 1, "time": time} for time in times]))
    assert re.findall(r"(\d{4}-\d\d-\d\d \d\d:\d\d) UTC", text) == ["2026-01-02 03:04", "2026-01-03 13:14"]


def test_prices_are_given_to_the_command(write_run: WriteRun) -> None:
    run_dir = write_run()
    prices = ["--price-per-kwh", "0.25", "--gco2-per-kwh", "400", "--pue", "1.2"]
    assert main(["report", str(run_dir), *prices, "--output", str(run_dir / "priced.html")]) == 0
    priced = (run_dir / "priced.html").read_text()
    assert all(words in priced for words in ("at 0.25", "at 400", "PUE 1.2"))


def test_prices_that_do_nothing_are_refused(write_run: WriteRun, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = write_run()
    for option in ("--price-per-kwh", "--gco2-per-kwh", "--pue"):
        for paths in ([run_dir, run_dir], [run_dir / "profile.json"]):
            assert main(["report", *map(str, paths), option, "2"]) == 1
            assert option in capsys.readouterr().err


def test_clocks_that_did_not_hold_are_named_with_the_reason(write_run: WriteRun) -> None:
    run_dir = write_run()
    append_event(run_dir / "events.jsonl", "not_held", {"clocks_mhz": [1800, 1700]})
    [found] = [one for one in profile_sections(load_run(run_dir), {}) if one["heading"] == "The profile"]
    assert "1800, 1700" in str(found["words"])


@pytest.mark.parametrize("name", ["profile.json", "profile.csv"])
def test_a_profile_alone_has_a_page(
    name: str, profile: Profile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    (write_csv if name.endswith("csv") else write_profile)(profile, file)
    assert main(["report", str(file)]) == 0
    assert "profile.html" in capsys.readouterr().out
    page = unescape((tmp_path / "profile.html").read_text())
    assert "no errors" in page
    assert "predicted, s" not in page


def contrast(one: str, other: str) -> float:
    """The contrast of two colours. Source: WCAG 2.1, definitions of contrast ratio and relative luminance."""
    parts = np.array([[int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)] for colour in (one, other)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    low, high = sorted(linear @ [0.2126, 0.7152, 0.0722])
    return float((high + 0.05) / (low + 0.05))


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_stands_out_from_what_is_under_it(text: str, scheme: int) -> None:
    schemes = re.findall(r":root \{(.*?)\}", text, re.DOTALL)
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", schemes[scheme]))
    pairs = [(name, on) for name in ("ink", "faint", "accent", "before", "warn") for on in ("paper", "panel")]
    pairs += [(f"q{step}", f"p{step}") for step in range(10)]
    assert [pair for pair in pairs if contrast(*map(colours.__getitem__, pair)) < 4.5] == []


# The page's own script, run in a browser: figures are drawn, and what is chosen is shown everywhere.

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PROBE = """<script>
const errors = [];
addEventListener("error", (event) => errors.push(event.message));
const wait = setInterval(() => {
  if (!document.body.dataset.drawn && !errors.length) return;
  clearInterval(wait);
  const end = new KeyboardEvent("keydown", { key: "End" });
  const words = () => document.getElementById("chosen-plan").textContent;
  const clocks = () => document.querySelector("#clocks svg").innerHTML;
  const before = clocks(), found = { errors, first: words() };
  for (const id of ["frontier", "timeline", "profile", "clocks"]) {
    document.getElementById(id).focus();
    for (let n = 0; n < 2; n++) document.getElementById(id).dispatchEvent(end);
    found[id] = document.querySelector(`#${id} .tip`).textContent;
    found[`${id} marks`] = document.querySelectorAll(`#${id} svg > *`).length;
  }
  found.last = words();
  found.changed = clocks() !== before;
  found.wide = document.documentElement.scrollWidth > innerWidth;
  document.body.innerHTML = `<pre id="found"></pre>`;
  document.getElementById("found").textContent = JSON.stringify(found);
}, 20);
</script></head>"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed to run the page's script")
@pytest.mark.parametrize("width", [400, 1200])
def test_every_figure_is_drawn_and_follows_the_plan(write_run: WriteRun, tmp_path: Path, width: int) -> None:
    contents = load_run(write_run())
    page, *_ = write_report(contents, figures(contents), page=tmp_path / "page.html")
    page.write_text(page.read_text().replace("</head>", PROBE, 1))
    words = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'browser'}"]
    words += [f"--window-size={width},900", "--virtual-time-budget=20000", "--dump-dom", page.as_uri()]
    answer = subprocess.run([str(BROWSER), *words], capture_output=True, text=True, timeout=300, check=True)
    probed = re.search(r'<pre id="found">(\{.*?)</pre>', answer.stdout, re.DOTALL)
    assert probed is not None, answer.stdout[-500:]
    found = json.loads(unescape(probed[1]))
    assert found["errors"] == []
    assert not found["wide"], "the page scrolls sideways"
    assert found["first"].startswith("plan 1 of ")
    assert "job runs" in found["first"]
    assert found["last"] != found["first"]
    assert found["changed"], "the clocks are those of the plan chosen on the frontier"
    assert "MHz" in found["clocks"]
    assert "backward" in found["timeline"]
    assert "J" in found["profile"]
    assert all(found[f"{name} marks"] > 5 for name in ("frontier", "timeline", "profile", "clocks"))
