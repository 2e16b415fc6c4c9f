from __future__ import annotations

import subprocess
import sys

import pytest

USES_A_KERNEL = """
import sys
from perseus_ds.own_process import OwnProcess, load_numba
{first}
load_numba()
import numba.np.arraymath as numba_arrays
print("scipy.linalg" in sys.modules, "numpy.f2py" in sys.modules, numba_arrays._HAVE_BLAS)
import scipy.linalg.cython_blas
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("first", "found"),
    [("OwnProcess.declare()", "False False False"), ("", "True True True")],
    ids=["our own program", "somebody else's process"],
)
def test_scipy_comes_with_the_compiler_only_in_somebody_elses_process(first: str, found: str) -> None:
    code = USES_A_KERNEL.format(first=first)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == found


LOOKS = """
import gc
from perseus_ds.own_process import OwnProcess, load_numba
{first}
load_numba()
print(sum(each["collections"] for each in gc.get_stats()), gc.isenabled())
"""


@pytest.mark.thorough
def test_a_program_of_ours_seldom_looks_for_garbage_and_somebody_elses_as_ever() -> None:
    ours, other = (
        subprocess.run(
            [sys.executable, "-c", LOOKS.format(first=first)], capture_output=True, text=True, check=True
        ).stdout.split()
        for first in ("OwnProcess.declare()", "")
    )
    assert ours[1] == other[1] == "True"
    assert 5 * int(ours[0]) < int(other[0])
