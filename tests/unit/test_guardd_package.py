"""The node service as a Debian package: built here, laid out below another root, upgraded, removed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BUILD = Path(__file__).parents[2] / "scripts" / "guardd" / "deb" / "build.py"
RULES = "etc/perseus/guardd.toml"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed (Debian: dpkg)"),
]


def built(folder: Path, version: str) -> Path:
    words = [sys.executable, BUILD, "--output", folder, "--version", version]
    told = subprocess.run(words, capture_output=True, text=True, check=True)
    return Path(told.stdout.splitlines()[-1])


def dpkg(root: Path, *words: object) -> None:
    forced = "--force-script-chrootless,not-root,depends,bad-path,confold"
    command = ["dpkg", f"--root={root}", forced, f"--log={root}/log", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def call(root: Path, *words: str) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of a call of what is installed."""
    command = ["/usr/bin/python3", "-I", str(root / "opt/perseus/bin/perseus-ds"), *words]
    return command, {"PATH": "/usr/bin:/bin", "PERSEUS_GUARD_DIR": str(root / "guard")}


def served(root: Path) -> str:
    command, environment = call(root, "guardd", "--socket", str(root / "guardd.sock"), "--allow", "gpus=own")
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as service:
        line = service.stderr.readline()
        service.terminate()
        assert service.wait(60) == 0
    return line


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name in ("info", "updates"):
        (root / "var/lib/dpkg" / name).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    return root


def perseus(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command, environment = call(root, *words)
    return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False)


def test_it_is_installed_upgraded_and_removed(root: Path, tmp_path: Path) -> None:
    first, second = built(tmp_path, "0.1"), built(tmp_path, "0.2")
    dpkg(root, "--install", first)
    assert (root / "lib/systemd/system/perseus-guardd.service").is_file()
    assert os.access(root / "opt/perseus/bin/slurm-epilog", os.X_OK)
    if f"{sys.version_info[0]}.{sys.version_info[1]}" in _system_python():
        shown = perseus(root, "guardd", "--help")
        assert (shown.returncode, shown.stderr) == (0, "")
        assert "node service" in shown.stdout
        assert perseus(root, "clocks", "reset").returncode == 0, "no GPU, no journal"
        assert "listening on" in served(root)

    rules = root / RULES
    rules.write_text('allow = ["user=alice gpus=own"]\n')
    dpkg(root, "--install", second)
    assert "alice" in rules.read_text(), "an operator's rules outlive an upgrade"
    dpkg(root, "--remove", "perseus-guardd")
    assert rules.is_file()
    assert not (root / "opt").exists()
    assert not (root / "lib").exists()
    dpkg(root, "--purge", "perseus-guardd")
    assert not (root / "etc/perseus").exists()


def _system_python() -> str:
    if not Path("/usr/bin/python3").exists():
        return ""
    told = subprocess.run(["/usr/bin/python3", "--version"], capture_output=True, text=True, check=True)
    return told.stdout
