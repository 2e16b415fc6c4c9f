"""The ``perseus`` block in a file of its own: for jobs whose configuration is built in code."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import hjson  # type: ignore[import-untyped]  # no stubs
import yaml  # type: ignore[import-untyped]  # no stubs

from perseus_ds.config.given import MOST_BYTES, each_once
from perseus_ds.errors import ConfigError, PerseusError
from perseus_ds.files import read_bounded, reason_of

ENABLED_BY_FILE = "PERSEUS_CONFIG"
"""The variable that names the file, and switches us on where it is set."""


def read_block(path: str | Path) -> dict[str, object]:
    """Read a block from JSON (comments allowed) or YAML; what it means is for `parse` to state.

    Raises:
        ConfigError: the file is missing, torn, or holds something else.
    """
    from omegaconf import OmegaConf  # noqa: PLC0415  # a tenth of a second that only a reader of blocks pays
    from omegaconf.errors import OmegaConfBaseException  # noqa: PLC0415

    file = Path(path)
    is_yaml = file.suffix in {".yaml", ".yml"}
    try:
        text = read_bounded(file, most_bytes=MOST_BYTES).decode("utf-8-sig")
        if is_yaml:
            _refuse_aliases(text)
            content = OmegaConf.to_container(OmegaConf.create(text), resolve=False)
        else:
            content = hjson.loads(text, object_pairs_hook=each_once)
    except (OSError, PerseusError) as error:
        hint = error.hint if isinstance(error, PerseusError) else None
        raise ConfigError(f"{ENABLED_BY_FILE}={file} {reason_of(error)}", hint=hint) from error
    except RecursionError as error:
        raise ConfigError(f"{ENABLED_BY_FILE}={file} is nested too deeply") from error
    except OverflowError as error:
        raise ConfigError(f"{ENABLED_BY_FILE}={file} has a number that no computer can hold") from error
    except (ValueError, yaml.YAMLError, OmegaConfBaseException) as error:
        why = _first_line(error)
        raise ConfigError(f"{ENABLED_BY_FILE}={file} is no JSON or YAML, or is cut short: {why}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{ENABLED_BY_FILE}={file} is no block", hint='expected {"run_dir": ...}')
    if not content and "{" not in text:
        raise ConfigError(f"{ENABLED_BY_FILE}={file} is empty", hint="{} is a block of defaults")
    if is_yaml and content.get("mode") is False:
        content["mode"] = "off"  # what YAML 1.1 makes of the word
    return {str(key): value for key, value in content.items()}


def text_digest(path: str | Path) -> str | None:
    """A mark of what a file states, to compare with another node's; None where it cannot be read."""
    try:
        return hashlib.sha256(read_bounded(Path(path), most_bytes=MOST_BYTES)).hexdigest()
    except (OSError, PerseusError):
        return None


def _first_line(error: Exception) -> str:
    """What a parser complains of; of a YAML mapping what is wrong with it, not that it was being read."""
    problem = error.problem if isinstance(error, yaml.constructor.ConstructorError) else None
    return str(problem or error).splitlines()[0][:200]


def _refuse_aliases(text: str) -> None:
    """Refuse what a short text makes endless: no block of ours needs to repeat itself by name.

    Raises:
        PerseusError: there is one.
    """
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise PerseusError(f"repeats *{event.anchor}", hint="write it out")


def refuse_two_blocks(environment: Mapping[str, str]) -> None:
    """Refuse a file where the host's own configuration has a block already.

    Raises:
        ConfigError: both are there, and it is not for us to guess which one is meant.
    """
    if environment.get(ENABLED_BY_FILE):
        raise ConfigError(
            f"the configuration has a perseus block, and {ENABLED_BY_FILE}={environment[ENABLED_BY_FILE]} "
            "names another",
            hint="keep one of them",
        )
