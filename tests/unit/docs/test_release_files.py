"""Citation, hosted workflow and issue templates are what their readers expect.

The schemas themselves were tried once by ``cffconvert --validate`` and by ``check-jsonschema
--builtin-schema vendor.github-workflows``; no test fetches them.
"""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # no stubs
from packaging.specifiers import SpecifierSet

import perseus_ds

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()


def loaded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / name).read_text())
    return found


def test_the_citation_is_of_this_release_and_of_the_paper_that_readme_links() -> None:
    """The keys that version 1.2.0 of the format requires, and the paper."""
    found = loaded("CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(found)
    assert found["version"] == perseus_ds.__version__
    assert f"## [{found['version']}] - {found['date-released']}" in (ROOT / "CHANGELOG.md").read_text()
    (paper,) = found["references"]
    assert {"type", "title", "authors", "year"} <= set(paper)
    assert f"({paper['url']})" in README
    assert "](CITATION.cff)" in README


def test_the_hosted_workflow_runs_what_the_checkout_has() -> None:
    (job,) = loaded(".github/workflows/ci.yml")["jobs"].values()
    scripts = [ROOT / step["run"] for step in job["steps"] if "run" in step]
    pythons = [
        step["with"]["python-version"] for step in job["steps"] if "python-version" in step.get("with", {})
    ]
    assert scripts
    assert all(os.access(script, os.X_OK) for script in scripts)
    required = re.search(r'requires-python = "([^"]+)"', (ROOT / "pyproject.toml").read_text())
    assert required is not None
    assert [one for one in pythons if one in SpecifierSet(required[1])] == pythons != []


def test_the_site_leads_to_every_page_but_decisions() -> None:
    names = (ROOT / "scripts/docs/mkdocs.yml").read_text()
    leads_to = set(re.findall(r"^ +- [^:]+: (\S+)$", names, re.MULTILINE))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert {page for page in pages if not page.startswith("adr/")} == leads_to


@pytest.mark.parametrize(
    "file", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.md")), ids=lambda file: file.stem
)
def test_an_issue_template_has_a_name_and_states_what_it_is_for(file: Path) -> None:
    _, head, body = file.read_text().split("---\n", 2)
    assert set(yaml.safe_load(head)) >= {"name", "about"}
    for command in re.findall(r"`(perseus-ds [a-z-]+)", body):
        assert command in (ROOT / "docs/commands.md").read_text()
