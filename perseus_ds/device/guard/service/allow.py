"""The operator's allow list as text: ``user=alice gpus=GPU-1,GPU-2``, ``cgroup=/kubepods gpus=own``."""

from __future__ import annotations

import pwd

from perseus_ds.device.guard.service.policy import Rule
from perseus_ds.errors import ConfigError


class UnknownUserError(ConfigError):
    """A rule for a user whom this node does not know (yet)."""


_KEYS = ("user", "cgroup", "gpus")
_EXAMPLE = "for example: user=alice gpus=own"


def rule_of(text: str) -> Rule:
    """Read one rule; ``gpus`` must be there, so that nobody allows everything by an oversight.

    Raises:
        ConfigError: an unknown key, no ``gpus``, or no such user.
    """
    fields: dict[str, str] = {}
    for part in text.split():
        key, equals, value = part.partition("=")
        if key not in _KEYS or not equals or not value or key in fields:
            raise ConfigError(f"allow: cannot read {part!r} in {text!r}", hint=_EXAMPLE)
        fields[key] = value
    if "gpus" not in fields:
        raise ConfigError(f"allow: no gpus= in {text!r}", hint=_EXAMPLE)
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
