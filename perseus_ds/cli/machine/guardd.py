"""The privileged node service: it sets clocks for jobs that have no right to, and takes them back.

Listens on a Unix socket and asks the kernel who is at the other end. The socket's mode is 0660, so
that members of --group may connect to it. Rules set what a job may do. They are in a file
(--rules), which SIGHUP reads anew while leases go on, or given by --allow, as often as needed.
Without a rule nobody may do anything. A rule names the GPUs and, where not everybody is meant, a
user or a control group:

  perseus-ds guardd --group perseus --rules /etc/perseus/guardd.toml
  perseus-ds guardd --group perseus --allow "user=alice gpus=own"
  perseus-ds guardd --group 1000 --floor-mhz 600 --allow "cgroup=/kubepods.slice gpus=own"

gpus=own are the GPUs that the job itself may open: the device controller of its control group is asked.

One job holds a GPU's clock at a time. When its connection ends, or it is silent for 30 s, the clock is as
it was found. At its start the service puts back what a killed one left. SIGTERM ends it, after every
clock is back; exit code 1 if one could not be put back.

  perseus-ds guardd status

lists who holds which GPU, at what clock, since when, and which journals a killed service has left.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from perseus_ds import __version__
from perseus_ds.cli.output import DONE, REFUSED, remark, say, say_now
from perseus_ds.cli.quantity import count
from perseus_ds.device.guard import (
    DEFAULT_RULES,
    Policy,
    Repair,
    Rule,
    ServiceSettings,
    container,
    left_behind,
    read_rules,
    rule_of,
    run_service,
)
from perseus_ds.device.guard.claim.journal import BACKENDS
from perseus_ds.device.guard.service.service import DEFAULT_SOCKET
from perseus_ds.device.guard.service.status import ServiceStatus, service_status
from perseus_ds.device.guardd import connect
from perseus_ds.errors import ConfigError, DeviceError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds guardd``."""
    parser.add_argument(
        "action", nargs="?", choices=("serve", "status"), default="serve", help="default: serve"
    )
    parser.add_argument("--json", action="store_true", help="with status: print JSON")
    parser.add_argument(
        "--rules",
        type=Path,
        metavar="FILE",
        help=f"rules as TOML, in place of --allow (unit: {DEFAULT_RULES})",
    )
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
    """Serve until a signal, or report what a running service does."""
    if options.action == "status":
        return _status(options.socket, as_json=options.json)
    if options.rules is not None and (options.allow or options.floor_mhz):
        raise ConfigError("--rules is given with --allow or --floor-mhz", hint="write them into the file")
    policy = (
        Policy(tuple(options.allow), options.floor_mhz) if options.rules is None else _read(options.rules)
    )
    if not policy.rules:
        remark("no rule: the service answers, and refuses everybody")
    if not container.in_nodes_pid_namespace():
        remark(
            "not in the node's PID namespace: the service ends with its container, and does not see who asks"
        )
    reread = None if options.rules is None else partial(_read, options.rules)
    settings = ServiceSettings(options.socket, options.group, policy, options.backend, reread)

    def ready(repairs: tuple[Repair, ...]) -> None:
        for one in repairs:
            say_now(str(one))
        say_now(f"listening on {settings.path}")

    return REFUSED if run_service(settings, ready=ready) else DONE


def _read(path: Path) -> Policy:
    """Read the file of rules, and report which of them cannot be kept."""
    rules = read_rules(path)
    for line in rules.skipped:
        remark(f"{path}: {line}")
    return rules.policy


def _status(path: Path, *, as_json: bool) -> int:
    """Report who holds which GPU; a service that has ended may still have left journals."""
    left = [{"uuid": one.uuid, "what": one.what} for one in left_behind()]
    try:
        found = service_status(lambda: connect(path))
    except DeviceError as error:
        remark(str(error))
        found = None
    if as_json:
        service = None if found is None else asdict(found)
        say(json.dumps({"service": service, "client": __version__, "left_behind": left}, indent=1))
    else:
        _tell(found, left)
    return REFUSED if found is None else DONE


def _tell(found: ServiceStatus | None, left: Sequence[Mapping[str, str]]) -> None:
    if found is not None:
        rules = f"{found.rules} rule{'' if found.rules == 1 else 's'}, floor {found.floor_mhz} MHz"
        say(f"service {found.version} (this command {__version__}), {rules}, {len(found.leases)} leases")
        for one in found.leases:
            clock = "as found" if one["clock_mhz"] is None else f"{one['clock_mhz']} MHz"
            who = f"{one['owner']} (user {one['uid']}, process {one['pid']})"
            say(f"  {one['uuid']}  {clock}, held for {float(one['held_s'] or 0):.0f} s by {who}")
    for each in left:
        say(f"  {each['uuid']}  journal left behind: {each['what']}")


def _rule(text: str) -> Rule:
    """Read a rule; a wrong one is wrong usage."""
    try:
        return rule_of(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(f"{error.message}; {error.hint}") from error
