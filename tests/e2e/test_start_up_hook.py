"""``import torch`` arms us and costs next to nothing; nothing that goes wrong in us can break it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

WATCHED = "deepspeed.runtime.pipe.engine"


def announced(
    program: str, *, autoload: bool = True, path: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": str(int(autoload)), "OMP_NUM_THREADS": "1"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=environment,
    )


def last_line(program: str, *, autoload: bool = True) -> str:
    done = announced(program, autoload=autoload)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()[-1]


OURS = """
import sys, torch
print(sorted(name for name in sys.modules if name.split('.')[0] in ('perseus_ds', 'deepspeed')))
"""


def test_importing_torch_imports_nothing_of_us_but_the_hook() -> None:
    assert last_line(OURS) == "['perseus_ds', 'perseus_ds._autoload']"


def test_the_hook_does_not_import_numpy() -> None:
    """PyTorch imports it by itself where it is installed, so look at the hook alone."""
    program = """
import sys, perseus_ds._autoload as hook
hook.arm()
print([name for name in ("numpy", "torch", "json", "typing") if name in sys.modules])
"""
    assert last_line(program) == "['typing']"


def test_switched_off_it_is_not_there() -> None:
    assert last_line(OURS, autoload=False) == "[]"


ARMED = """
import sys
{first}
import {watched} as engine
import perseus_ds._autoload as hook
hook.arm()  # again, afterwards
built = engine.PipelineEngine.__init__
print(built.__module__, hasattr(built, "__wrapped__"), hasattr(built.__wrapped__, "__wrapped__"),
      sum(type(finder).__name__ == "_Awaiting" for finder in sys.meta_path))
"""


@pytest.mark.parametrize(
    "first",
    [
        "import torch",
        pytest.param("import deepspeed", marks=pytest.mark.slow),
        pytest.param(
            "import torch, perseus_ds._autoload as hook; hook.arm(); hook.arm()", marks=pytest.mark.slow
        ),
    ],
    ids=["torch first", "deepspeed first", "armed three times"],
)
def test_the_engine_is_watched_once_in_any_order_of_imports(first: str) -> None:
    said = last_line(ARMED.format(first=first, watched=WATCHED))
    assert said == f"{WATCHED} True False 0"


HOOKED = """
import importlib.abc, importlib.util, sys
import perseus_ds._autoload as hook
hook.ADAPTERS = {"awaited": "its_adapter"}
hook.arm()
class Tool(importlib.abc.MetaPathFinder):
    searches = False
    def find_spec(self, fullname, path, target=None):
        if self.searches or fullname != "awaited":
            return None
        self.searches = True  # as wrapt does it
        spec = importlib.util.find_spec(fullname)
        self.searches, spec.origin = False, "the tool"
        return spec
sys.meta_path.insert(1, Tool())
assert "number" in importlib.util.find_spec("awaited").loader.get_source("awaited")
import awaited
print(awaited.__spec__.origin, type(awaited.__loader__).__name__, awaited.number, len(sys.meta_path))
"""


def test_import_hooks_of_others_find_what_we_wait_for(tmp_path: Path) -> None:
    """A module that was only looked for is still waited for, and has its own loader in the end."""
    (tmp_path / "awaited.py").write_text("number = 1\n")
    (tmp_path / "its_adapter.py").write_text("def watch(module):\n    module.number += 1\n")
    plain = announced("import sys; print(len(sys.meta_path))")
    done = announced(HOOKED, path=tmp_path)
    assert done.stdout.split() == ["the", "tool", "SourceFileLoader", "2", str(int(plain.stdout) + 1)]


@pytest.mark.parametrize("where", ["import", "arm", "arrival"])
def test_an_error_of_ours_never_breaks_the_import(where: str) -> None:
    program = {
        "import": "import sys; sys.meta_path = Broken(sys.meta_path); import torch",
        "arm": "import sys, perseus_ds._autoload as hook; sys.meta_path = Broken(sys.meta_path); hook.arm()",
        "arrival": f"import sys; sys.modules['perseus_ds.adapters.deepspeed'] = None; import {WATCHED}",
    }[where]
    broken = """
class Broken(list):
    def insert(self, *args):
        raise RuntimeError("a bug of ours")
"""
    done = announced(broken + program + "; print('imported')")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "imported"
    assert "not armed" in done.stderr
