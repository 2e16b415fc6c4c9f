"""The template with what it is given: texts escaped, columns of numbers packed, style, script."""

from __future__ import annotations

import base64
import json
import zlib
from functools import cache
from importlib.resources import files

import numpy as np
from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup
from numpy.typing import ArrayLike

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
_TYPES = {"u1": np.uint8, "u2": np.uint16, "u4": np.uint32, "f4": np.float32}


@cache
def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


@cache
def _template() -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_file("page.html.j2"))


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


def packed(values: ArrayLike, kind: str) -> dict[str, str]:
    """Pack a column, or a table row by row, as little-endian numbers of ``kind`` (u1, u2, u4 or f4).

    They are compressed, in base64; the page's own script unpacks them.
    """
    column = np.ascontiguousarray(np.asarray(values), dtype=np.dtype(_TYPES[kind]).newbyteorder("<"))
    return {"as": kind, "packed": base64.b64encode(zlib.compress(column.tobytes(), 9)).decode()}


def as_script(content: object) -> str:
    """Write JSON that may stand inside a script element: nothing in it ends the element."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def rounded(values: ArrayLike, digits: int = 7) -> list[float]:
    """Numbers as short as a reader needs them."""
    return [float(f"{value:.{digits}g}") for value in np.asarray(values, np.float64).ravel().tolist()]
