"""Build a Debian package of the node service from this checkout and this Python, without any registry.

python scripts/guardd/deb/build.py [--output FOLDER] [--version VERSION]

The package holds the commands under /opt/perseus with the few libraries that they import, the unit and the
rules. It holds neither torch nor DeepSpeed. Compiled libraries tie it to the minor release of this Python,
which stands in its dependencies. `dpkg-deb` does the packing.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
LIBRARIES = ("nvidia-ml-py",)
MODULES = ("__init__.py", "errors.py", "files.py", "device/*.py", "guard/*.py")
"""What the service and `clocks reset` import; a test runs them with nothing else."""

LAUNCHER = """#!/usr/bin/python3 -I
import os, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "lib"))
sys.dont_write_bytecode = True
from perseus_ds.guard.command import main

sys.exit(main(sys.argv[1:]))
"""


def control(version: str, size_kib: int) -> str:
    """Write what dpkg has to know."""
    major, minor = sys.version_info[:2]
    architecture = subprocess.run(
        ["dpkg", "--print-architecture"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return f"""Package: perseus-guardd
Version: {version}
Architecture: {architecture}
Maintainer: perseus_ds developers
Depends: python3 (>= {major}.{minor}), python3 (<< {major}.{minor + 1}), adduser
Section: admin
Priority: optional
Installed-Size: {size_kib}
Description: GPU clocks for perseus_ds jobs, put back when a job ends
 The privileged node service of perseus_ds. It sets clocks of GPUs for jobs
 that have no right to, and puts them back when these end.
"""


def copy_library(name: str, target: Path) -> None:
    """Copy an installed distribution, with its metadata and licence.

    Raises:
        PackageNotFoundError: it is not installed in this Python.
    """
    distribution = importlib.metadata.distribution(name)
    for file in distribution.files or ():
        source = Path(str(distribution.locate_file(file)))
        if ".." not in file.parts and "__pycache__" not in file.parts and source.is_file():
            copy(source, target / file)


def copy(source: Path, target: Path, *, mode: int = 0o644) -> None:
    """Copy one file, whatever the umask."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def stage(root: Path, version: str) -> None:
    """Lay out the package's files below ``root``."""
    library = root / "opt/perseus/lib"
    for pattern in MODULES:
        for source in sorted((ROOT / "perseus_ds").glob(pattern)):
            copy(source, library / source.relative_to(ROOT))
    for name in LIBRARIES:
        copy_library(name, library)
    launcher = root / "opt/perseus/bin/perseus-ds"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)
    copy(HERE.parent / "perseus-guardd.service", root / "lib/systemd/system/perseus-guardd.service")
    copy(HERE.parent / "guardd.toml", root / "etc/perseus/guardd.toml")
    copy(ROOT / "LICENSE", root / "usr/share/doc/perseus-guardd/copyright")
    for name in ("slurm-prolog", "slurm-epilog"):
        copy(HERE.parent / name, root / "opt/perseus/bin" / name, mode=0o755)
    for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
        folder.chmod(0o755)
    size_kib = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) >> 10
    about = root / "DEBIAN"
    about.mkdir()
    (about / "control").write_text(control(version, size_kib))
    (about / "conffiles").write_text("/etc/perseus/guardd.toml\n")
    for name in ("postinst", "prerm", "postrm"):
        copy(HERE / name, about / name, mode=0o755)


def main() -> None:
    """Build, and print the name of the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path(), help="folder of the package (default: here)")
    parser.add_argument("--version", help="default: the release of this checkout")
    options = parser.parse_args()
    version = options.version or importlib.metadata.version("perseus_ds")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        root.mkdir()
        stage(root, version)
        package = options.output / f"perseus-guardd_{version}.deb"
        subprocess.run(["dpkg-deb", "--root-owner-group", "--build", root, package], check=True)
    sys.stdout.write(f"{package}\n")


if __name__ == "__main__":
    main()
