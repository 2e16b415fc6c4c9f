"""The documentation: it builds without a broken link, and what it shows works as it stands there."""

import json
import pkgutil
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import console
import pytest

from perseus_ds.cli.main import parse as parse_command
from perseus_ds.config.load import parse
from perseus_ds.runtime.metrics import Metric

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = sorted(path for folder in ("", "reference") for path in (DOCS / folder).glob("*.md"))

WRITTEN = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(path for folder in (DOCS, ROOT / "scripts", ROOT / "patches") for path in sorted(folder.rglob("*.md"))),
]
PROMISES = re.findall(
    r"^\| (`.+`) \| (public|provisional) \|$", (DOCS / "reference" / "python.md").read_text(), re.MULTILINE
)
OUTPUT = "perseus_runs"
"""Where a job without ``run_dir`` writes: pages name files in it that are there after a run only."""
ROOMS = [
    path.name
    for root in (ROOT, ROOT / "perseus_ds")
    for path in root.iterdir()
    if path.is_dir() and path.name[0] != "." and path.name != OUTPUT
]


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_and_files_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text()
    names = re.findall(r"`(perseus_ds(?:\.\w+)+)(?:\([^`]*\))?`", text)
    paths = re.findall(rf"`((?:{'|'.join(ROOMS)})/[\w./-]*)`", text)
    gone = [path for path in paths if not any((root / path).exists() for root in (ROOT, ROOT / "perseus_ds"))]
    assert gone + [name for name in names if not _resolves(name)] == []


def _resolves(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


@pytest.mark.thorough
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    if None in map(find_spec, ("mkdocs", "material", "mkdocstrings")):
        pytest.skip("mkdocs-material and mkdocstrings are not installed: pip install .[docs]")
    site = ["--strict", "-f", "scripts/docs/mkdocs.yml", "-d", tmp_path / "site"]
    command = [sys.executable, "-m", "mkdocs", "build", *site]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert "counter" in (tmp_path / "site" / "measuring" / "index.html").read_text()


def test_the_tutorial_shows_the_profile_that_it_uses_and_blocks_in_json_are_accepted() -> None:
    first = (DOCS / "examples" / "profile.csv").read_text().splitlines()[:2]
    assert "\n".join(first) in (DOCS / "tutorial.md").read_text()
    blocks = [b for page in PAGES for b in re.findall(r"```json\n(.*?)```", page.read_text(), re.DOTALL)]
    perseus = [json.loads(f"{{{block}}}")["perseus"] for block in blocks if block.startswith('"perseus"')]
    assert len(perseus) >= 2
    for block in perseus:
        assert parse(block, {}).enabled


@pytest.mark.thorough
def test_examples_in_python_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "profile.csv").write_bytes((DOCS / "examples" / "profile.csv").read_bytes())
    monkeypatch.chdir(tmp_path)
    example = re.compile(r"```\{\.python \.run\}\n(.*?)```", re.DOTALL)
    blocks = [block for page in PAGES for block in example.findall(page.read_text())]
    assert blocks
    for block in blocks:
        exec(compile(block, "example", "exec"), {})
    assert (tmp_path / "frontier.json").exists()


CONFIGS = sorted((ROOT / "configs").rglob("*.json"))


@pytest.mark.parametrize("file", [*CONFIGS, ROOT / "README.md", *PAGES], ids=lambda file: file.name)
def test_no_json_of_ours_holds_the_word_that_ends_jobs_of_hugging_face(file: Path) -> None:
    assert not re.search(r"[\"']auto[\"']\s*[,}/\n]", _json_of(file))


def _json_of(file: Path) -> str:
    """A file of JSON, or what a page shows of it."""
    text = file.read_text()
    return "".join(re.findall(r"```json\n(.*?)```", text, re.DOTALL)) if file.suffix == ".md" else text


def test_promises_are_of_names_that_their_package_exports_and_the_api_page_shows() -> None:
    page = (DOCS / "reference" / "api.md").read_text()
    names = [(name, kind) for cell, kind in PROMISES for name in re.findall(r"`([\w.]+)`", cell)]
    assert len(names) >= 15
    for name, kind in names:
        package, _, own = name.rpartition(".")
        assert pkgutil.resolve_name(name).__doc__, f"{name} has no docstring"
        if kind == "public":
            section = page.split(f"::: {package}\n")[1].split(":::")[0]
            assert re.search(rf"\b{own}\b", section), f"{name} is not on the API page"
            exported = getattr(pkgutil.resolve_name(package), "__all__", [own])
            assert own in exported, f"{name} is not exported"


# The Grafana board that ships: each query finds what a job exposes.

MONITORING = Path(__file__).parents[3] / "configs" / "monitoring"
BOARD: dict[str, Any] = json.loads((MONITORING / "grafana.json").read_text())
QUERIES = [(panel["title"], target["expr"]) for panel in BOARD["panels"] for target in panel["targets"]]


def test_every_query_asks_for_metrics_that_there_are() -> None:
    known = {metric.title for metric in Metric}
    asked = {name for _, query in QUERIES for name in re.findall(r"perseus_\w+", query)}
    assert asked <= known
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


# Every console block of the documentation runs, and shows what it prints.

SHOWN = console.pages()
COMMAND = re.compile(r"^\s*(?:\$ )?(?:\.venv/bin/)?perseus-ds (.+)$", re.MULTILINE)


@pytest.mark.thorough
@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.name)
def test_blocks_show_what_the_commands_print(page: Path) -> None:
    now, shown = console.comparable(console.pasted(page)), console.comparable(page.read_text())
    assert now == shown, "run: python scripts/docs/console.py"


def test_the_first_pages_have_such_blocks() -> None:
    assert {"README.md", "tutorial.md", "commands.md"} <= {page.name for page in SHOWN}


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_is_right_usage(page: Path) -> None:
    """Blocks that need root, a cluster or a job are not run: their options are read."""
    blocks = re.findall(r"^```([^\n]*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    for block in (block for language, block in blocks if language in {"", "bash", "console"}):
        known = block.replace("user=alice", "user=root")  # a user that this machine has
        for command in COMMAND.findall(re.sub(r"\\\n\s*", " ", known)):
            words = shlex.split(re.split(r"\s(?:\||&|&&|>)(?:\s|$)", command)[0], comments=True)
            parse_command(words)
