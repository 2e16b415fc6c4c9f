"""What the compiled kernel reads and writes: plain arrays, grouped by what they describe."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

WORKING, BUBBLE, BARRIER, PEERS = range(4)
LOST = -1
CAUSES = ("working", "waiting for other stages", "waiting for other pipelines", "waiting for tensor peers")
"""What a GPU's energy goes into."""
PENDING = 8
"""Most changes of one GPU under way at the end of an iteration."""


class Program(NamedTuple):
    """One pipeline's iteration up to where it meets the others: which rank runs each node, and what follows.

    ``row`` is -1 for what no clock changes, which takes ``fixed_s``; ``crosses`` marks data that travels
    between ranks.

    Shape: ``rank``, ``row``, ``fixed_s``, ``waits_for`` [nodes]; ``first`` [nodes + 1] bounds each node's
    part of ``after``, ``delay_s``, ``crosses`` [edges].
    """

    rank: Ints
    row: Ints
    fixed_s: Floats
    waits_for: Ints
    first: Ints
    after: Ints
    delay_s: Floats
    crosses: NDArray[np.bool_]


class Tables(NamedTuple):
    """How long work takes and what it draws, at every clock of the grid, ascending.

    Shape: ``clock_mhz``, ``waiting_w`` [clocks]; ``time_s``, ``power_w`` [rows, clocks].
    """

    clock_mhz: Ints
    waiting_w: Floats
    time_s: Floats
    power_w: Floats


class Change(NamedTuple):
    """The model of a change of clock, as `perseus_ds.device.ClockChange` has it."""

    call_s: float
    settle_up_s: float
    settle_down_s: float
    queue_s: float
    stall_s: float


class PlannedRequests(NamedTuple):
    """Which clock each rank asks for, and when, in every plan that is run.

    ``offset_s`` counts from the node's start; infinite is at its end, negative that long after
    it. Clocks are places in the grid.
    ``opening`` is asked for as an iteration begins; what a rank asks for some time after that stands
    behind all nodes.

    Shape: ``first`` [plans, nodes + ranks + 1] bounds each part of ``offset_s``, ``clock`` [requests];
    ``opening`` [plans, ranks].
    """

    first: Ints
    offset_s: Floats
    clock: Ints
    opening: Ints


class Gpus(NamedTuple):
    """The state of every GPU, and what it has used.

    ``clock`` is in force, ``wanted`` was asked for last. ``row`` is the work at hand (-1: waiting, for
    ``cause``, LOST: using nothing), of which ``left`` remains until ``done_s`` as things stand. ``since_s``
    is up to when energy is booked; no work is done before ``paused_s``. ``free_s`` and ``force_s`` are the
    queue's.

    Shape: [gpus]; ``pending_s``, ``pending`` [gpus, PENDING]; ``energy_j`` [gpus, causes]; ``driver_s``
    [nodes].
    """

    clock: Ints
    wanted: Ints
    row: Ints
    cause: Ints
    left: Floats
    since_s: Floats
    done_s: Floats
    paused_s: Floats
    free_s: Floats
    force_s: Floats
    pending_s: Floats
    pending: Ints
    energy_j: Floats
    changes: Ints
    driver_s: Floats


class EmulatedIteration(NamedTuple):
    """What one iteration is run with.

    ``plan`` is a place in ``PlannedRequests``. ``factor`` multiplies durations, ``slow`` those of one GPU.
    ``cap`` is the highest place in the grid that a GPU reaches. ``link_s`` delays what a rank sends,
    ``input_s`` the first instruction; a rank that is not ``alive`` takes no part. Results: when each rank has
    come to where it meets the other pipelines, and when each node began and ended. Also whether some GPU was
    held below its clock.

    Shape: ``plan``, ``alive``, ``input_s``, ``capped`` [pipelines]; ``factor``, ``begun_s``, ``ended_s``
    [pipelines, nodes]; ``slow``, ``cap`` [gpus]; ``start_s``, ``link_s``, ``arrival_s`` [pipelines, ranks].
    """

    plan: Ints
    alive: NDArray[np.bool_]
    input_s: Floats
    factor: Floats
    slow: Floats
    cap: Ints
    start_s: Floats
    link_s: Floats
    arrival_s: Floats
    capped: NDArray[np.bool_]
    begun_s: Floats
    ended_s: Floats


class PowerTrace(NamedTuple):
    """Energy of the job in bins of time; no bins, no trace.

    Shape: ``energy_j`` [bins].
    """

    bin_s: float
    energy_j: Floats


class Shape(NamedTuple):
    """Pipelines ``first`` to ``end - 1``, which share nodes with no others; sizes of the job."""

    first: int
    end: int
    ranks: int
    tensor: int
    per_node: int


class Play(NamedTuple):
    """All that the kernel is given, but for the iteration itself."""

    shape: Shape
    program: Program
    tables: Tables
    change: Change
    requests: PlannedRequests
    gpus: Gpus
    trace: PowerTrace
