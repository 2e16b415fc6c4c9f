"""The template with what it is given: every text escaped, style and script from files beside it."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from perseus_ds.report.page.packing import as_script


@cache
def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


@cache
def _template() -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_file("page.html.j2"))


_NOTHING: dict[str, object] = {
    "simulated": False,
    "job": "",
    "head": [],
    "cards": [],
    "sentences": [],
    "notes": [],
    "hint": "",
    "sections": [],
    "details": [],
}


def render_page(*, title: str, data: object, **parts: object) -> str:
    """Return one self-contained page; ``data`` is what its script draws."""
    own = {"style": Markup(_file("report.css")), "script": Markup(_file("report.js"))}  # noqa: S704  # ours
    own["data"] = Markup(as_script(data))  # noqa: S704  # nothing in it ends the element
    return _template().render(title=title, **_NOTHING | parts | own)


def section(heading: str, **parts: object) -> dict[str, object]:
    """Return a part of the page: words, bars, figures, a table (``header``, ``rows``), a link."""
    blank = dict.fromkeys(("words", "live", "bars", "figures", "header", "rows", "link", "half"))
    return {"heading": heading, "numbers": 99, **blank, **parts}


def figure(name: str, caption: str, *, alt: str, legend: object = (), hint: str = "") -> dict[str, object]:
    """Return the frame of a figure that the script draws."""
    return {"id": name, "caption": caption, "alt": alt, "legend": legend, "hint": hint}
