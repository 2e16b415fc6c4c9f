"""A copy of the checkout where files may be changed; the checkout itself is only read."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


@contextmanager
def workplace() -> Iterator[Path]:
    """Work in a fresh copy of all that git knows and does not ignore; it is gone afterwards."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="perseus-mutation-") as folder:
        copy = Path(folder) / "checkout"
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        told = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True)
        for name in filter(None, told.stdout.split("\0")):
            if (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name)
        os.chdir(copy)
        try:
            yield copy
        finally:
            os.chdir(here)


@contextmanager
def surroundings(copy: Path, *, compiles: bool) -> Iterator[Mapping[str, str]]:
    """Let tests find the copy, and nothing that an earlier mutant left: examples, machine code.

    The compiler's cache knows a kernel by the file it stands in, not by what it calls. So a change in another
    file would not be seen. Where kernels are changed every mutant compiles them anew.
    """
    with tempfile.TemporaryDirectory(prefix="perseus-mutant-", ignore_cleanup_errors=True) as own:
        said = {
            "PYTHONPATH": str(copy),
            "HYPOTHESIS_STORAGE_DIRECTORY": f"{own}/hypothesis",
            "PERSEUS_SHARED_DATA": os.environ.get(
                "PERSEUS_SHARED_DATA", str(ROOT.parent / "shared" / "data")
            ),
            "OMP_NUM_THREADS": "1",
            "DS_ACCELERATOR": "cpu",
            "TMPDIR": own,
        }
        yield said | ({"NUMBA_CACHE_DIR": f"{own}/numba"} if compiles else {})
