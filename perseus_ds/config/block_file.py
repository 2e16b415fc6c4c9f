"""The ``perseus`` block in a file of its own: for jobs whose configuration is built in code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import hjson  # type: ignore[import-untyped]  # no stubs
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]  # no stubs

from perseus_ds.errors import ConfigError

ENABLED_BY_FILE = "PERSEUS_CONFIG"
"""The variable that names the file, and switches us on where it is set."""


def read_block(path: str | Path) -> dict[str, object]:
    """Read a block from JSON (comments allowed) or YAML; what it means is for `parse` to say.

    Raises:
        ConfigError: the file is missing, torn, or holds something else.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
        if file.suffix in {".yaml", ".yml"}:
            content = OmegaConf.to_container(OmegaConf.create(text), resolve=False)
        else:
            content = hjson.loads(text)
    except OSError as error:
        raise ConfigError(f"{ENABLED_BY_FILE}={file}: {error.strerror}") from error
    except (ValueError, YAMLError, OmegaConfBaseException) as error:
        why = str(error).splitlines()[0]
        raise ConfigError(f"{ENABLED_BY_FILE}={file} is no JSON or YAML, or is cut short: {why}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{ENABLED_BY_FILE}={file} is no block", hint='expected {"run_dir": ...}')
    return {str(key): value for key, value in content.items()}


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
