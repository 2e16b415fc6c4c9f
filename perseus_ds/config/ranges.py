"""A number's range in words, read off its annotation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args, get_origin

from annotated_types import Ge, GroupedMetadata, Gt, Le, MinLen


def range_of(wanted: object) -> str:
    """Describe what an annotated type allows: ``a number above 0, at most 1000``; empty without a range."""
    bounds = list(_bounds(wanted))
    if any(isinstance(bound, MinLen) for bound in bounds):
        return "a text that is not empty"
    words = [
        f"above {bound.gt:g}"
        if isinstance(bound, Gt)
        else f"at least {bound.ge:g}"
        if isinstance(bound, Ge)
        else f"at most {bound.le:g}"
        for bound in bounds
        if isinstance(bound, Gt | Ge | Le)
    ]
    if not words:
        return ""
    number = "a whole number" if int in _plain(wanted) else "a number"
    return " or ".join([f"{number} {' and '.join(words)}", *map(repr, literals_of(wanted))])


def literals_of(wanted: object) -> tuple[object, ...]:
    """The values that an annotation, or one of a union, names one by one; empty where there are none."""
    if get_origin(wanted) is Literal:
        return get_args(wanted)
    return tuple(literal for part in get_args(wanted) for literal in literals_of(part))


def _bounds(wanted: object) -> Iterator[object]:
    for part in get_args(wanted):
        yield from part if isinstance(part, GroupedMetadata) else _bounds(part)


def _plain(wanted: object) -> set[object]:
    """The types within an annotation or a union of such."""
    return {wanted} | {
        inner for part in get_args(wanted) for inner in _plain(part) if isinstance(inner, type)
    }
