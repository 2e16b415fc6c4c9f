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

One job holds a GPU's clock at a time. When its connection ends, or it is silent for 30 s, the clock is
put back: the driver's own choice, or the clock that the operator states. At its start the service puts back
what a killed one left. SIGTERM ends it, after every clock is back; exit code 1 if one could not be put
back.

  perseus-ds guardd status

lists who holds which GPU, at what clock, since when, and which journals a killed service has left.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from perseus_ds import __version__
from perseus_ds.cli.output import DONE, REFUSED, count, remark, say
from perseus_ds.errors import ConfigError, DeviceError, PerseusError
from perseus_ds.guard import containment
from perseus_ds.guard.client import DEFAULT_SOCKET, ServiceStatus, service_status
from perseus_ds.guard.journal import BACKENDS, stale_journals
from perseus_ds.guard.log import ServiceLog, is_journal, log_event
from perseus_ds.guard.policy import DEFAULT_RULES, Policy, Rule, read_rules, rule_of
from perseus_ds.guard.protocol import Value
from perseus_ds.guard.repair import Repair
from perseus_ds.guard.service import ServiceSettings, run_service


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
        "--restore-clock-mhz",
        type=count,
        metavar="MHZ",
        help="the clock that a GPU has at the end of a lease (default: the driver's own choice)",
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
        "--log",
        choices=("automatic", "json", "text"),
        default="automatic",
        help="lines of the service: words, or a JSON object each (automatic: JSON under systemd)",
    )
    parser.add_argument(
        "--backend", choices=BACKENDS, default=BACKENDS[0], help="what clocks are set through (default nvml)"
    )


def run(options: argparse.Namespace) -> int:
    """Serve until a signal, or report what a running service does."""
    if options.action == "status":
        return _status(options.socket, as_json=options.json)
    as_json = options.log == "json" or (options.log == "automatic" and is_journal())
    log = ServiceLog(as_json=as_json)
    try:
        return _serve(options, _Lines(as_json=as_json))
    except PerseusError as error:
        if not as_json:
            raise
        log_event("not_started", str(error), logging.ERROR)
        return REFUSED
    finally:
        log.close()


@dataclass(frozen=True, slots=True)
class _Lines:
    """What the command itself reports: results and remarks as everywhere, or lines of the log."""

    as_json: bool

    def result(self, name: str, text: str, **fields: Value) -> None:
        if self.as_json:
            log_event(name, text, logging.INFO, **fields)
        else:
            say(text)

    def remark(self, name: str, text: str, **fields: Value) -> None:
        if self.as_json:
            log_event(name, text, logging.WARNING, **fields)
        else:
            remark(text)


def _serve(options: argparse.Namespace, lines: _Lines) -> int:
    """Serve until a signal."""
    if options.rules is not None and (options.allow or options.floor_mhz or options.restore_clock_mhz):
        raise ConfigError(
            "--rules is given with --allow, --floor-mhz or --restore-clock-mhz",
            hint="write them into the file",
        )
    read = None if options.rules is None else partial(_read, options.rules, lines)
    own = Policy(tuple(options.allow), options.floor_mhz, options.restore_clock_mhz)
    policy = own if read is None else read()
    if not policy.rules:
        lines.remark("no_rule", "no rule: the service answers, and refuses everybody")
    if not containment.in_nodes_pid_namespace():
        line = (
            "not in the node's PID namespace: the service ends with its container, and does not see who asks"
        )
        lines.remark("own_pid_namespace", line)
    settings = ServiceSettings(options.socket, options.group, policy, options.backend, read)

    def ready(repairs: tuple[Repair, ...]) -> None:
        for one in repairs:
            lines.result("repaired", str(one), gpu=one.uuid, clock_mhz=one.clock_mhz, why=one.outcome.value)
        rules, floor_mhz = len(policy.rules), policy.floor_mhz
        text = f"listening on {settings.path}"
        lines.result("listening", text, version=__version__, rules=rules, floor_mhz=floor_mhz)

    return REFUSED if run_service(settings, ready=ready) else DONE


def _read(path: Path, lines: _Lines) -> Policy:
    """Read the file of rules, and report which of them cannot be kept."""
    rules = read_rules(path)
    for line in rules.skipped:
        lines.remark("rule_skipped", f"{path}: {line}", file=str(path))
    return rules.policy


def _status(path: Path, *, as_json: bool) -> int:
    """Report who holds which GPU; a service that has ended may still have left journals."""
    left = [{"uuid": one.uuid, "what": one.what} for one in stale_journals()]
    try:
        found = service_status(path)
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
