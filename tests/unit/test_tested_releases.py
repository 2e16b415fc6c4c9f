"""What is said to be tested: what is installed here is, pages name it, and nothing newer slips in unseen."""

import subprocess
from importlib.metadata import requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from perseus_ds.adapters.deepspeed_engine.facts import TESTED_DEEPSPEED
from perseus_ds.adapters.megatron.seam import TESTED_MEGATRON
from perseus_ds.adapters.pipelining.seam import TESTED_TORCH

ROOT = Path(__file__).parents[2]
TESTED = {"deepspeed": TESTED_DEEPSPEED, "megatron-core": TESTED_MEGATRON, "torch": TESTED_TORCH}
FRAMEWORKS = ("accelerate", "transformers", "torchtitan")
FOREIGN = ROOT / "tests" / "foreign" / "requirements.txt"


@pytest.mark.parametrize("package", TESTED)
def test_the_installed_release_is_none_beyond_those_tested(package: str) -> None:
    installed, newest = Version(version(package)), max(map(Version, TESTED[package]))
    assert Version(installed.base_version) <= newest, (
        f"{package} {installed} is newer than {newest}: run scripts/versions with it and name it as tested"
    )


@pytest.mark.parametrize(
    ("framework", "package"), [("deepspeed", "deepspeed"), ("megatron", "megatron-core")]
)
def test_the_releases_that_are_run_are_those_named(framework: str, package: str) -> None:
    command = [ROOT / "scripts" / "versions", "--tested", framework]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert tuple(listed.stdout.split()) == TESTED[package]


def test_every_release_that_is_named_as_tested_stands_on_the_page_of_installing() -> None:
    page = (ROOT / "docs" / "howto" / "install.md").read_text()
    lines = [line for line in FOREIGN.read_text().splitlines() if line.startswith(FRAMEWORKS)]
    pins = [Requirement(line) for line in lines]
    assert len(pins) == len(FRAMEWORKS)
    named = {f"{pin.name} {str(pin.specifier).removeprefix('==')}" for pin in pins}
    assert all(one in page for one in named), named
    for releases in TESTED.values():
        assert ", ".join(releases) in page


def test_the_page_names_every_package_that_is_needed_beside_torch_and_deepspeed() -> None:
    page = (ROOT / "docs" / "howto" / "install.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith("pip install -c keep.txt hjson")]
    wanted = {Requirement(one).name for one in requires("perseus_ds") or () if "extra ==" not in one}
    assert set(line.split()[4:]) == wanted - {"torch", "deepspeed"}


def test_what_pip_accepts_begins_where_tests_do() -> None:
    (wanted,) = (
        Requirement(line.split('"')[1])
        for line in (ROOT / "pyproject.toml").read_text().splitlines()
        if line.strip().startswith('"deepspeed>')
    )
    assert wanted.specifier.contains(TESTED_DEEPSPEED[0])
    assert min(map(Version, TESTED_DEEPSPEED)) == Version(str(wanted.specifier).removeprefix(">="))
