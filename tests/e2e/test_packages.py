"""Installations by pip: our wheel, whole and by itself, and an adapter that another package brings."""

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
from jobs import events

import perseus_ds

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PIP = (sys.executable, "-m", "pip", "install", "--no-index", "--quiet")


def run(*command: str | Path, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run something without this checkout on its path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PERSEUS_"))}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=kept | variables)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


@pytest.fixture
def wheel(built: Path) -> Path:
    (wheel,) = built.glob("*.whl")
    return wheel


def test_the_wheel_works_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    """Installed without its dependencies, which are lent by a path file: torch is not installed twice."""
    run(sys.executable, "-m", "venv", tmp_path / "own")
    programs = tmp_path / "own" / "bin"
    run(programs / "python", *PIP[1:], "--no-deps", wheel)
    (packages,) = (tmp_path / "own" / "lib").glob("python*/site-packages")
    (packages / "lent.pth").write_text("\n".join(site.getsitepackages()))
    found = run(programs / "python", "-c", "import perseus_ds; print(perseus_ds.__file__)", cwd=tmp_path)
    assert Path(found.stdout.strip()).is_relative_to(packages)
    version = run(programs / "perseus-ds", "--version", cwd=tmp_path)
    assert version.stdout.strip() == f"perseus-ds {perseus_ds.__version__}"
    assert '"armed": true' in run(programs / "perseus-ds", "doctor", "--json", cwd=tmp_path).stdout


def test_the_wheel_moves_no_package_of_an_environment_that_has_them(wheel: Path, tmp_path: Path) -> None:
    """torch and DeepSpeed above all: pip would install the wheel alone, and needs no index to know."""
    report = tmp_path / "report.json"
    run(*PIP, "--dry-run", "--report", report, wheel)
    assert {one["metadata"]["name"] for one in json.loads(report.read_text())["install"]} <= {"perseus_ds"}


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
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
    needed = {"README.md", "CHANGELOG.md", "configs/demo.json", "docs/architecture.md", "scripts/demo"}
    needed |= {"LICENSE", "patches/README.md", "scripts/guardd/perseus-guardd.service", "tests/conftest.py"}
    assert needed - names == set()
    assert not any(name.startswith((".venv", ".cache", "perseus_runs")) for name in names)


# A package of somebody else's brings an adapter: jobs of its framework are served.

# An ordinary script of that framework's user: nothing of us in it but, where asked for, a call of attach.
SCRIPT = """
import sys, torch
torch.distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
import plodder
trainer = plodder.Trainer(4)
if len(sys.argv) > 2:
    import perseus_ds
    perseus_ds.attach(trainer, config={"run_dir": sys.argv[2], "device": "simulated", "mode": "observe"})
print("LOSSES", [trainer.step() for _ in range(5)])
"""


@pytest.fixture(scope="module")
def plodder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("site")
    package = Path(__file__).parent / "outside_adapter"
    run(*PIP, "--no-deps", "--no-build-isolation", "--target", site, package)
    return site


def trained(site: Path, store: Path, *words: str, **variables: str) -> str:
    variables |= {"PYTHONPATH": str(site), "TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}
    done = run(sys.executable, "-W", "ignore", "-c", SCRIPT, store, *words, **variables)
    return done.stdout + done.stderr


def losses(output: str) -> str:
    return next(line for line in output.splitlines() if line.startswith("LOSSES"))


@pytest.fixture(scope="module")
def plain(plodder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the output of the same script where nothing switches us on, and nothing of ours is there."""
    output = trained(plodder, tmp_path_factory.mktemp("plain") / "store")
    assert "perseus" not in output
    return output


@pytest.mark.parametrize("by", ["a file", "attach in code"])
def test_an_adapter_of_another_package_is_found(plodder: Path, plain: str, tmp_path: Path, by: str) -> None:
    store, run_dir, file = (tmp_path / name for name in ("store", "run", "perseus.json"))
    file.write_text(json.dumps({"run_dir": str(run_dir), "device": "simulated", "mode": "observe"}))
    if by == "a file":
        output = trained(plodder, store, PERSEUS_CONFIG=str(file))
    else:
        output = trained(plodder, store, str(run_dir))
    attached = events(run_dir)[0]
    assert attached["event"] == "attached"
    assert attached["fingerprint"]["plodder"] == "1.0"
    assert losses(output) == losses(plain)
