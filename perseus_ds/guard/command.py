"""The commands ``perseus-ds guardd`` and ``perseus-ds clocks``, for nodes that have the guard's files alone.

`main` is the node's program (the Debian package, ``python -m perseus_ds.guard guardd``); `perseus_ds.cli`
offers the same commands.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from perseus_ds import __version__
from perseus_ds.device.gpu import DeviceRequest
from perseus_ds.device.nvml import NvmlGpu, load_nvml, nvml_error
from perseus_ds.errors import ConfigError, DeviceError, DeviceUnavailableError, PerseusError
from perseus_ds.guard import containment
from perseus_ds.guard.claim import any_error, retry
from perseus_ds.guard.client import DEFAULT_SOCKET, service_status
from perseus_ds.guard.journal import BACKENDS
from perseus_ds.guard.log import log_event
from perseus_ds.guard.policy import Policy, Rule
from perseus_ds.guard.protocol import Message
from perseus_ds.guard.repair import Outcome, repair, reset, stale_journals
from perseus_ds.guard.rules import DEFAULT_RULES, rule_of
from perseus_ds.guard.service import Service, ServiceLog, is_journal, policy_of

_DONE, _REFUSED = 0, 1

GUARDD_HELP = """\
The privileged node service: it sets clocks for jobs that have no right to, and takes them back.

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

CLOCKS_HELP = """Put default clocks back.

A job restores clocks when it ends, however it ends. Should a machine have killed even the process
that does so, its journal is still there. `perseus-ds clocks reset` finds what was left locked and
puts back its default clocks, or restore_clock_mhz where an operator stated one. It reads the clock
back before it reports it. An idle GPU shows none, and keeps its journal where its clock did not move.
A driver that refuses is asked for 30 s.
With --all it also removes any lock that no journal knows, on every NVIDIA GPU of this machine
(`perseus-ds doctor` lists those that look locked). A GPU whose clock a running job
holds is named and left alone. The journal of a GPU that is not on this machine stays, should it come
back. Exit code 1 if a GPU could not be reset, 3 if so
while a living job holds another GPU of this machine: the end of that job tries again.
"""

_FAILED_BESIDE_A_LIVING_JOB = 3
_LOOK_S = 5.0  # with a driver that refuses to list its GPUs


def add_guardd_arguments(parser: argparse.ArgumentParser) -> None:
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
        type=_count,
        metavar="MHZ",
        default=0,
        help="no clock below this is ever set (default: the lowest of the grid)",
    )
    parser.add_argument(
        "--restore-clock-mhz",
        type=_count,
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


def run_guardd(options: argparse.Namespace) -> int:
    """Serve until a signal, or report what a running service does."""
    if options.action == "status":
        return _status(options.socket, as_json=options.json)
    as_json = options.log == "json" or (options.log == "automatic" and is_journal())
    log = ServiceLog(as_json=as_json)
    try:
        return _serve(options)
    except PerseusError as error:
        if not as_json:
            raise
        log_event("not_started", str(error), logging.ERROR)
        return _REFUSED
    finally:
        log.close()


def _serve(options: argparse.Namespace) -> int:
    policy = Policy(tuple(options.allow), options.floor_mhz, options.restore_clock_mhz)
    if options.rules is not None:
        if policy != Policy():
            raise ConfigError(
                "--rules is given with --allow, --floor-mhz or --restore-clock-mhz",
                hint="write them into the file",
            )
        policy = policy_of(options.rules)
    if not policy.rules:
        log_event("no_rule", "no rule: the service answers, and refuses everybody", logging.WARNING)
    if not containment.in_nodes_pid_namespace():
        why = "the service ends with its container, and does not see who asks"
        log_event("own_pid_namespace", f"not in the node's PID namespace: {why}", logging.WARNING)
    service = Service(
        options.socket, policy, group=options.group, backend=options.backend, rules=options.rules
    )
    return _REFUSED if service.run() else _DONE


def _status(path: Path, *, as_json: bool) -> int:
    """Report who holds which GPU; a service that has ended may still have left journals."""
    left, service = stale_journals(), None
    leases: list[Message] = []
    try:
        service, leases = service_status(path)
    except DeviceError as error:
        _remark(str(error))
    if as_json:
        stale = [{"uuid": uuid, "what": what} for uuid, what in left.items()]
        state = None if service is None else {**service, "leases": leases}
        _say(json.dumps({"service": state, "client": __version__, "left_behind": stale}, indent=1))
        return _REFUSED if service is None else _DONE
    if service is not None:
        rules = f"{service['rules']} rules, floor {service['floor_mhz']} MHz, {len(leases)} leases"
        _say(f"service {service['version']} (this command {__version__}), {rules}")
    for one in leases:
        clock = "as found" if one["clock_mhz"] is None else f"{one['clock_mhz']} MHz"
        who = f"{one['owner']} (user {one['uid']}, process {one['pid']})"
        _say(f"  {one['uuid']}  {clock}, held for {float(one['held_s'] or 0):.0f} s by {who}")
    for uuid, what in left.items():
        _say(f"  {uuid}  journal left behind: {what}")
    return _REFUSED if service is None else _DONE


def _rule(text: str) -> Rule:
    """Read a rule; a wrong one is wrong usage."""
    try:
        return rule_of(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(f"{error.message}; {error.hint}") from error


def add_clocks_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds clocks``."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    action = actions.add_parser(
        "reset",
        help="put back what a killed job left locked",
        description=CLOCKS_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    action.add_argument("--all", action="store_true", help="also locks that no journal of ours knows")


def run_clocks(options: argparse.Namespace) -> int:
    """Repair what the journals name, then reset the rest if asked; print a line per GPU."""
    done = repair()
    _say(*done)
    if options.all:
        known = {one.uuid for one in done}
        found, refused = _local_gpus()
        if not found:
            raise DeviceUnavailableError(f"no GPU to reset: {'; '.join(map(str, refused))}")
        _say(*(f"not reset: {one}" for one in refused))
        others = reset(tuple(uuid for uuid in found if uuid not in known))
        _say(*others)
        done += others
    if not done:
        _say("no clock was left locked by a job of ours that a journal here knows; --all resets every GPU")
    outcomes = {one.outcome for one in done}
    if Outcome.FAILED not in outcomes:
        return _DONE
    return _FAILED_BESIDE_A_LIVING_JOB if Outcome.HELD in outcomes else _REFUSED


def count_gpus() -> int:
    """Ask NVML how many GPUs there are; a `DeviceError`: no NVML, or no driver."""
    nvml = load_nvml()
    try:
        nvml.nvmlInit()
        try:
            return int(nvml.nvmlDeviceGetCount())
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        raise nvml_error(int(error.value), "count GPUs") from error


def _local_gpus() -> tuple[list[str], list[DeviceError]]:
    """The NVIDIA GPUs here, and why others do not open."""

    def uuid(index: int) -> str:
        with NvmlGpu(DeviceRequest("nvml", local_rank=index, lock=False)) as gpu:
            return gpu.identify().uuid

    found: list[str] = []
    refused: list[DeviceError] = []
    try:
        count = retry(count_gpus, _LOOK_S, any_error)
    except DeviceError as error:
        return found, [error]
    for index in range(count):
        try:
            found.append(retry(partial(uuid, index), _LOOK_S, any_error))
        except DeviceError as error:
            refused.append(error)
    return found, refused


def main(arguments: Sequence[str]) -> int:
    """Run one command; errors are one line each."""
    parser = argparse.ArgumentParser(prog="perseus-ds", description="Clocks of the GPUs of a node.")
    parser.add_argument("--version", action="version", version=f"perseus-ds {__version__}")
    commands = parser.add_subparsers(required=True)
    raw = argparse.RawDescriptionHelpFormatter
    guardd = commands.add_parser("guardd", description=GUARDD_HELP, formatter_class=raw)
    add_guardd_arguments(guardd)
    guardd.set_defaults(run=run_guardd)
    clocks = commands.add_parser("clocks", description=CLOCKS_HELP, formatter_class=raw)
    add_clocks_arguments(clocks)
    clocks.set_defaults(run=run_clocks)
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except PerseusError as error:
        _remark(str(error))
        return _REFUSED


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def _say(*lines: object) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


def _remark(text: str) -> None:
    sys.stderr.write(f"perseus-ds: {text}\n")
