"""Who may take which GPU, and how low its clock may go."""

from __future__ import annotations

import contextlib
import os
import pwd
import select
import socket
import struct
import subprocess
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from perseus_ds.errors import ConfigError, DevicePermissionError, PerseusError
from perseus_ds.files import read_bounded

# The process at the other end of a socket, by the kernel's word, and which GPUs it may open itself.

_SO_PEERPIDFD = 77  # linux/socket.h, since 6.5
_CREDENTIALS = struct.Struct("iii")
_DESCRIPTOR = struct.Struct("i")
_ROOT = Path("/sys/fs/cgroup")
_LIMIT_S = 5.0
_MAY, _CANNOT_JOIN = 0, 3
_TRY = f"""
device=$1; shift
for group; do echo $$ > "$group" || {{ echo "$group"; exit {_CANNOT_JOIN}; }}; done
[ -c "$device" ] && exec 3<> "$device"
"""


@dataclass(frozen=True, slots=True)
class Peer:
    """A process; ``cgroup`` is its control group, ``devices`` that of version 1's device controller."""

    pid: int
    uid: int
    gid: int
    cgroup: str = ""
    devices: str = ""

    def __str__(self) -> str:
        return f"user {self.uid}, process {self.pid}"


@dataclass(frozen=True, slots=True)
class Caller:
    """A peer, and a descriptor that becomes readable when it ends (-1: the kernel gives none)."""

    peer: Peer
    pidfd: int = -1

    def close(self) -> None:
        """Let go of the descriptor."""
        if self.pidfd >= 0:
            os.close(self.pidfd)


def caller_of(sock: socket.socket) -> Caller:
    """Ask the kernel who connected. The caller closes the answer.

    A process number may be given to another process at any moment. With the kernel's own descriptor of the
    one that connected, its control group is believed only if it still lived after that was read.

    Source: unix(7), SO_PEERCRED: the credentials at the time of connect, not to be forged.
    """
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(raw)
    pidfd = _pidfd_of(sock, pid)
    groups = control_groups(pid)
    if pidfd < 0 or _has_ended(pidfd):
        groups = {}
    return Caller(Peer(pid, uid, gid, groups.get("", ""), groups.get("devices", "")), pidfd)


def _pidfd_of(sock: socket.socket, pid: int) -> int:
    with contextlib.suppress(OSError):
        raw = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, _DESCRIPTOR.size)
        return int(_DESCRIPTOR.unpack(raw)[0])
    with contextlib.suppress(OSError, AttributeError):  # before 6.5: by its number, at once
        return os.pidfd_open(pid)
    return -1


def _has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def control_groups(pid: int | str = "self") -> dict[str, str]:
    """Return a process's control groups, by controller; version 2 has none of a name. Source: cgroups(7)."""
    groups: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace").splitlines():
            _, controllers, path = line.split(":", 2)
            groups.update(dict.fromkeys(controllers.split(","), path))
    return groups


def may_open(peer: Peer, device: str) -> bool:
    """Whether a client's control groups let it open a device file for reading and writing.

    Docker, Kubernetes and Slurm (``ConstrainDevices``) give a job some of a node's GPUs by a rule of the
    kernel on opening device files. That is a list in version 1 of control groups, a BPF program in version 2.
    Neither can be read from everywhere, and both can be tried: a process that has joined the client's groups
    opens the file or does not.

    Source: cgroups(7); Documentation/admin-guide/cgroup-v2.rst, "Device controller".

    Raises:
        DevicePermissionError: it cannot be found out.
    """
    groups = _files_of(peer)
    if not groups:
        raise DevicePermissionError(
            f"cannot find out which GPUs {peer} may open: its control group is not visible from here",
            hint="the service needs the node's process numbers and /sys/fs/cgroup",
        )
    command = ["/bin/sh", "-c", _TRY, "sh", device, *map(str, groups)]
    try:
        tried = subprocess.run(  # noqa: S603 - a fixed program; what varies are its arguments
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise DevicePermissionError(f"cannot find out which GPUs {peer} may open: {error}") from error
    if tried.returncode == _CANNOT_JOIN:
        group = tried.stdout.strip()
        raise DevicePermissionError(f"cannot find out which GPUs {peer} may open: {group} cannot be joined")
    return tried.returncode == _MAY


def _files_of(peer: Peer) -> list[Path]:
    """The files by which a process joins a peer's control groups, of either version, that are there."""
    places = [(_ROOT / "devices", peer.devices), (_ROOT, peer.cgroup), (_ROOT / "unified", peer.cgroup)]
    files = [root / path.lstrip("/") / "cgroup.procs" for root, path in places if path.startswith("/")]
    return [file for file in files if ".." not in file.parts and file.exists()]


_HINT = "the operator's allow list decides: perseus-ds guardd --allow"


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the allow list: ``uid`` and ``cgroup`` (a prefix) of ``None`` match everybody.

    ``gpus`` of ``None`` are all; with ``own`` they are those that the peer itself may open.
    """

    gpus: frozenset[str] | None = None
    uid: int | None = None
    cgroup: str | None = None
    own: bool = False

    def matches(self, peer: Peer) -> bool:
        """Whether this line is about a peer."""
        return (self.uid is None or self.uid == peer.uid) and (
            self.cgroup is None or _below(peer.cgroup, self.cgroup)
        )

    def allows(self, uuid: str, owns: Callable[[], bool]) -> bool:
        """Whether this line, which is about a peer, lets it have a GPU."""
        return (self.gpus is None or uuid in self.gpus) and (not self.own or owns())


@dataclass(frozen=True, slots=True)
class Policy:
    """The allow list, the floor and the clock that a GPU has at the end; no rules allow nobody.

    ``restore_clock_mhz`` of ``None`` is the driver's own choice.
    """

    rules: tuple[Rule, ...] = ()
    floor_mhz: int = 0
    restore_clock_mhz: int | None = None

    def may_connect(self, peer: Peer) -> bool:
        """Whether a peer may connect at all: some rule is about it."""
        return any(rule.matches(peer) for rule in self.rules)

    def check(self, peer: Peer, uuid: str, *, owns: Callable[[], bool] = lambda: False) -> None:
        """Let a peer have a GPU; ``owns`` states whether the peer itself may open it, asked if need be.

        Raises:
            DevicePermissionError: no rule allows it.
        """
        if not any(rule.matches(peer) and rule.allows(uuid, owns) for rule in self.rules):
            raise DevicePermissionError(f"{peer} may not control {uuid}", hint=_HINT)

    def clamped_mhz(self, clock_mhz: int, clocks_mhz: tuple[int, ...]) -> int:
        """Raise a clock below the floor to the lowest grid clock that is not."""
        if clock_mhz >= self.floor_mhz:
            return clock_mhz
        return min((clock for clock in clocks_mhz if clock >= self.floor_mhz), default=clocks_mhz[0])


ALLOW_ALL = Policy((Rule(),))


def refusal_of(peer: Peer) -> DevicePermissionError:
    """The answer to a peer that no rule names."""
    return DevicePermissionError(f"{peer} may not control any GPU", hint=_HINT)


def _below(cgroup: str, prefix: str) -> bool:
    return cgroup == prefix or cgroup.startswith(prefix.rstrip("/") + "/")


# The operator's rules in a file, ``/etc/perseus/guardd.toml``: read at the start and at each reload.
#
# A rule is text: ``user=alice gpus=GPU-1,GPU-2``, ``cgroup=/kubepods gpus=own``.

DEFAULT_RULES = Path("/etc/perseus/guardd.toml")

_MOST_BYTES = 1 << 20
_MOST_MHZ = 100_000
_KEYS = ("allow", "floor_mhz", "restore_clock_mhz")
_EXAMPLE = 'for example: allow = ["user=alice gpus=own"]'
_RULE_KEYS = ("user", "cgroup", "gpus")
_OF_RULE = "for example: user=alice gpus=own"


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that can be kept, and a line for each that cannot: its user is not on this node."""

    policy: Policy
    skipped: tuple[str, ...] = ()


def read_rules(path: Path) -> Rules:
    """Read the rules; the file must be root's or ours, and nobody else may write to it.

    Raises:
        ConfigError: naming the file, and the key or the rule.
    """
    try:
        raw = read_bounded(path, most_bytes=_MOST_BYTES, writers=frozenset({0, os.geteuid()}))
        content = tomllib.loads(raw.decode())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", hint="name the file with --rules") from error
    except ValueError as error:
        raise ConfigError(f"{path} is no TOML: {error!s:.200}", hint=_EXAMPLE) from error
    except PerseusError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint) from error
    try:
        return _rules(content)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint) from error


def _rules(content: Mapping[str, object]) -> Rules:
    for key in content:
        if key not in _KEYS:
            raise ConfigError(f"{key} is not a known key", hint=f"known: {', '.join(_KEYS)}")
    floor_mhz, allow = content.get("floor_mhz", 0), content.get("allow", [])
    restore_clock_mhz = content.get("restore_clock_mhz")
    if not _is_clock(floor_mhz, least=0):
        raise ConfigError(f"floor_mhz is {floor_mhz!r}", hint=f"expected 0 to {_MOST_MHZ}")
    if restore_clock_mhz is not None and not _is_clock(restore_clock_mhz, least=1):
        raise ConfigError(f"restore_clock_mhz is {restore_clock_mhz!r}", hint=f"expected 1 to {_MOST_MHZ}")
    if not isinstance(allow, list) or not all(isinstance(one, str) for one in allow):
        raise ConfigError(f"allow is {allow!r:.80}", hint=_EXAMPLE)
    kept: list[Rule] = []
    skipped: list[str] = []
    for number, text in enumerate(allow, start=1):
        try:
            kept.append(rule_of(text))
        except UnknownUserError as error:
            skipped.append(f"rule {number} is skipped: {error.message}")
    return Rules(Policy(tuple(kept), floor_mhz, restore_clock_mhz), tuple(skipped))


def _is_clock(value: object, *, least: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST_MHZ


class UnknownUserError(ConfigError):
    """A rule for a user whom this node does not know (yet)."""


def rule_of(text: str) -> Rule:
    """Read one rule; ``gpus`` must be there, so that nobody allows everything by an oversight.

    Raises:
        ConfigError: an unknown key, no ``gpus``, or no such user.
    """
    fields: dict[str, str] = {}
    for part in text.split():
        key, equals, value = part.partition("=")
        if key not in _RULE_KEYS or not equals or not value or key in fields:
            raise ConfigError(f"allow: cannot read {part!r} in {text!r}", hint=_OF_RULE)
        fields[key] = value
    if "gpus" not in fields:
        raise ConfigError(f"allow: no gpus= in {text!r}", hint=_OF_RULE)
    gpus = None if fields["gpus"] in {"*", "own"} else frozenset(fields["gpus"].split(","))
    user = fields.get("user")
    return Rule(gpus, None if user is None else _uid(user), fields.get("cgroup"), own=fields["gpus"] == "own")


def _uid(user: str) -> int:
    if user.isdecimal():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise UnknownUserError(f"allow: no user {user!r} on this node", hint="a name or a number") from None
