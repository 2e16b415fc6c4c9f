"""Nothing of us is left where we were not asked for, or were asked to leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ranks import config

pytestmark = pytest.mark.e2e

# Builds engines in a process of its own and prints what each is made of: names of the instance, and for
# every class the code behind each attribute.
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

print("MADE OF " + json.dumps([made_of(content) for content in json.loads(sys.argv[2])]))
"""
BLOCKS: list[dict[str, Any]] = [{"enabled": False, "mode": "nonsense"}, {}, {"run_dir": "x"}]
ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "OMP_NUM_THREADS": "1"}
WATCHED = ("PipelineEngine", "DeepSpeedEngine")


def made_of(contents: list[dict[str, Any]], *, autoload: bool) -> list[dict[str, Any]]:
    """Classes of engines, with PyTorch's autoload on or off."""
    support = str(Path(__file__).parents[2] / "support")
    announced = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, support, json.dumps(contents), *WATCHED],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | ALONE | {"TORCH_DEVICE_BACKEND_AUTOLOAD": str(int(autoload))},
    )
    assert announced.returncode == 0, announced.stderr[-2000:]
    line = next(line for line in announced.stdout.splitlines() if line.startswith("MADE OF "))
    found: list[dict[str, Any]] = json.loads(line.removeprefix("MADE OF "))
    return found


def test_without_an_enabled_block_nothing_of_the_engine_differs() -> None:
    """A single attribute of each class is ours: the ``__init__`` that looks for a block."""
    (untouched,) = made_of([config()], autoload=False)
    assert untouched.pop("ours") == []
    for made in made_of([config(), *(config(perseus=one) for one in BLOCKS)], autoload=True):
        ours = made.pop("ours")
        assert "perseus_ds.adapters.deepspeed" in ours, "the start-up hook was not armed: this shows nothing"
        assert "perseus_ds.runtime.session" not in ours
        for kind in WATCHED:
            init = f"{kind}.__init__"
            assert made["classes"][init] != untouched["classes"][init]
            assert made["original inits"][kind] == untouched["classes"][init]
            made["classes"][init] = untouched["classes"][init]
        assert made == untouched
