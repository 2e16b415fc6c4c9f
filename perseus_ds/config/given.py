"""What stands behind ``--deepspeed_config``: a file, or the configuration itself in base64."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from os.path import exists
from pathlib import Path

from perseus_ds.errors import ConfigError, PerseusError
from perseus_ds.files import read_bounded

MOST_BYTES = 256 << 10
"""It is read by a parser in Python: more would take seconds."""


_URL_SAFE = str.maketrans("-_", "+/")


@dataclass(frozen=True, slots=True)
class GivenConfig:
    """A configuration as the user gave it; ``name`` is what messages call it."""

    name: str
    text: str


def given_config(source: str | Path) -> GivenConfig:
    """Read a file where there is one of that name, else decode base64, as DeepSpeed does.

    gpt-neox writes its configuration into the command line that way.

    Raises:
        ConfigError: it is neither, or too large.
    Source: deepspeed/runtime/config.py @ 0.19.8, ``DeepSpeedConfig.__init__``.
    """
    there = exists(source)  # noqa: PTH110  # Path.exists raises where a word is too long for a name
    if not there and (text := _decoded(str(source))) is not None:
        if len(text) > MOST_BYTES:
            raise ConfigError(f"--deepspeed_config in base64 is longer than {MOST_BYTES} bytes")
        return GivenConfig("--deepspeed_config in base64", text)
    try:
        return GivenConfig(str(source), read_bounded(Path(source), most_bytes=MOST_BYTES).decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{source!s:.200}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source} is not JSON or is cut short: {error!s:.200}") from error
    except PerseusError as error:
        raise ConfigError(f"{source} {error.message}", hint=error.hint) from error


def each_once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Make an object of its keys and values.

    Raises:
        ValueError: a key stands there twice.
    """
    twice = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]
    if twice:
        raise ValueError(f"{twice[0]!r:.40} stands there twice")
    return dict(pairs)


def _decoded(word: str) -> str | None:
    """Decode base64, either alphabet; None where the text is not base64."""
    try:
        return base64.b64decode(word.translate(_URL_SAFE), validate=True).decode()
    except (binascii.Error, ValueError):
        return None
