"""Builds are whole: a wheel that works by itself, and an sdist with all that is not code."""

from __future__ import annotations

import email
import json
import os
import site
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import perseus_ds

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run something without this checkout on its path, and return what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


def test_the_wheel_works_in_an_environment_of_its_own(built: Path, tmp_path: Path) -> None:
    """Installed without its dependencies, which are lent by a path file: torch is not installed twice."""
    (wheel,) = built.glob("*.whl")
    run(sys.executable, "-m", "venv", tmp_path / "own")
    python = tmp_path / "own" / "bin" / "python"
    run(python, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet", wheel)
    (packages,) = (tmp_path / "own" / "lib").glob("python*/site-packages")
    (packages / "lent.pth").write_text("\n".join(site.getsitepackages()))
    where = run(python, "-c", "import perseus_ds; print(perseus_ds.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(packages)
    version = run(tmp_path / "own" / "bin" / "perseus-ds", "--version", cwd=tmp_path)
    assert version.strip() == f"perseus-ds {perseus_ds.__version__}"
    assert '"armed": true' in run(tmp_path / "own" / "bin" / "perseus-ds", "doctor", "--json", cwd=tmp_path)


def test_the_wheel_moves_no_package_of_an_environment_that_has_them(built: Path, tmp_path: Path) -> None:
    """torch and DeepSpeed above all: pip would install the wheel alone, and needs no index to know."""
    (wheel,) = built.glob("*.whl")
    report = tmp_path / "report.json"
    options = ["--dry-run", "--no-index", "--quiet", "--report", report]
    run(sys.executable, "-m", "pip", "install", *options, wheel)
    assert {one["metadata"]["name"] for one in json.loads(report.read_text())["install"]} <= {"perseus_ds"}


def test_the_wheel_says_what_it_is(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = next(name for name in names if name.endswith("METADATA"))
        about = email.message_from_bytes(archive.read(metadata))
    assert about["Version"] == perseus_ds.__version__
    assert about["License-Expression"] == "Apache-2.0"
    assert "Typing :: Typed" in about.get_all("Classifier", [])
    assert "perseus_ds/py.typed" in names
    assert not any(name.startswith(("tests/", "scripts/")) for name in names)


def test_the_sdist_has_what_is_not_code(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    for needed in (
        "README.md",
        "CHANGELOG.md",
        "LICENSE",
        "configs/demo.json",
        "docs/architecture.md",
        "patches/README.md",
        "scripts/guardd/perseus-guardd.service",
        "scripts/demo",
        "tests/conftest.py",
    ):
        assert needed in names, needed
    assert not any(name.startswith((".venv", ".cache", "perseus_runs")) for name in names)
