"""Put default clocks back.

A job restores clocks when it ends, however it ends. Should a machine have killed even the process
that does so, its journal is still there. `perseus-ds clocks reset` finds what was left locked and
puts back its default clocks, or restore_clock_mhz where an operator stated one. It reads the clock
back before it reports it. An idle GPU shows none, and keeps its journal where its clock did not move.
A driver that refuses is asked for 30 s.
A GPU that stands as if locked and that no journal names is listed. With --all it also removes any
lock that no journal knows, on every NVIDIA GPU of this machine. A GPU whose clock a running job
holds is named and left alone. The journal of a GPU that is not on this machine stays, should it come
back. Exit code 1 if a GPU could not be reset, 3 if so
while a living job holds another GPU of this machine: the end of that job tries again.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from perseus_ds.cli.gpus import local_gpus
from perseus_ds.cli.output import DONE, REFUSED, say
from perseus_ds.errors import DeviceUnavailableError
from perseus_ds.guard.repair import Outcome, Repair, repair, reset

_FAILED_BESIDE_A_LIVING_JOB = 3
_LOOK_S, _RESET_S = 1.0, 5.0  # with a driver that refuses to list its GPUs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds clocks``."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    action = actions.add_parser(
        "reset",
        help="put back what a killed job left locked",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    action.add_argument("--all", action="store_true", help="also locks that no journal of ours knows")


def run(options: argparse.Namespace) -> int:
    """Repair what the journals name, then reset the rest if asked; print a line per GPU."""
    done = _told(repair())
    if options.all:
        done += _reset_others(done)
    if not done:
        say("no clock was left locked by a job of ours that a journal here knows; --all resets every GPU")
    if not options.all:
        for line in _standing(done):
            say(line)
    outcomes = {one.outcome for one in done}
    if Outcome.FAILED not in outcomes:
        return DONE
    return _FAILED_BESIDE_A_LIVING_JOB if Outcome.HELD in outcomes else REFUSED


def _told(done: tuple[Repair, ...]) -> tuple[Repair, ...]:
    for line in map(str, done):
        say(line)
    return done


def _standing(done: tuple[Repair, ...]) -> Iterator[str]:
    """Name the GPUs whose clock stands as if locked, though no journal of ours names them."""
    known = {one.uuid for one in done}
    for gpu in local_gpus(patience_s=_LOOK_S).gpus:
        if gpu.standing_mhz is not None and gpu.identity.uuid not in known:
            yield (
                f"{gpu.identity.uuid}: stands at {gpu.standing_mhz} MHz, and no journal here records who "
                "locked it: an operator, or a job in a container (--all resets it)"
            )


def _reset_others(done: tuple[Repair, ...]) -> tuple[Repair, ...]:
    """Reset the GPUs that no journal names, and state which cannot be reached.

    Raises:
        DeviceUnavailableError: none can.
    """
    found = local_gpus(patience_s=_RESET_S)
    if not found.gpus:
        raise DeviceUnavailableError(f"no GPU to reset: {'; '.join(map(str, found.refused))}")
    for refusal in found.refused:
        say(f"not reset: {refusal}")
    known = {one.uuid for one in done}
    return _told(reset(tuple(gpu.identity.uuid for gpu in found.gpus if gpu.identity.uuid not in known)))
