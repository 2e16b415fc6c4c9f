"""Measure the prose of documentation, help texts, user lines and docstrings, also those of scripts.

Run: ``python scripts/docs/prose.py [--list] [PLACE ...]``. A test holds the figures below their bars.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LONGEST_SENTENCE = 25
LONGEST_LINE = 120
LONGEST_CELL = 12

BANNED = re.compile(
    r"\b(hears?|heard|hearing|tells?|told|telling|says?|said|saying|plays?|played|playing|speaks?|spoke|spoken"
    r"|(?:is|are|was|were) to be(?! (?:sure|safe))|to be expected|that is none|which is none"
    r"|at one stroke|in the place of|who has\b|is no more|are no more|is so no more|who is slow"
    r"|by itself and all meet|not to be seen|gives? way to|nobody who|as may well|is (?-i:none)"
    r"|above the least that any plan as fast|what we hear)\b",
    re.IGNORECASE,
)
"""Verbs that hide what a program does, and phrases that have to be decoded."""

CODE = re.compile(r"``[^`]*``|`[^`]*`")
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
END = re.compile(r"(?<=[.!?])[)\"'*]*\s+(?=[A-Z`*\"'(\[\d~])")
LIST_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s+")
ABBREVIATION = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|al)\.")


@dataclass(slots=True)
class Found:
    """What one place holds: its sentences, and the places that break a rule."""

    sentences: int = 0
    long_sentences: list[str] = field(default_factory=list)
    long_lines: list[str] = field(default_factory=list)
    long_cells: list[str] = field(default_factory=list)
    banned: list[str] = field(default_factory=list)

    def add(self, where: str, text: str) -> None:
        """Count the sentences of a paragraph."""
        plain = _plain(text)
        for sentence in filter(None, (part.strip() for part in END.split(plain))):
            self.sentences += 1
            words = len(re.findall(r"[^\W_][\w'./%-]*", sentence))
            if words > LONGEST_SENTENCE:
                self.long_sentences.append(f"{where}: {words} words: {sentence}")
        self.banned += [
            f"{where}: {hit[0]}: {plain[max(0, hit.start() - 40) : hit.end() + 30]}"
            for hit in BANNED.finditer(plain)
        ]

    def row(self, where: str, line: str) -> None:
        """Check the cells of a table's row, each sentence of a cell for itself."""
        for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")):
            words = len(_plain(cell).split())
            if words > LONGEST_CELL:
                self.long_cells.append(f"{where}: {words} words: {cell.strip()}")
            self.banned += [
                f"{where}: {hit[0]}: {cell.strip()[:90]}" for hit in BANNED.finditer(_plain(cell))
            ]

    @property
    def long_pct(self) -> float:
        """Share of sentences that are too long, in percent."""
        return 100 * len(self.long_sentences) / max(1, self.sentences)


def _plain(text: str) -> str:
    """Text as it is read: code is one word, a link its name."""
    text = LINK.sub(r"\1", CODE.sub("X", text))
    return re.sub(r"\s+", " ", ABBREVIATION.sub(r"\1", text))


def pages(root: Path = ROOT) -> list[Path]:
    """Every page of prose in the repository."""
    folders = ("docs", "scripts", "patches", ".github")
    found = [page for folder in folders for page in sorted((root / folder).rglob("*.md"))]
    return [*sorted(root.glob("*.md")), *found]


def measure_page(page: Path, root: Path = ROOT) -> Found:
    """Measure one Markdown page."""
    found = Found()
    name = str(page.relative_to(root))
    paragraph: list[str] = []
    fenced = False
    for number, line in enumerate([*page.read_text().splitlines(), ""], 1):
        where = f"{name}:{number}"
        is_fence = line.lstrip().startswith("```")
        is_table = line.lstrip().startswith("|")
        if len(line) > LONGEST_LINE and not fenced and not is_table:
            found.long_lines.append(f"{where}: {len(line)} characters")
        breaks = fenced or is_fence or is_table or not line.strip() or line.startswith(("#", "    ", "<!--"))
        if paragraph and (breaks or LIST_ITEM.match(line)):
            found.add(where, " ".join(paragraph))
            paragraph.clear()
        if is_fence:
            fenced = not fenced
        elif is_table and not fenced:
            found.row(where, line)
        elif not breaks:
            paragraph.append(LIST_ITEM.sub("", line).strip("> "))
    return found


def measure_module(file: Path, root: Path = ROOT) -> dict[str, Found]:
    """Measure a module: its docstring, the docstrings below it, and its lines for users."""
    kinds = {"module docstrings": Found(), "docstrings": Found(), "user lines": Found()}
    tree = ast.parse(file.read_text())
    docstrings: set[int] = set()
    name = str(file.relative_to(root))
    for node, constant in _docstrings(tree):
        docstrings.add(id(constant))
        kind = "module docstrings" if isinstance(node, ast.Module) else "docstrings"
        for paragraph in _paragraphs(constant.value):
            kinds[kind].add(f"{name}:{constant.lineno}", paragraph)
    for line, text in _literals(tree, docstrings):
        if len(text.split()) >= 4:  # noqa: PLR2004  # fewer words are a key or a label
            kinds["user lines"].add(f"{name}:{line}", text)
    return kinds


def _docstrings(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.Constant]]:
    """Docstrings of modules, classes and functions, and of the constants that they stand below."""
    for node in ast.walk(tree):
        for child in getattr(node, "body", []) if not isinstance(node, ast.Lambda | ast.IfExp) else []:
            value = child.value if isinstance(child, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield (node if child is node.body[0] else child), value  # type: ignore[attr-defined]


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs of a docstring; sections and tables begin one of their own."""
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\w+:)\s)", text):
        if block.strip() and not re.match(r"\s*(>>>|\.\.|=)", block):
            yield re.sub(r"^\s*(Raises|Units|Shape|Cost|Source|Args|Returns|Yields):\s*", "", block)


def _literals(tree: ast.Module, docstrings: set[int]) -> Iterable[tuple[int, str]]:
    """Literals outside of docstrings; what is put into an f-string is one word."""
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside.update(id(part) for part in node.values)
            parts = [str(p.value) if isinstance(p, ast.Constant) else "X" for p in node.values]
            yield node.lineno, "".join(parts)
        elif id(node) not in docstrings | inside and isinstance(getattr(node, "value", None), str):
            yield node.lineno, node.value  # type: ignore[attr-defined]


def measure(root: Path = ROOT) -> dict[str, Found]:
    """Measure all: pages, the package by kind of text, and docstrings of scripts."""
    total: dict[str, Found] = {"pages": Found()}
    for page in pages(root):
        _join(total["pages"], measure_page(page, root))
    for file in sorted((root / "perseus_ds").rglob("*.py")):
        for kind, found in measure_module(file, root).items():
            _join(total.setdefault(kind, Found()), found)
    for file in sorted((root / "scripts").rglob("*.py")):
        for kind, found in measure_module(file, root).items():
            if kind != "user lines":
                _join(total.setdefault("scripts", Found()), found)
    return total


def _join(total: Found, part: Found) -> None:
    total.sentences += part.sentences
    for name in ("long_sentences", "long_lines", "long_cells", "banned"):
        getattr(total, name).extend(getattr(part, name))


def main() -> None:
    """Print a table, and with ``--list`` every place that breaks a rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("places", nargs="*", help="only places that begin so, for --list")
    parser.add_argument("--list", action="store_true", help="name every place")
    options = parser.parse_args()
    print(
        f"{'':18} sentences  over {LONGEST_SENTENCE} words  lines over {LONGEST_LINE}"
        f"  cells over {LONGEST_CELL}  banned"
    )
    for kind, found in measure().items():
        share = f"{len(found.long_sentences)} ({found.long_pct:.1f} %)"
        counts = f"{len(found.long_lines):15} {len(found.long_cells):14} {len(found.banned):7}"
        print(f"{kind:18} {found.sentences:9} {share:>14} {counts}")
        if options.list:
            every = found.long_sentences + found.long_lines + found.long_cells + found.banned
            print(*(f"  {one}" for one in every if one.startswith(tuple(options.places) or "")), sep="\n")


if __name__ == "__main__":
    main()
