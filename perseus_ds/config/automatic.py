"""The word "automatic", which stands for "auto" in every key and flag.

HF Trainer and Accelerate end a job whose DeepSpeed JSON holds the word "auto" where they do not know the key.
So a block must be able to do without it.
Source: accelerate/utils/dataclasses.py @ 1.15.0, ``DeepSpeedPlugin.fill_match``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TypeVar, get_type_hints

from perseus_ds.config.ranges import literals_of

Value = TypeVar("Value")

AUTO = "auto"
AUTOMATIC = "automatic"


def auto_of(word: Value) -> Value | str:
    """Return "auto", as records hold it, for "automatic", and anything else as it is."""
    return AUTO if word == AUTOMATIC else word


def shown(text: str) -> str:
    """Return a word, or a message with such words in quotes, as users should write it."""
    return AUTOMATIC if text == AUTO else text.replace(f"'{AUTO}'", f"'{AUTOMATIC}'")


@cache
def hints_of(kind: type[object]) -> Mapping[str, object]:
    """Return the annotations of a dataclass: resolved once, since that is dear."""
    return get_type_hints(kind)


def with_auto(kind: type[object], block: Mapping[str, object]) -> dict[str, object]:
    """Replace "automatic" by "auto" in every key of the dataclass ``kind`` that takes it, sections included.

    So is null where the default is "auto", except where "null" is another value of the key.
    """
    hints = hints_of(kind)  # type: ignore[arg-type]  # types are hashable
    defaults = {f.name: f.default for f in fields(kind)}  # type: ignore[arg-type]  # records are dataclasses
    return {key: _value(hints.get(key), defaults.get(key), value) for key, value in block.items()}


def _value(wanted: object, default: object, value: object) -> object:
    if isinstance(wanted, type) and is_dataclass(wanted) and isinstance(value, Mapping):
        return with_auto(wanted, value)
    words = literals_of(wanted)
    if AUTO not in words:
        return value
    unset = value is None and default == AUTO and "null" not in words
    return AUTO if unset else auto_of(value)
