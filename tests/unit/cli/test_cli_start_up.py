"""What a start of the program loads."""

import json
import subprocess
import sys

import pytest

HEAVY = {"torch", "deepspeed", "numba", "scipy", "matplotlib", "omegaconf", "rich", "networkx"}
PROGRAM = """
import contextlib, io, json, sys
from perseus_ds.cli import main
from perseus_ds.cli.main import COMMANDS
loaded = {}
for words in [["--help"], *([command, "--help"] for command in sorted(COMMANDS))]:
    before = set(sys.modules)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main(words)
    loaded[" ".join(words)] = sorted(set(sys.modules) - before)
print(json.dumps(loaded))
"""


@pytest.mark.thorough
def test_help_loads_no_heavy_library_and_the_list_of_commands_nothing_but_python() -> None:
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120
    )
    loaded: dict[str, list[str]] = json.loads(told.stdout)
    heavy = {words: sorted(HEAVY.intersection(modules)) for words, modules in loaded.items()}
    assert heavy.pop("kernels --help") in ([], ["scipy"])  # it chooses by HiGHS
    assert not any(heavy.values()), heavy
    ours = ("perseus_ds.plan", "perseus_ds.solver", "perseus_ds.report")
    assert not [one for one in loaded["doctor --help"] if one.startswith(ours)]
    assert not {"numpy", "pydantic"}.intersection(loaded["--help"])
    assert "perseus_ds.simulation.emulator" not in loaded["plan --help"]
    assert any("numpy" in modules for modules in loaded.values())  # the list can show what is loaded
    assert len(loaded) > 10
