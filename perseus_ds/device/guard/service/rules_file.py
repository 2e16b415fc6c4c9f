"""The operator's rules in a file, ``/etc/perseus/guardd.toml``: read at the start and at each reload.

A rule is text: ``user=alice gpus=GPU-1,GPU-2``, ``cgroup=/kubepods gpus=own``.
"""

from __future__ import annotations

import os
import pwd
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from perseus_ds.device.guard.service.policy import Policy, Rule
from perseus_ds.errors import ConfigError, PerseusError
from perseus_ds.files import read_bounded

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
