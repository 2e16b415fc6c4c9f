"""One field of what was read: of the right type, in its range, or refused with its name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from typing import TypeVar, get_args, get_type_hints

from perseus_ds.errors import PerseusError

Content = Mapping[str, object]
Record = TypeVar("Record")

MOST = 1e12
"""Seconds, joules, watts: what is more was not measured, and its sums are not finite."""
MOST_COUNT = 2**63 - 1
_MOST_TEXT = 1 << 20


def mapping(value: object, what: str) -> Content:
    """Return an object.

    Raises:
        PerseusError: it is anything else.
    """
    if not isinstance(value, dict):
        raise PerseusError(f"{what} is {_shown(value)}", hint="expected an object")
    return value


def listed(value: object, what: str) -> Sequence[object]:
    """Return a list.

    Raises:
        PerseusError: it is anything else.
    """
    if not isinstance(value, list):
        raise PerseusError(f"{what} is {_shown(value)}", hint="expected a list")
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


def line(content: Content, key: str, *, most: int = 4096) -> str:
    """Return a field that is text for one line: a reader prints it.

    Raises:
        PerseusError: naming the key.
    """
    value = text(content, key, most=most)
    if not value.isprintable():
        raise PerseusError(f"{key} is {_shown(value)}", hint="expected text of one line")
    return value


def texts(value: object, what: str) -> dict[str, str]:
    """Return an object of texts, as fingerprints are.

    Raises:
        PerseusError: naming the key.
    """
    content = mapping(value, what)
    return {key: within(what, _long_text, content, key) for key in content}


def flag(content: Content, key: str) -> bool:
    """Return a field that is true or false.

    Raises:
        PerseusError: naming the key.
    """
    value = _field(content, key)
    if not isinstance(value, bool):
        raise PerseusError(f"{key} is {_shown(value)}", hint="expected true or false")
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


def real_or_none(content: Content, key: str, *, least: float, most: float) -> float | None:
    """Return a field that is a number in a range, or null.

    Raises:
        PerseusError: naming the key.
    """
    return None if _field(content, key) is None else real(content, key, least=least, most=most)


def record(kind: type[Record], content: Content) -> Record:
    """Build a dataclass of numbers from 0 on, truths and lines of text; fields with a default may be absent.

    Keys that are no fields are ignored: a newer release may have written them.

    Raises:
        PerseusError: naming the first key that is missing or of another type.
    """
    known = _fields_of(kind)  # type: ignore[arg-type]  # every class has a hash
    values = {
        name: _value(content, name, wanted)
        for name, (wanted, needed) in known.items()
        if needed or name in content
    }
    return kind(**values)


def only(content: Content, known: Collection[str]) -> None:
    """Refuse a key that nobody knows.

    Raises:
        PerseusError: naming the first one.
    """
    if unknown := sorted(content.keys() - set(known)):
        raise PerseusError(f"has an unknown key {unknown[0]!r:.40}")


def within(where: str, read: Callable[..., Record], *words: object) -> Record:
    """Read a part, whose refusal then names where it stands.

    Raises:
        PerseusError: as ``read`` does, with ``where`` before it.
    """
    try:
        return read(*words)
    except PerseusError as error:
        joint = " " if error.message.startswith("has ") else "."
        raise PerseusError(f"{where}{joint}{error.message}", hint=error.hint) from error


def rows(value: object, what: str, read: Callable[[Content], Record]) -> Iterator[Record]:
    """Read a list of objects one by one.

    Raises:
        PerseusError: as ``read`` does, with the row's number before it.
    """
    for number, row in enumerate(listed(value, what)):
        where = f"{what}[{number}]"
        yield within(where, read, mapping(row, where))


def _value(content: Content, name: str, wanted: object) -> object:
    kinds = get_args(wanted) or (wanted,)
    if type(None) in kinds and content.get(name, 0) is None:
        return None
    if float in kinds:
        return real(content, name, least=0.0, most=MOST)
    if bool in kinds:
        return flag(content, name)
    return whole(content, name, least=0, most=MOST_COUNT) if int in kinds else line(content, name)


@cache
def _fields_of(kind: type[object]) -> dict[str, tuple[object, bool]]:
    """The type of every field, and whether it must be there."""
    hints = get_type_hints(kind)
    return {
        field.name: (hints[field.name], field.default is MISSING and field.default_factory is MISSING)
        for field in fields(kind)  # type: ignore[arg-type]  # records are dataclasses
    }


def _long_text(content: Content, key: str) -> str:
    return text(content, key, most=_MOST_TEXT)


def _field(content: Content, key: str) -> object:
    if key not in content:
        raise PerseusError(f"has no {key}")
    return content[key]


def _shown(value: object) -> str:
    """A value in a message: never long, and an endless structure is not printed."""
    if isinstance(value, dict | list):
        return f"a {'list' if isinstance(value, list) else 'mapping'} of {len(value)}"
    return f"{value!r:.40}"
