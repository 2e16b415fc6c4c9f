"""EnvPipe: the pipeline's outer envelope at the highest clock, all else slow, and sped up until it fits.

Source: Choi, Koo, Ahn, Jeon, Kwon, "EnvPipe: Performance-preserving DNN Training Framework for Saving
Energy", USENIX ATC'23; its greedy step is three clocks of its grid and its balanced step one
(casys-kaist/EnvPipe).
Readings: 1F1B as it is (EnvPipe's own reordering of units is left out, as in the Perseus paper's
comparison); "slow" is the clock of least energy; one critical path a step; it ends when the envelope is
critical again.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from baselines.graph import critical_path, ends
from baselines.instance import Choices, Instance
from perseus_ds.schedule import Kind

_GREEDY_STEP = 3

Reconfigure = Callable[[Choices, NDArray[np.int64]], bool]
"""Speed some nodes of a path (last node first) up, in place; return whether any could be."""


def envelope(instance: Instance) -> Choices:
    """Slow everything inside the envelope down, whatever becomes of the iteration time.

    Shape: [1, nodes].
    """
    least = instance.energy_j.argmin(axis=1)
    choice: Choices = np.where(outside(instance), 0, least[instance.row])
    return choice[None, :]


def envpipe_greedy(instance: Instance) -> Choices:
    """From the end of the critical path, speed up the first unit that can be.

    Shape: [1, nodes].
    """
    return _reconfigured(instance, _greedy)


def envpipe_balanced(instance: Instance) -> Choices:
    """Along the critical path, speed up all units with its lowest clock.

    Shape: [1, nodes].
    """

    def balanced(choice: Choices, path: NDArray[np.int64]) -> bool:
        clock_mhz = instance.clock_mhz[instance.row[path], choice[path]]
        slow = path[(choice[path] > 0) & (clock_mhz == clock_mhz[choice[path] > 0].min(initial=1 << 30))]
        choice[slow] -= 1
        return len(slow) > 0

    return _reconfigured(instance, balanced)


def outside(instance: Instance) -> NDArray[np.bool_]:
    """Which nodes are the envelope: the last stage, every first forward, every last backward."""
    last_stage, last = instance.schedule.stages - 1, instance.schedule.microbatches - 1
    return np.array(
        [
            node.stage == last_stage
            or (node.kind is Kind.FORWARD and node.microbatch == 0)
            or (node.kind is Kind.BACKWARD and node.microbatch == last)
            or not node.kind.is_computation
            for node in instance.nodes
        ]
    )


def _reconfigured(instance: Instance, reconfigure: Reconfigure) -> Choices:
    choice, around = envelope(instance)[0], outside(instance)
    while True:
        path = critical_path(instance.graph, ends(instance.graph, instance.durations_s(choice)))
        if around[path].all() or not reconfigure(choice, path):
            return np.array([choice])


def _greedy(choice: Choices, path: NDArray[np.int64]) -> bool:
    for node in path:
        if choice[node] > 0:
            choice[node] = max(0, choice[node] - _GREEDY_STEP)
            return True
    return False
