"""Run every console block of the documentation, and paste what it prints.

Run: ``python scripts/docs/console.py [PAGE ...]``. A test runs the same and compares.

A block's lines that begin with ``$`` are commands, the others are output. All blocks of a page share one
folder with the files of ``docs/examples``, there and under that name. ``perseus-ds`` runs within this
process; ``| head -N`` and ``| tail -N`` shorten.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from perseus_ds.cli import main as perseus_ds

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CUT = re.compile(r"\s*\|\s*(head|tail) -(\d+)$")
TIMING = re.compile(r"solved in \d+\.\d+ s")


def pages() -> list[Path]:
    """Return the pages that have a console block."""
    every = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in every if BLOCK.search(page.read_text())]


def pasted(page: Path) -> str:
    """Return a page's text with the output of every command as it is now."""
    with _folder():
        return BLOCK.sub(lambda block: f"```console\n{_run(block[1])}```", page.read_text())


def comparable(text: str) -> str:
    """Return a text without what no two runs have in common."""
    return TIMING.sub("solved in N s", text)


@contextlib.contextmanager
def _folder() -> Iterator[None]:
    before = Path.cwd()
    columns = os.environ.get("COLUMNS")
    with tempfile.TemporaryDirectory() as folder:
        for place in (Path(folder), Path(folder, "docs", "examples")):  # a user's own folder, the checkout
            shutil.copytree(ROOT / "docs" / "examples", place, dirs_exist_ok=True)
        os.environ["COLUMNS"] = "80"
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)
            os.environ.pop("COLUMNS")
            os.environ.update({"COLUMNS": columns} if columns else {})


def _run(block: str) -> str:
    commands = re.sub(r"\\\n\s*", "\0", block).splitlines()
    shown = []
    for command in (line for line in commands if line.startswith("$ ")):
        output = _output(command[2:].replace("\0", " "))
        shown.append(command.replace("\0", "\\\n    ") + "\n" + "".join(f"{line}\n" for line in output))
    return "".join(shown)


def _output(command: str) -> list[str]:
    cut = CUT.search(command)
    words = shlex.split(CUT.sub("", command))
    text = _called(words[1:]) if words[0].removeprefix(".venv/bin/") == "perseus-ds" else _started(words)
    lines = [line.rstrip() for line in text.rstrip("\n").splitlines()]
    if cut is None:
        return lines
    return lines[: int(cut[2])] if cut[1] == "head" else lines[-int(cut[2]) :]


def _called(arguments: list[str]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = perseus_ds(arguments)
    if code:
        raise SystemExit(f"perseus-ds {shlex.join(arguments)} ends with {code}:\n{printed.getvalue()}")
    return printed.getvalue()


def _started(words: list[str]) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Paste the output of every page, or of those that are named."""
    for page in [Path(name) for name in sys.argv[1:]] or pages():
        page.write_text(pasted(page.resolve()))


if __name__ == "__main__":
    main()
