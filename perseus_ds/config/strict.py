"""Turn a mapping from outside into a record: unknown keys and wrong types refused, with the key named."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

from perseus_ds.config.automatic import hints_of, shown, with_auto
from perseus_ds.config.ranges import literals_of, range_of
from perseus_ds.config.removed import REMOVED_KEYS
from perseus_ds.errors import ConfigError

if TYPE_CHECKING:
    import pydantic

Record = TypeVar("Record")


def record_of(kind: type[Record], block: Mapping[str, object], *, where: str) -> Record:
    """Check ``block`` against the fields of the frozen dataclass ``kind`` and build it.

    Raises:
        ConfigError: the first unknown or removed key, wrong type or value, by its full name under ``where``.
    """
    import pydantic  # noqa: PLC0415  # a tenth of a second: for those who read a block

    block = with_auto(kind, block)
    _refuse_unknown(kind, block, where)
    try:
        reader = _reader_of(kind)  # type: ignore[arg-type]  # types are hashable
        record: Record = reader.validate_python(block, strict=False)
    except pydantic.ValidationError as error:
        raise _translated(error, kind, where) from error
    return record


@cache
def _reader_of(kind: type[object]) -> pydantic.TypeAdapter[Any]:
    import pydantic  # noqa: PLC0415  # as above

    return pydantic.TypeAdapter(kind)


def _refuse_unknown(kind: type[object], block: Mapping[str, object], where: str) -> None:
    hints = hints_of(kind)  # type: ignore[arg-type]  # types are hashable
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]  # records are dataclasses
    for key, value in block.items():
        for removed in (key, f"{key}: {value}" if isinstance(value, str) else key):
            remedy = REMOVED_KEYS.get(f"{where}.{removed}".partition("perseus.")[2])
            if remedy is not None:
                raise ConfigError(f"{where}.{removed} was removed", hint=remedy)
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise ConfigError(f"{where}.{key} is not a known key", hint=f"{hint}known: {', '.join(known)}")
        section = hints[key]
        if is_dataclass(section) and isinstance(section, type) and isinstance(value, Mapping):
            _refuse_unknown(section, value, f"{where}.{key}")
        else:
            _refuse_coercion(section, value, f"{where}.{key}")


def _refuse_coercion(wanted: object, value: object, key: str) -> None:
    """Refuse what a lenient reader would bend into shape: "5" for 5, 1 for true, true for 1."""
    if not (is_dataclass(wanted) or get_origin(wanted) is dict):
        _refuse_bent(wanted, value, key)
    elif not isinstance(value, Mapping):
        raise ConfigError(f"{key} is {value!r}", hint="expected a block in braces")


def _refuse_bent(wanted: object, value: object, key: str) -> None:
    allowed, literals = get_args(wanted) or (wanted,), literals_of(wanted)
    numeric, truth = not {int, float}.isdisjoint(allowed), bool in allowed
    if isinstance(value, bool):
        if not truth:
            words = literals and not numeric
            quoted = "; in YAML on, off, yes and no are no words unless quoted" if words else ""
            raise ConfigError(f"{key} is {value!r}", hint=f"expected {_names(allowed)}{quoted}")
    elif isinstance(value, str) and (numeric or truth) and value not in literals:
        raise ConfigError(f"{key} is the text {value!r}", hint=f"expected {_names(allowed)}")
    elif truth:
        raise ConfigError(f"{key} is {value!r}", hint="expected true or false")


def _translated(error: pydantic.ValidationError, kind: type[object], where: str) -> ConfigError:
    first = error.errors()[0]
    names, wanted = _named(kind, first["loc"])
    expected = first.get("ctx", {}).get("expected", first["msg"].removeprefix("Input should be "))
    key = ".".join([where, *names])
    return ConfigError(
        f"{key} is {first['input']!r:.80}", hint=f"expected {shown(range_of(wanted) or expected)}"
    )


def _named(kind: object, location: Sequence[int | str]) -> tuple[list[str], object]:
    """The keys on the way to a value, without pydantic's own words, and the type that stands there."""
    names: list[str] = []
    for part in location:
        if not (isinstance(kind, type) and is_dataclass(kind)):
            break
        names.append(str(part))
        kind = get_type_hints(kind, include_extras=True)[str(part)]
    return names, kind


def _names(allowed: tuple[object, ...]) -> str:
    words = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "a text",
        type(None): "null",
    }
    told = [
        repr(kind) if isinstance(kind, str) else words.get(kind, getattr(kind, "__name__", str(kind)))  # type: ignore[call-overload]
        for kind in allowed
        if not literals_of(kind)
    ]
    return shown(" or ".join(told + [repr(literal) for kind in allowed for literal in literals_of(kind)]))
