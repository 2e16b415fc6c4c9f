"""Every console block of the documentation runs, and shows what it prints."""

import re
import shlex
from pathlib import Path

import console
import pytest

from perseus_ds.cli.main import parse

PAGES = console.pages()
ROOT = Path(__file__).parents[3]
ALL_PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(page for folder in ("docs", "scripts") for page in (ROOT / folder).rglob("*.md")),
]
COMMAND = re.compile(r"^\s*(?:\$ )?(?:\.venv/bin/)?perseus-ds (.+)$", re.MULTILINE)


@pytest.mark.thorough
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_show_what_the_commands_print(page: Path) -> None:
    now, shown = console.comparable(console.pasted(page)), console.comparable(page.read_text())
    assert now == shown, "run: python scripts/docs/console.py"


def test_the_first_pages_have_such_blocks() -> None:
    assert {"README.md", "tutorial.md", "commands.md"} <= {page.name for page in PAGES}


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_is_right_usage(page: Path) -> None:
    """Blocks that need root, a cluster or a job are not run: their options are read."""
    blocks = re.findall(r"^```([^\n]*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    for block in (block for language, block in blocks if language in {"", "bash", "console"}):
        known = block.replace("user=alice", "user=root")  # a user that this machine has
        for command in COMMAND.findall(re.sub(r"\\\n\s*", " ", known)):
            words = shlex.split(re.split(r"\s(?:\||&|&&|>)(?:\s|$)", command)[0], comments=True)
            parse(words)
