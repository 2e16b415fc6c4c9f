"""Read the ``perseus`` block from a DeepSpeed JSON or a file of its own, and check it.

`load` reads a DeepSpeed configuration, `read_block` the file that ``PERSEUS_CONFIG`` names, `parse` checks a
block against `settings` and lays the ``PERSEUS_*`` flags over it. pydantic checks, omegaconf reads YAML and
``${oc.env:NAME}``, hjson reads JSON with comments, as DeepSpeed does.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, get_type_hints

import pydantic

from perseus_ds.config.settings import AUTOMATIC, Objective, PerseusConfig
from perseus_ds.errors import ConfigError, PerseusError
from perseus_ds.files import read_bounded, reason_of

ENABLED_BY_FILE = "PERSEUS_CONFIG"
"""The variable that names a file with the block, and switches the plugin on where it is set."""
FLAGS = {
    "PERSEUS_MODE": "mode",
    "PERSEUS_DEVICE": "device",
    "PERSEUS_RUN_DIR": "run_dir",
    "PERSEUS_TRACE_KERNELS": "trace_kernels",
}
MAX_BYTES = 256 << 10
"""The parsers are written in Python: a larger file would take seconds."""
REMOVED_KEYS = {
    "profile.target_error_pct": "five clocks at fixed places are measured: delete the key;"
    " `profile.max_clocks` takes fewer",
    "profile.budget_s": "five clocks at fixed places are measured: delete the key; `profile.max_clocks` and"
    " `profile.min_window_s` shorten the sweep",
    "device: zeusd": "run `perseus-ds guardd` on the node, which does the same, and state `guardd`",
    "report": "prices are options of the report: delete the section, and run `perseus-ds report RUN_DIR"
    " --price-per-kwh P --gco2-per-kwh G --pue X`",
    "profile.drift": "profiles are not measured again while a plan runs: delete the key; audits report what"
    " no longer fits, and the job profiles anew where `profile.json` is deleted",
    "objective.feedback": "plans no longer correct themselves: delete the key; `objective.reserve_pct` keeps"
    " a reserve for durations that vary",
    "power": "delete it; `perseus-ds notify RUN_DIR --power-cap W` caps a running job's mean power, and"
    " `policy: power_cap` one pipeline's from the start",
    "straggler.peers": "delete it; a slow GPU within a replica makes the replica a straggler beside others",
    "straggler.set_load": "write `straggler.loads: module.function`",
    "straggler.read_ahead": "write `straggler.loads: read_ahead`, or delete the key",
    "straggler.load_limit_s": "delete it: the function of `straggler.loads` may take 0.1 s",
    "metrics.every_s": "delete it: numbers are written every 15 seconds",
    "metrics.otlp": "delete it: a collector of OpenTelemetry scrapes `metrics.port` as Prometheus does",
}
"""Keys of earlier releases, by full name below ``perseus`` or by name and value, with the remedy."""
T = TypeVar("T")
_SIMILAR_NAMES = ("perseus", "perseus_ds", "perseus-ds")
_VARIABLE = re.compile(r"\$\{\s*oc\.env\s*:\s*(\w+)\s*\}")
_OTHER_BRACES = re.compile(r"(?<!\\)\$\{(?!\s*oc\.env\s*:)([^{}]*)")
_PARAMETER = {"max_slowdown": "max_slowdown_pct", "deadline": "deadline_s", "power_cap": "power_cap_w"}


def is_enabled(deepspeed_config: Mapping[str, object]) -> bool:
    """Return whether the job asks for the plugin; what is no mapping counts, so that it is refused."""
    block = deepspeed_config.get("perseus")
    if block is None:
        return False
    return not isinstance(block, Mapping) or block.get("enabled", False) is not False


def load(source: str | Path, environment: Mapping[str, str]) -> PerseusConfig | None:
    """Read the block of a DeepSpeed configuration, a file or base64; None when it does not ask for us.

    Raises:
        ConfigError: it cannot be read, or its block is refused.
    """
    name, content = read_deepspeed_json(source)
    if not is_enabled(content):
        if "perseus" not in content and (close := [key for key in content if key.lower() in _SIMILAR_NAMES]):
            raise ConfigError(f"{name}: {close[0]} is not a known block", hint="did you mean perseus?")
        return None
    try:
        return parse(content["perseus"], environment)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error.message}", hint=error.hint) from error


def parse(block: object, environment: Mapping[str, str]) -> PerseusConfig:
    """Check the block; ``PERSEUS_*`` flags in ``environment`` win over it.

    ``${oc.env:NAME}`` inside a value is replaced by that environment variable, and ``~`` at the beginning of
    a path by the home directory.

    Raises:
        ConfigError: naming the key, its value and what is allowed.
    """
    if not isinstance(block, Mapping):
        raise ConfigError(f"perseus is {block!r:.80}", hint='expected a block like {"enabled": true}')
    flags: dict[str, object] = {
        key: environment[name] for name, key in FLAGS.items() if environment.get(name)
    }
    if str(flags.get("trace_kernels", "")).isdecimal():
        flags["trace_kernels"] = int(str(flags["trace_kernels"]))
    config = parse_keys(resolve({**block, **flags}), PerseusConfig, flags=flags)
    check_objective(config.objective)
    return config


def parse_keys(
    content: Mapping[str, object],
    kind: type[T],
    *,
    section: str = "",
    prefix: str = "perseus.",
    flags: Mapping[str, object] = MappingProxyType({}),
) -> T:
    """Check keys of a ``section`` against a record; a refusal names a key behind ``prefix`` or its flag.

    Raises:
        ConfigError: naming the key, its value and what is allowed.
    """
    text = json.dumps(_current(content, section), default=str)
    try:  # strict validation of Python values would ask for instances of our classes
        return pydantic.TypeAdapter(kind).validate_json(text, strict=True)
    except pydantic.ValidationError as error:
        raise _refusal(error, kind, prefix, flags) from error


def _current(block: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Refuse keys that were removed, and write "auto" as "automatic"."""
    content: dict[str, object] = {}
    for key, value in block.items():
        name = f"{prefix}{key}"
        for removed in (name, f"{name}: {value}"):
            if removed in REMOVED_KEYS:
                raise ConfigError(f"perseus.{removed} was removed", hint=REMOVED_KEYS[removed])
        if isinstance(value, Mapping) and name != "simulated":
            content[key] = _current(value, f"{name}.")
        else:
            content[key] = AUTOMATIC if value == "auto" else value
    return content


def _refusal(
    error: pydantic.ValidationError, record: type, prefix: str, flags: Mapping[str, object]
) -> ConfigError:
    """Put the first thing that pydantic complains of into one line: the key, its value, what is allowed."""
    found = error.errors(include_url=False)
    first, names = found[0], list[str]()
    section: Any = record
    kind: Any = record
    for part in first["loc"]:  # parts of a union follow the key
        if not is_dataclass(kind):
            break
        section = kind
        names.append(str(part))
        kind = get_type_hints(kind).get(str(part))
    flag = next((f"{flag}: " for flag, key in FLAGS.items() if [key] == names and key in flags), "")
    key = flag + prefix + ".".join(names)
    if first["type"] == "unexpected_keyword_argument":
        known = [one.name for one in fields(section)]
        close = difflib.get_close_matches(names[-1], known, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        return ConfigError(f"{key} is not a known key", hint=f"{hint}known: {', '.join(known)}")
    same = [one for one in found if [*map(str, one["loc"])][: len(names)] == names]
    allowed = " or ".join(dict.fromkeys(_strip_prefix(one["msg"]) for one in same))
    yaml_words = isinstance(first["input"], bool) and "'" in allowed
    quoted = "; in YAML on, off, yes and no are no words unless quoted" if yaml_words else ""
    return ConfigError(f"{key} is {first['input']!r:.80}", hint=f"expected {allowed}{quoted}")


def _strip_prefix(message: str) -> str:
    return message.removeprefix("Input should be ").removeprefix("Value error, ").removeprefix("String ")


def check_objective(objective: Objective, prefix: str = "perseus.objective.") -> None:
    """Refuse a policy without its parameter, one of another policy, and what no plan can be made of.

    Raises:
        ConfigError: naming the keys, each behind ``prefix``.
    """
    limits = [key for key in ("changes_per_s", "node_changes_per_s") if getattr(objective, key) is not None]
    if objective.timelines is not None and limits:
        raise ConfigError(
            f"{prefix}timelines and {prefix}{limits[0]} are set: kernels are not planned within a budget of"
            " changes",
            hint="keep one of them",
        )
    for policy, name in _PARAMETER.items():
        value = getattr(objective, name)
        if objective.policy == policy and value is None:
            raise ConfigError(f"{prefix}policy is {policy!r} and {prefix}{name} is not set")
        if objective.policy != policy and value is not None:
            raise ConfigError(
                f"{prefix}{name} is {value} and {prefix}policy is {objective.policy!r}",
                hint=f"it belongs to policy {policy!r}",
            )


def resolve(block: Mapping[str, object]) -> dict[str, object]:
    """Replace ``${oc.env:NAME}`` and ``${oc.env:NAME,default}`` inside every text.

    Raises:
        ConfigError: naming the key whose variable is not set, or that holds ``${...}`` of another kind.
    """
    return {str(name): _replace_variables(value, f"perseus.{name}") for name, value in block.items()}


def _replace_variables(value: object, key: str) -> object:
    if isinstance(value, Mapping):
        return {str(name): _replace_variables(inner, f"{key}.{name}") for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_variables(inner, f"{key}.{place}") for place, inner in enumerate(value)]
    if not isinstance(value, str) or "${" not in value:
        return value
    from omegaconf import OmegaConf  # noqa: PLC0415  # a tenth of a second that only its users pay
    from omegaconf.errors import OmegaConfBaseException  # noqa: PLC0415

    if other := _OTHER_BRACES.search(value):
        name = re.search(r"[A-Za-z_]\w*", other[1].removeprefix("env:"))
        hint = f"an environment variable is written ${{oc.env:{name[0] if name else 'NAME'}}}"
        raise ConfigError(f"{key} is {value!r:.200}", hint=hint)
    try:
        return OmegaConf.create({"value": value}).value
    except OmegaConfBaseException as error:
        unset = [name for name in _VARIABLE.findall(value) if name not in os.environ]
        why = f"the environment has no {unset[0]}" if unset else str(error).splitlines()[0]
        raise ConfigError(f"{key} is {value!r:.200}: {why}") from error


def _read_source(source: str | Path) -> tuple[str, str]:
    """Return the name and the text of a DeepSpeed configuration: a file of that name, else base64.

    gpt-neox writes its configuration into the command line in base64, and DeepSpeed decodes it.

    Raises:
        ConfigError: it is neither, or too large.
    Source: deepspeed/runtime/config.py @ 0.19.8, ``DeepSpeedConfig.__init__``.
    """
    if not os.path.exists(source):  # noqa: PTH110  # Path.exists raises where a word is too long for a name
        with suppress(binascii.Error, ValueError):
            text = base64.b64decode(str(source).translate(str.maketrans("-_", "+/")), validate=True).decode()
            if len(text) > MAX_BYTES:
                raise ConfigError(f"--deepspeed_config in base64 is longer than {MAX_BYTES} bytes")
            return "--deepspeed_config in base64", text
    return str(source), _text_of(source, f"{source!s:.200}")


def _text_of(file: str | Path, name: str) -> str:
    """Read a text of bounded size; whatever keeps it from being read becomes one line with its name."""
    try:
        return read_bounded(Path(file), most_bytes=MAX_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} is not JSON or YAML: {error!s:.200}") from error
    except (OSError, PerseusError) as error:
        hint = error.hint if isinstance(error, PerseusError) else None
        raise ConfigError(f"{name} {reason_of(error)}", hint=hint) from error


def read_deepspeed_json(source: str | Path) -> tuple[str, dict[str, object]]:
    """Return the name and the content of a DeepSpeed configuration, a file or base64, comments and all.

    Raises:
        ConfigError: it cannot be read, is too large to be one, or is no JSON object.
    Source: deepspeed/runtime/config.py @ 0.19.8, which reads with hjson and refuses duplicate keys.
    """
    name, text = _read_source(source)
    content = _parse(name, text)
    if not isinstance(content, dict):
        raise ConfigError(f"{name} is not a DeepSpeed configuration", hint="expected a JSON object")
    return name, content


def read_block(path: str | Path) -> dict[str, object]:
    """Read a block from a file of its own, JSON (comments allowed) or YAML; `parse` checks it.

    Raises:
        ConfigError: the file is missing, cut short, or holds something else.
    """
    file = Path(path)
    name, is_yaml = f"{ENABLED_BY_FILE}={file}", file.suffix in {".yaml", ".yml"}
    text = _text_of(file, name)
    content = _parse(name, text, is_yaml=is_yaml)
    if not isinstance(content, dict):
        raise ConfigError(f"{name} is not a block", hint='expected {"run_dir": ...}')
    if not content and "{" not in text:
        raise ConfigError(f"{name} is empty", hint="{} is a block of defaults")
    if is_yaml and content.get("mode") is False:
        content["mode"] = "off"  # YAML 1.1 reads the word as false
    return {str(key): value for key, value in content.items()}


def _parse(name: str, text: str, *, is_yaml: bool = False) -> object:
    """Read YAML, or JSON with comments; what cannot be read becomes one line that names the file."""
    try:
        return _yaml(text) if is_yaml else _json(text)
    except RecursionError as error:
        raise ConfigError(f"{name} is nested too deeply") from error
    except OverflowError as error:
        too_large = f"{name} has a number that no computer can hold"
        raise ConfigError(too_large, hint="1e308 is the largest") from error
    except ValueError as error:
        why = str(error).splitlines()[0][:200]
        raise ConfigError(f"{name} is not JSON or YAML, or is cut short: {why}") from error


def _json(text: str) -> object:
    import hjson  # type: ignore[import-untyped]  # noqa: PLC0415  # no stubs; only for who reads a block

    return hjson.loads(text, object_pairs_hook=_unique_keys)


def _yaml(text: str) -> object:
    """Read YAML by omegaconf, without aliases: they make a short text endless, and no block needs them."""
    import yaml  # type: ignore[import-untyped]  # noqa: PLC0415  # no stubs; as above
    from omegaconf import OmegaConf  # noqa: PLC0415  # as above
    from omegaconf.errors import OmegaConfBaseException  # noqa: PLC0415

    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
            raise ValueError("it repeats a part by an alias (*); write it out")
        return OmegaConf.to_container(OmegaConf.create(text), resolve=False)
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        problem = error.problem if isinstance(error, yaml.constructor.ConstructorError) else None
        raise ValueError(str(problem or error)) from error


def _unique_keys(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    twice = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]
    if twice:
        raise ValueError(f"{twice[0]!r:.40} stands there twice")
    return dict(pairs)


def text_digest(path: str | Path) -> str | None:
    """Return a digest of a file, to compare with another node's; None where it cannot be read."""
    try:
        return hashlib.sha256(read_bounded(Path(path), most_bytes=MAX_BYTES)).hexdigest()
    except (OSError, PerseusError):
        return None


def refuse_two_blocks(environment: Mapping[str, str]) -> None:
    """Refuse ``PERSEUS_CONFIG`` where the framework's own configuration has a block already.

    Raises:
        ConfigError: both are there.
    """
    if file := environment.get(ENABLED_BY_FILE):
        raise ConfigError(
            f"the configuration has a perseus block, and {ENABLED_BY_FILE}={file} names another",
            hint="keep one of them",
        )
