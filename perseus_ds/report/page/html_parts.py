"""The pieces that a page is made of; every text from outside is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def card(kind: str, value: str, text: str) -> str:
    """Return one figure in large print; ``kind`` is measured or predicted."""
    return f'<div class="card {kind}"><b>{escape(value)}</b>{escape(text)}</div>'


def section(heading: str, body: str) -> str:
    """Return a part of the page; ``body`` is HTML already."""
    return f"<section>\n<h2>{escape(heading)}</h2>\n{body}\n</section>"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, numbers_from: int = 99) -> str:
    """Return a table; columns from ``numbers_from`` on are flush right."""

    def cells(tag: str, values: Sequence[str]) -> str:
        marks = [' class="n"' if column >= numbers_from else "" for column in range(len(values))]
        return "".join(f"<{tag}{mark}>{escape(v)}</{tag}>" for mark, v in zip(marks, values, strict=True))

    head = f"<tr>{cells('th', header)}</tr>" if any(header) else ""
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table>{head}{body}</table>"
