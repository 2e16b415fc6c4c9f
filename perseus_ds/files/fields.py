"""One field of what was read: of the right type, in its range, or refused with its name."""

from __future__ import annotations

from collections.abc import Mapping

from perseus_ds.errors import PerseusError

Content = Mapping[str, object]


def mapping(value: object, what: str) -> Content:
    """Return an object.

    Raises:
        PerseusError: it is anything else.
    """
    if not isinstance(value, dict):
        raise PerseusError(f"{what} is {_shown(value)}", hint="expected an object")
    return value


def text(content: Content, key: str, *, most: int = 4096) -> str:
    """Return a field that is text of at most so many characters.

    Raises:
        PerseusError: naming the key.
    """
    value = _field(content, key)
    if not isinstance(value, str) or len(value) > most:
        raise PerseusError(f"{key} is {_shown(value)}", hint=f"expected at most {most} characters of text")
    return value


def whole(content: Content, key: str, *, least: int, most: int) -> int:
    """Return a field that is a whole number in a range; true and false are none.

    Raises:
        PerseusError: naming the key.
    """
    value = _field(content, key)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise PerseusError(f"{key} is {_shown(value)}", hint=f"expected a whole number, {least} to {most}")
    return value


def real(content: Content, key: str, *, least: float, most: float) -> float:
    """Return a field that is a number in a range; true and false are none.

    Raises:
        PerseusError: naming the key.
    """
    value = _field(content, key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise PerseusError(f"{key} is {_shown(value)}", hint=f"expected a number, {least:g} to {most:g}")
    return float(value)


def _field(content: Content, key: str) -> object:
    if key not in content:
        raise PerseusError(f"has no {key}")
    return content[key]


def _shown(value: object) -> str:
    """A value in a message: never long, and an endless structure is not printed."""
    if isinstance(value, dict | list):
        return f"a {'list' if isinstance(value, list) else 'mapping'} of {len(value)}"
    return f"{value!r:.40}"
