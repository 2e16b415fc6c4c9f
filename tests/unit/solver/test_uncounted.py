"""Functions that are compiled without counting references: none makes an array or returns one."""

import ast
import subprocess
import sys
import typing
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from numba.core.errors import NumbaError
from numba.core.options import DefaultOptions

import perseus_ds
from perseus_ds.solver.compiling.compiled import allocating, compiled, inner

PACKAGE = Path(perseus_ds.__file__).parent
NUMBERS = {int, float, bool, type(None), np.uint64}


def uncounted() -> list[tuple[str, str]]:
    """Module and name of every function that does not count references."""
    return [
        (".".join(("perseus_ds", *file.relative_to(PACKAGE).with_suffix("").parts)), function.name)
        for file in PACKAGE.rglob("*.py")
        if "compiling.compiled import" in (text := file.read_text())
        for function in ast.parse(text).body
        if isinstance(function, ast.FunctionDef)
        and {"inner", "inlined"} & {getattr(one, "id", "") for one in function.decorator_list}
    ]


def holds_numbers(kind: type) -> bool:
    """Whether values of a kind hold no array: a number, or a tuple of such."""
    if issubclass(typing.get_origin(kind) or kind, tuple):
        return all(map(holds_numbers, typing.get_args(kind) or typing.get_type_hints(kind).values()))
    return kind in NUMBERS


def test_none_returns_an_array() -> None:
    found = uncounted()
    assert ("perseus_ds.solver.beam.turns", "_keep") in found
    for module, name in found:
        returned = typing.get_type_hints(getattr(import_module(module), name))["return"]
        assert holds_numbers(returned), f"{module}.{name} returns {returned}"


@inner
def first_uncounted(count: int) -> float:
    return float(np.ones(count)[0])


@allocating
def first_counted(count: int) -> float:
    return float(np.ones(count)[0])


@compiled
def asks_uncounted(values: np.ndarray) -> float:
    return first_uncounted(len(values))


@compiled
def asks_counted(values: np.ndarray) -> float:
    return first_counted(len(values))


WITHOUT = """
import numpy as np
from numba.core.options import DefaultOptions
del DefaultOptions._nrt
from perseus_ds.solver.compiling.compiled import compiled, inner

@inner
def uncounted(count: int) -> float:
    return float(np.ones(count)[0])

@compiled
def asks(values: np.ndarray) -> float:
    return uncounted(len(values))

print(asks(np.ones(3)))
"""


@pytest.mark.thorough
def test_a_numba_that_has_no_such_option_counts(tmp_path: Path) -> None:
    """The option is numba's own: a release without it gives slower kernels, and right ones."""
    assert hasattr(DefaultOptions, "_nrt"), (
        "this numba counts always: kernels are slower, look for another way"
    )
    program = tmp_path / "without.py"
    program.write_text(WITHOUT)
    found = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    assert found.stdout == "1.0\n"


def test_the_compiler_refuses_one_that_makes_an_array() -> None:
    assert asks_counted(np.ones(3)) == 1.0
    with pytest.raises(NumbaError):
        asks_uncounted(np.ones(3))
