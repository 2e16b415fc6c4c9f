"""The environment of another Python that runs a module of ours: a guard, a planner, a reader of energy."""

from __future__ import annotations

import os
import site
from pathlib import Path


def own_environment() -> dict[str, str]:
    """Return this process's environment with a ``PYTHONPATH`` by which another Python finds this package.

    A job may have it beside its script, or have put its folder on ``sys.path`` itself.
    """
    paths = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    root = str(Path(__file__).parents[1])
    if root not in {*site.getsitepackages(), site.getusersitepackages()}:
        # a site's folder would come before the standard library, whose old backports it may hold
        paths.insert(0, root)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths))}
