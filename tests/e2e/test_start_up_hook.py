"""``import torch`` arms us and costs next to nothing; nothing that goes wrong in us can break it.

Where nothing asks for us an engine is what it is without us.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ranks import config

pytestmark = pytest.mark.e2e

WATCHED = "deepspeed.runtime.pipe.engine"


def announced(
    program: str, *words: str, autoload: bool = True, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a program in a Python of its own, with PyTorch's autoload on or off."""
    own = {"TORCH_DEVICE_BACKEND_AUTOLOAD": str(int(autoload)), "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={key: value for key, value in os.environ.items() if key != "PERSEUS_CONFIG"} | own,
    )


def last_line(program: str, *words: str, autoload: bool = True, **variables: str) -> str:
    done = announced(program, *words, autoload=autoload, **variables)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()[-1]


OURS = """
import sys, torch
print(sorted(name for name in sys.modules if name.split('.')[0] in ('perseus_ds', 'deepspeed')))
"""


@pytest.mark.parametrize(
    ("autoload", "ours"), [(True, "['perseus_ds', 'perseus_ds._autoload']"), (False, "[]")]
)
def test_importing_torch_imports_nothing_of_us_but_the_hook(*, autoload: bool, ours: str) -> None:
    assert last_line(OURS, autoload=autoload) == ours


def test_the_hook_does_not_import_numpy() -> None:
    """PyTorch imports it by itself where it is installed, so look at the hook alone."""
    program = """
import sys, perseus_ds._autoload as hook
hook.arm()
print([name for name in ("numpy", "torch", "json", "typing") if name in sys.modules])
"""
    assert last_line(program) == "['typing']"


ARMED = f"""
import {WATCHED} as engine
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
    assert last_line(f"import sys\n{first}{ARMED}") == f"{WATCHED} True False 0"


HOOKED = """
import importlib.abc, importlib.util, sys
import perseus_ds._autoload as hook
before = len(sys.meta_path)
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
print(awaited.__spec__.origin, type(awaited.__loader__).__name__, awaited.number, len(sys.meta_path) - before)
"""


def test_import_hooks_of_others_find_what_we_wait_for(tmp_path: Path) -> None:
    """A module that was only looked for is still waited for, and has its own loader in the end."""
    (tmp_path / "awaited.py").write_text("number = 1\n")
    (tmp_path / "its_adapter.py").write_text("def watch(module):\n    module.number += 1\n")
    assert last_line(HOOKED, PYTHONPATH=str(tmp_path)) == "the tool SourceFileLoader 2 1"


@pytest.mark.parametrize(
    "program",
    [
        "import sys; sys.meta_path = Broken(sys.meta_path); import torch",
        "import sys, perseus_ds._autoload as hook; sys.meta_path = Broken(sys.meta_path); hook.arm()",
        f"import sys; sys.modules['perseus_ds.adapters.deepspeed'] = None; import {WATCHED}",
    ],
    ids=["import", "arm", "arrival"],
)
def test_an_error_of_ours_never_breaks_the_import(program: str) -> None:
    broken = """
class Broken(list):
    def insert(self, *args):
        raise RuntimeError("a bug of ours")
"""
    done = announced(broken + program + "; print('imported')")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "imported"
    assert "not armed" in done.stderr


MEGATRON = """
import torch
from megatron.core.pipeline_parallel import get_forward_backward_func, schedules
from megatron.core.pipeline_parallel.schedules import forward_backward_no_pipelining as early
print(hasattr(early, "__perseus_wrapping__"))
"""


@pytest.mark.parametrize("asked", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_file_alone_has_megatrons_module_watched_from_its_import_on(tmp_path: Path, *, asked: bool) -> None:
    pytest.importorskip("megatron.core", reason="megatron-core is not installed")
    named = {"PERSEUS_CONFIG": str(tmp_path / "perseus.json")} if asked else {}
    assert last_line(MEGATRON, **named) == str(asked)


# Builds engines and prints what each is made of: names of the instance, and for every class the code behind
# each attribute.
PROGRAM = """
import json, sys, threading
sys.path.insert(0, sys.argv[1])
import ranks, torch, deepspeed

store = torch.distributed.HashStore()  # in memory: leaves no file
torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
deepspeed.init_distributed("gloo", auto_mpi_discovery=False, verbose=False)

def code(thing):
    found = getattr(getattr(thing, "__func__", thing), "__code__", None)
    return f"{found.co_filename}:{found.co_firstlineno}" if found else type(thing).__name__

def made_of(content):
    engine = ranks.build(content, stages=1)
    losses = ranks.losses(engine, 3)
    inits = {kind.__name__: kind.__init__ for kind in type(engine).__mro__ if kind.__name__ in sys.argv[3:]}
    return {
        "losses": losses,
        "instance": {name: code(thing) for name, thing in vars(engine).items()},
        "map": {kind.__name__: code(handler) for kind, handler in engine._INSTRUCTION_MAP.items()},
        "classes": {f"{kind.__name__}.{name}": code(thing)
                    for kind in type(engine).__mro__[:-1] for name, thing in vars(kind).items()},
        "original inits": {name: code(getattr(init, "__wrapped__", init)) for name, init in inits.items()},
        "threads": [thread.name for thread in threading.enumerate()],
        "ours": sorted(name for name in sys.modules if name.startswith("perseus_ds")),
    }

print(json.dumps([made_of(content) for content in json.loads(sys.argv[2])]))
"""
BLOCKS: list[dict[str, Any]] = [{"enabled": False, "mode": "nonsense"}, {}, {"run_dir": "x"}]
KINDS = ("PipelineEngine", "DeepSpeedEngine")


def made_of(contents: list[dict[str, Any]], *, autoload: bool) -> list[dict[str, Any]]:
    support = str(Path(__file__).parents[1] / "support")
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    return json.loads(last_line(PROGRAM, support, json.dumps(contents), *KINDS, autoload=autoload, **alone))


def test_without_an_enabled_block_nothing_of_the_engine_differs() -> None:
    """A single attribute of each class is ours: the ``__init__`` that looks for a block."""
    (untouched,) = made_of([config()], autoload=False)
    assert untouched.pop("ours") == []
    for made in made_of([config(), *(config(perseus=one) for one in BLOCKS)], autoload=True):
        ours = made.pop("ours")
        assert "perseus_ds.adapters.deepspeed" in ours, "the start-up hook was not armed: this shows nothing"
        assert "perseus_ds.runtime.session" not in ours
        for kind in KINDS:
            init = f"{kind}.__init__"
            assert made["classes"][init] != untouched["classes"][init]
            assert made["original inits"][kind] == untouched["classes"][init]
            made["classes"][init] = untouched["classes"][init]
        assert made == untouched
