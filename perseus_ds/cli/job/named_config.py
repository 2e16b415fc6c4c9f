"""Which configuration a job's command line names: as DeepSpeed, Hugging Face or gpt-neox let one name it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml  # type: ignore[import-untyped]  # no stubs

from perseus_ds.config.given import MOST_BYTES
from perseus_ds.errors import ConfigError, PerseusError
from perseus_ds.files import read_bounded, reason_of

_DEEPSPEED = ("--deepspeed_config", "--deepspeed-config")
_HUGGING_FACE = "--deepspeed"
_ACCELERATE_FILE = "--deepspeed_config_file"
_ACCELERATE_YAML = "--config_file"
_NEOX_LAUNCHER, _NEOX_FOLDER = "deepy.py", ("-d", "--conf_dir")


def deepspeed_config_of(command: Sequence[str]) -> str | None:
    """Find the DeepSpeed JSON, a file's name or base64, that a job's command line names.

    By DeepSpeed's own ``--deepspeed_config``, by Hugging Face's ``--deepspeed ds.json`` (elsewhere a switch
    without a value), by ``accelerate launch --deepspeed_config_file``, or in the YAML of its
    ``--config_file``.

    Raises:
        ConfigError: a flag is the last word, or Accelerate's YAML cannot be read.
    """
    for flag in _DEEPSPEED:
        if (named := _value_of(command, flag)) is not None:
            return named
    trainers = _value_of(command, _HUGGING_FACE, switch=True)
    if trainers is not None and (trainers.endswith(".json") or Path(trainers).is_file()):
        return trainers
    if not any(Path(word).name.startswith("accelerate") for word in command):
        return None
    if (named := _value_of(command, _ACCELERATE_FILE)) is not None:
        return named
    described = _value_of(command, _ACCELERATE_YAML)
    section = {} if described is None else _yaml(Path(described)).get("deepspeed_config")
    named = section.get("deepspeed_config_file") if isinstance(section, dict) else None
    return None if named is None else str(named)


def neox_block_of(command: Sequence[str]) -> tuple[str, object] | None:
    """Find the block in the YAML files of gpt-neox's ``deepy.py train.py``, and the file that holds it.

    Raises:
        ConfigError: a file cannot be read.
    Source: ``NeoXArgs.consume_deepy_args`` of gpt-neox: files lie in ``--conf_dir``, ".yml" may be left out.
    """
    found = None
    for file in _neox_files(command):
        extra = _yaml(file).get("deepspeed_extra_args")
        if isinstance(extra, dict) and extra.get("perseus") is not None:
            found = str(file), extra["perseus"]
    return found


def _neox_files(command: Sequence[str]) -> Iterator[Path]:
    launcher = next((n for n, word in enumerate(command) if Path(word).name == _NEOX_LAUNCHER), None)
    if launcher is None:
        return
    words = command[launcher + 2 :]
    folders = (_value_of(words, flag) for flag in _NEOX_FOLDER)
    folder = Path(next((one for one in folders if one is not None), "."))
    for word in words:
        name = word if Path(word).suffix in {".yml", ".yaml"} else f"{word}.yml"
        if (folder / name).is_file():
            yield folder / name


def _value_of(command: Sequence[str], wanted: str, *, switch: bool = False) -> str | None:
    """Return a flag's value; of a ``switch``, which needs none, the next word unless that is a flag.

    Raises:
        ConfigError: the flag is the last word and no switch.
    """
    for position, word in enumerate(command):
        flag, equals, value = word.partition("=")
        if flag != wanted:
            continue
        if equals:
            return value
        following = command[position + 1 : position + 2]
        if not following and not switch:
            raise ConfigError(f"{flag} names no file", hint=f"{flag} ds.json")
        return next((one for one in following if not (switch and one.startswith("-"))), None)
    return None


def _yaml(file: Path) -> dict[str, object]:
    """Read a YAML file, or a JSON one.

    Raises:
        ConfigError: it cannot be read, or holds something else.
    """
    try:
        content = yaml.safe_load(read_bounded(file, most_bytes=MOST_BYTES))
    except (OSError, PerseusError) as error:
        raise ConfigError(f"{file} {reason_of(error)}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{file} is no YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{file} is no configuration", hint="expected keys and values")
    return content
