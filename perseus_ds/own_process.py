"""What need not be done in a process that is ours alone: the compiler's BLAS, most searches for garbage.

numba asks for scipy's BLAS as it loads, and with it come ``scipy.linalg`` and ``numpy.f2py``. That takes a
third of a second, and no kernel here uses it. In a process of somebody else numba is left whole.

Python looks for garbage with every 700 new objects. Imports make many that stay, and a short program spends
up to a tenth of its time on looking.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from typing import ClassVar

_BLAS = "scipy.linalg.cython_blas"
_OBJECTS = 20_000
"""New objects, some megabytes, after which a process of ours looks for garbage."""


class OwnProcess:
    """Whether this process runs nothing but this package: its programs declare it as they start."""

    declared: ClassVar[bool] = False

    @classmethod
    def declare(cls) -> None:
        """Mark the process as ours alone, before anything is compiled; look for garbage less often."""
        cls.declared = True
        gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])


def load_numba() -> None:
    """Import numba; in our own process as if scipy had no BLAS, which numba allows for."""
    hidden = OwnProcess.declared and _BLAS not in sys.modules
    if hidden:
        sys.modules[_BLAS] = None  # type: ignore[assignment]  # documented: importing it raises ImportError
    try:
        import_module("numba.np.arraymath")
    finally:
        if hidden:
            del sys.modules[_BLAS]
