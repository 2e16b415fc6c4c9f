"""The rules of the node's service, as an operator writes them: a line each, or a file in TOML."""

from __future__ import annotations

import os
import pwd
import tomllib
from collections.abc import Mapping
from pathlib import Path

from perseus_ds.errors import ConfigError, PerseusError
from perseus_ds.files import is_whole, read_bounded
from perseus_ds.guard.policy import Policy, Rule

DEFAULT_RULES = Path("/etc/perseus/guardd.toml")

_MAX_RULES_BYTES = 1 << 20
_MAX_MHZ = 100_000
_FILE_KEYS = ("allow", "floor_mhz", "restore_clock_mhz")
_RULE_KEYS = ("user", "cgroup", "gpus")
_EXAMPLE = "for example: user=alice gpus=own"


class UnknownUserError(ConfigError):
    """A rule for a user whom this node does not know (yet)."""


def read_rules(path: Path) -> tuple[Policy, tuple[str, ...]]:
    """Read the rules, and a line for each that cannot be kept: its user is not on this node.

    The file must be root's or ours, and nobody else may write to it.
    """
    try:
        raw = read_bounded(path, most_bytes=_MAX_RULES_BYTES, writers=frozenset({0, os.geteuid()}))
        return _rules(tomllib.loads(raw.decode()))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", hint="name the file with --rules") from error
    except ValueError as error:
        raise ConfigError(f"{path} is no TOML: {error!s:.200}", hint=_EXAMPLE) from error
    except PerseusError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint) from error


def _rules(content: Mapping[str, object]) -> tuple[Policy, tuple[str, ...]]:
    for key in content:
        if key not in _FILE_KEYS:
            raise ConfigError(f"{key} is not a known key", hint=f"known: {', '.join(_FILE_KEYS)}")
    floor_mhz, allow = content.get("floor_mhz", 0), content.get("allow", [])
    restore_clock_mhz = content.get("restore_clock_mhz")
    if not is_whole(floor_mhz, 0, _MAX_MHZ):
        raise ConfigError(f"floor_mhz is {floor_mhz!r}", hint=f"expected 0 to {_MAX_MHZ}")
    if restore_clock_mhz is not None and not is_whole(restore_clock_mhz, 1, _MAX_MHZ):
        raise ConfigError(f"restore_clock_mhz is {restore_clock_mhz!r}", hint=f"expected 1 to {_MAX_MHZ}")
    if not isinstance(allow, list) or not all(isinstance(one, str) for one in allow):
        raise ConfigError(f"allow is {allow!r:.80}, not a list of rules", hint=_EXAMPLE)
    kept: list[Rule] = []
    skipped: list[str] = []
    for number, text in enumerate(allow, start=1):
        try:
            kept.append(rule_of(text))
        except UnknownUserError as error:
            skipped.append(f"rule {number} is skipped: {error.message}")
    return Policy(tuple(kept), floor_mhz, restore_clock_mhz), tuple(skipped)


def rule_of(text: str) -> Rule:
    """Read one rule; ``gpus`` must be there, so that nobody allows everything by an oversight."""
    fields: dict[str, str] = {}
    for part in text.split():
        key, equals, value = part.partition("=")
        if key not in _RULE_KEYS or not equals or not value or key in fields:
            raise ConfigError(f"allow: cannot read {part!r} in {text!r}", hint=_EXAMPLE)
        fields[key] = value
    if "gpus" not in fields:
        raise ConfigError(f"allow: no gpus= in {text!r}", hint=_EXAMPLE)
    user = fields.get("user")
    uid = int(user) if user is not None and user.isdecimal() else None
    if user is not None and uid is None:
        try:
            uid = pwd.getpwnam(user).pw_uid
        except KeyError:
            hint = "a name or a number"
            raise UnknownUserError(f"allow: no user {user!r} on this node", hint=hint) from None
    gpus = None if fields["gpus"] in {"*", "own"} else frozenset(fields["gpus"].split(","))
    return Rule(gpus, uid, fields.get("cgroup"), own=fields["gpus"] == "own")
