"""The page's own script, run in a browser: every figure is drawn, and what is chosen is shown everywhere."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest
from cli_program import WriteRun

from perseus_ds.report import write_report
from perseus_ds.report.figures import figures
from perseus_ds.report.read import load_run

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
def test_every_figure_is_drawn_and_follows_the_chosen_plan(
    write_run: WriteRun, tmp_path: Path, width: int
) -> None:
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
