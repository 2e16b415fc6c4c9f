"""Where the frameworks of other people are installed; as a program, install them there.

A folder of its own in ``.cache``, on the path of the jobs alone: all other tests keep their environment.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
ROOT = Path(__file__).parents[2]


def folder() -> Path:
    """The folder for these requirements and this Python."""
    mark = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:16]
    return ROOT / ".cache" / "foreign" / f"{mark}-{sys.implementation.cache_tag}"


def install() -> None:
    """Fetch what is not there yet, whole or not at all."""
    if folder().exists():
        return
    unfinished = folder().with_suffix(f".{os.getpid()}")
    sys.stdout.write(f"foreign: installing {REQUIREMENTS.relative_to(ROOT)} (140 MB)\n")
    sys.stdout.flush()
    try:
        tool = ["uv", "pip"] if importlib.util.find_spec("uv") else ["pip"]
        options = ["--no-deps", "--quiet", "--target", unfinished, "-r", REQUIREMENTS]
        command = [sys.executable, "-m", *tool, "install", *options]
        subprocess.run(command, check=True, env=os.environ | {"UV_CACHE_DIR": str(ROOT / ".cache/uv")})
        unfinished.rename(folder())
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


if __name__ == "__main__":
    install()
