"""From the DeepSpeed JSON and the environment to one checked ``PerseusConfig``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import hjson  # type: ignore[import-untyped]  # no stubs

from perseus_ds.config.given import each_once, given_config
from perseus_ds.config.settings import PerseusConfig
from perseus_ds.config.strict import record_of
from perseus_ds.errors import ConfigError

FLAGS = {
    "PERSEUS_MODE": "mode",
    "PERSEUS_DEVICE": "device",
    "PERSEUS_RUN_DIR": "run_dir",
    "PERSEUS_TRACE_KERNELS": "trace_kernels",
}
_NEARLY = ("perseus", "perseus_ds", "perseus-ds")
_SHELL_VARIABLE = re.compile(r"\$([A-Za-z_]\w*)")
_FOREIGN = re.compile(r"(?<!\\)\$\{(?!\s*oc\.env\s*:)([^{}]*)")
_VARIABLE = re.compile(r"\$\{\s*oc\.env\s*:\s*(\w+)\s*\}")
_LIMITS = ("changes_per_s", "node_changes_per_s")
_PARAMETER = {"max_slowdown": "max_slowdown_pct", "deadline": "deadline_s", "power_cap": "power_cap_w"}


def is_enabled(deepspeed_config: Mapping[str, object]) -> bool:
    """Whether the job asks for us at all; a block that is not a mapping counts, so that it is refused."""
    block = deepspeed_config.get("perseus")
    if block is None:
        return False
    return not isinstance(block, Mapping) or block.get("enabled", False) is not False


def parse(block: object, environment: Mapping[str, str]) -> PerseusConfig:
    """Read the ``perseus`` block; ``PERSEUS_*`` flags in ``environment`` win over it.

    ``${oc.env:NAME}`` inside a value is replaced by that environment variable, and ``~`` at the begin of
    ``run_dir`` by the home directory.

    Raises:
        ConfigError: naming the key, its value and what is allowed.
    """
    if not isinstance(block, Mapping):
        raise ConfigError(f"perseus is {block!r}", hint='expected a block like {"enabled": true}')
    config = record_of(PerseusConfig, resolved(block), where="perseus")
    flags: dict[str, object] = {
        key: environment[name] for name, key in FLAGS.items() if environment.get(name)
    }
    if str(flags.get("trace_kernels", "")).isdecimal():
        flags["trace_kernels"] = int(str(flags["trace_kernels"]))
    if flags:
        names = ", ".join(name for name, key in FLAGS.items() if key in flags)
        config = record_of(PerseusConfig, resolved({**block, **flags}), where=f"with {names}, perseus")
    _check(config)
    return _with_paths(config)


def load(source: str | Path, environment: Mapping[str, str]) -> PerseusConfig | None:
    """Read the block of a DeepSpeed configuration, a file or base64; None when it does not ask for us.

    Comments are read over, as DeepSpeed does.

    Raises:
        ConfigError: it cannot be read, or its block is refused.
    Source: deepspeed/runtime/config.py @ 0.19.8, which reads with hjson and refuses duplicate keys.
    """
    content = read_deepspeed_json(source)
    if not is_enabled(content):
        if "perseus" not in content and (close := [key for key in content if key.lower() in _NEARLY]):
            raise ConfigError(
                f"{given_config(source).name}: {close[0]} is no block of ours", hint="did you mean perseus?"
            )
        return None
    try:
        return parse(content["perseus"], environment)
    except ConfigError as error:
        raise ConfigError(f"{given_config(source).name}: {error.message}", hint=error.hint) from error


def read_deepspeed_json(source: str | Path) -> dict[str, object]:
    """Read a DeepSpeed configuration, a file or base64, comments and all.

    Raises:
        ConfigError: it cannot be read, is too large to be one, or is no JSON object.
    """
    given = given_config(source)
    path = given.name
    try:
        content = hjson.loads(given.text, object_pairs_hook=each_once)
    except RecursionError as error:
        raise ConfigError(f"{path} is nested too deeply") from error
    except OverflowError as error:
        raise ConfigError(
            f"{path} has a number that no computer can hold", hint="1e308 is the largest"
        ) from error
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON or is cut short: {error!s:.200}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} is not a DeepSpeed configuration", hint="expected a JSON object")
    return content


def resolved(block: Mapping[str, object]) -> dict[str, object]:
    """Replace ``${oc.env:NAME}`` and ``${oc.env:NAME,default}`` inside every text.

    Raises:
        ConfigError: naming the key whose variable is not set, or that holds ``${...}`` of another kind.
    """
    return {str(name): _resolved(value, f"perseus.{name}") for name, value in block.items()}


def _resolved(value: object, key: str) -> object:
    if isinstance(value, Mapping):
        return {str(name): _resolved(inner, f"{key}.{name}") for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_resolved(inner, f"{key}.{place}") for place, inner in enumerate(value)]
    if not isinstance(value, str) or "${" not in value:
        return value
    from omegaconf import OmegaConf  # noqa: PLC0415  # a tenth of a second that only a reader of blocks pays
    from omegaconf.errors import OmegaConfBaseException  # noqa: PLC0415

    if foreign := _FOREIGN.search(value):
        name = re.search(r"[A-Za-z_]\w*", foreign[1].removeprefix("env:"))
        hint = f"an environment variable is written ${{oc.env:{name[0] if name else 'NAME'}}}"
        raise ConfigError(f"{key} is {value!r:.200}", hint=hint)
    try:
        plain = OmegaConf.to_container(OmegaConf.create({"value": value}), resolve=True)
    except OmegaConfBaseException as error:
        unset = [name for name in _VARIABLE.findall(value) if name not in os.environ]
        why = f"the environment has no {unset[0]}" if unset else str(error).splitlines()[0]
        raise ConfigError(f"{key} is {value!r:.200}: {why}") from error
    assert isinstance(plain, dict)
    return plain["value"]


def _check(config: PerseusConfig) -> None:
    """Refuse a policy without its parameter, one of another policy, and what no plan can be made of."""
    objective = config.objective
    limits = [key for key in _LIMITS if getattr(objective, key) is not None]
    if objective.timelines is not None and limits:
        raise ConfigError(
            f"perseus.objective.timelines and perseus.objective.{limits[0]} are set: timelines of kernels are"
            " not planned within a budget of changes",
            hint="keep one of them",
        )
    for policy, name in _PARAMETER.items():
        value = getattr(objective, name)
        key = f"perseus.objective.{name}"
        if objective.policy == policy and value is None:
            raise ConfigError(f"perseus.objective.policy is {policy!r} and {key} is not set")
        if objective.policy != policy and value is not None:
            raise ConfigError(
                f"{key} is {value} and perseus.objective.policy is {objective.policy!r}",
                hint=f"it belongs to policy {policy!r}",
            )


def _with_paths(config: PerseusConfig) -> PerseusConfig:
    """Expand the home directory in every key that names a file or a folder."""
    objective, metrics = config.objective, config.metrics
    if objective.timelines is not None:
        objective = replace(objective, timelines=_path(objective.timelines, "objective.timelines"))
    if metrics.folder is not None:
        metrics = replace(metrics, folder=_path(metrics.folder, "metrics.folder"))
    run_dir = _path(config.run_dir, "run_dir")
    return replace(config, run_dir=run_dir, objective=objective, metrics=metrics)


def _path(path: str, key: str) -> str:
    """Expand the home directory in a path.

    Raises:
        ConfigError: no file can have that name, nobody would see it, or it was meant for a shell.
    """
    if not path.strip() or not path.isprintable():
        raise ConfigError(f"perseus.{key} is {path!r:.80}", hint="expected the path of a file or folder")
    if variable := _SHELL_VARIABLE.search(path):
        hint = f"an environment variable is written ${{oc.env:{variable[1]}}}"
        raise ConfigError(f"perseus.{key} is {path!r:.200}", hint=hint)
    expanded = os.path.expanduser(path)  # noqa: PTH111  # a path would lose "./"
    if expanded.startswith("~"):
        raise ConfigError(f"perseus.{key} is {path!r:.200}", hint="there is no such home directory")
    return expanded
