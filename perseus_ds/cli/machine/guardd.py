"""The privileged node service: it sets clocks for jobs that have no right to, and takes them back.

Listens on a Unix socket (mode 0660, so that members of --group may connect to it) and asks the kernel who
is at the other end. What a job may do is set by --allow, as often as needed; without one nobody may do
anything. A rule names the GPUs and, where not everybody is meant, a user or a control group:

  perseus-ds guardd --group perseus --allow "user=alice gpus=*"
  perseus-ds guardd --group 1000 --floor-mhz 600 --allow "cgroup=/kubepods.slice gpus=own"

gpus=own are the GPUs that the job itself may open: the device controller of its control group is asked.

One job holds a GPU's clock at a time. When its connection ends, or it is silent for 30 s, the clock is as
it was found. At its start the service puts back what a killed one left. SIGTERM ends it, after every
clock is back; exit code 1 if one could not be put back.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from perseus_ds.cli.output import DONE, REFUSED, remark, say_now
from perseus_ds.cli.quantity import count
from perseus_ds.device.guard import Policy, Repair, Rule, ServiceSettings, container, rule_of, run_service
from perseus_ds.device.guard.claim.journal import BACKENDS
from perseus_ds.device.guard.service.service import DEFAULT_SOCKET
from perseus_ds.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds guardd``."""
    parser.add_argument(
        "--socket", type=Path, metavar="PATH", default=DEFAULT_SOCKET, help=f"default {DEFAULT_SOCKET}"
    )
    parser.add_argument("--group", metavar="GROUP", help="who may open the socket, by name or number")
    parser.add_argument(
        "--floor-mhz",
        type=count,
        metavar="MHZ",
        default=0,
        help="no clock below this is ever set (default: the lowest of the grid)",
    )
    parser.add_argument(
        "--allow",
        type=_rule,
        metavar="RULE",
        action="append",
        default=[],
        help="[user=NAME] [cgroup=PATH] gpus=own|*|UUID,...; may be given several times",
    )
    parser.add_argument(
        "--backend", choices=BACKENDS, default=BACKENDS[0], help="what clocks are set through (default nvml)"
    )


def run(options: argparse.Namespace) -> int:
    """Serve until a signal."""
    if not options.allow:
        remark("no --allow: the service answers, and refuses everybody")
    policy = Policy(tuple(options.allow), options.floor_mhz)
    if not container.in_nodes_pid_namespace():
        remark(
            "not in the node's PID namespace: the service ends with its container, and does not see who asks"
        )
    settings = ServiceSettings(options.socket, options.group, policy, options.backend)

    def ready(repairs: tuple[Repair, ...]) -> None:
        for one in repairs:
            say_now(str(one))
        say_now(f"listening on {settings.path}")

    return REFUSED if run_service(settings, ready=ready) else DONE


def _rule(text: str) -> Rule:
    """Read a rule; a wrong one is wrong usage."""
    try:
        return rule_of(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(f"{error.message}; {error.hint}") from error
