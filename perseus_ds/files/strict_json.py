"""JSON of others: bounded in bytes, values and depth, finite in its numbers, each key once."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from perseus_ds.errors import PerseusError
from perseus_ds.files.read import read_bounded

MOST_VALUES = 600_000
_MOST_DIGITS = 18  # of a whole number: it fits into 64 bits, and into a double without an error
_LONGEST_REAL = 64


def read_json(
    path: Path,
    *,
    most_bytes: int,
    most_values: int = MOST_VALUES,
    writers: frozenset[int] | None = None,
    shared: bool = False,
) -> object:
    """Read a JSON file (see `read_bounded`, `parse_json`).

    Raises:
        OSError: it cannot be opened or read.
        PerseusError: it is refused; the message lacks the path.
    """
    text = read_bounded(path, most_bytes=most_bytes, writers=writers, shared=shared)
    return parse_json(text, most_values=most_values)


def parse_json(text: bytes | str, *, most_values: int = MOST_VALUES) -> object:
    """Parse strict JSON.

    Raises:
        PerseusError: it is no JSON, or none that anybody of ours wrote; the message lacks the path.
    Cost: about 1 us and at most 200 bytes for each value; too many are refused before they are made.
    """
    data = text.encode("utf-8", errors="surrogatepass") if isinstance(text, str) else text
    values = _count(data)
    if values > most_values:
        raise PerseusError(f"has about {values} values, {most_values} are allowed")
    try:
        content: object = json.loads(
            data.decode("utf-8-sig"),
            parse_float=_real,
            parse_int=_whole,
            parse_constant=_not_a_number,
            object_pairs_hook=_each_once,
        )
        if b"\\u" in data:
            json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise PerseusError("has half of a character, which nobody can print") from None
    except RecursionError:
        raise PerseusError("is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise PerseusError(f"is not text: byte {error.start} is no UTF-8") from error
    except json.JSONDecodeError as error:
        raise PerseusError(f"is not JSON or is cut short: {error}") from error
    return content


def _count(data: bytes) -> int:
    """An upper bound of the values in a text: each is a container's first, or follows a comma."""
    return 1 + data.count(b",") + data.count(b"[") + min(data.count(b"{"), data.count(b":"))


def _real(text: str) -> float:
    value = float(text) if len(text) <= _LONGEST_REAL else math.inf
    if not math.isfinite(value):
        raise PerseusError(f"has the number {text:.40}, which is too large or too long")
    return value


def _whole(text: str) -> int:
    if len(text.lstrip("-")) > _MOST_DIGITS:
        raise PerseusError(f"has a whole number of {len(text)} digits")
    return int(text)


def _not_a_number(text: str) -> float:
    raise PerseusError(f"has {text} where a number should be")


def _each_once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) != len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise PerseusError(f"has the key {twice!r:.40} twice")
    return content
