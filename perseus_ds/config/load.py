"""From the DeepSpeed JSON and the environment to one checked ``PerseusConfig``."""

from __future__ import annotations

import base64
import binascii
import difflib
import hashlib
import importlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from os.path import exists
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import hjson  # type: ignore[import-untyped]  # no stubs
import yaml  # type: ignore[import-untyped]  # no stubs
from annotated_types import Ge, GroupedMetadata, Gt, Le, MinLen

from perseus_ds.config.settings import PerseusConfig
from perseus_ds.errors import ConfigError, PerseusError
from perseus_ds.files import read_bounded, reason_of

if TYPE_CHECKING:
    import pydantic

# What stands behind ``--deepspeed_config``: a file, or the configuration itself in base64.

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


# A number's range in words, read off its annotation.


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


# The word "automatic", which stands for "auto" in every key and flag.
#
# HF Trainer and Accelerate end a job whose DeepSpeed JSON holds the word "auto" where they do not know
# the key.
# So a block must be able to do without it.
# Source: accelerate/utils/dataclasses.py @ 1.15.0, ``DeepSpeedPlugin.fill_match``.

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


# Keys of the block that earlier releases had, each with what to do instead.

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
    "metrics.every_s": "delete it: numbers are written every 15 seconds",
    "metrics.otlp": "delete it: a collector of OpenTelemetry scrapes `metrics.port` as Prometheus does",
}
"""By full name below ``perseus``, or by name and value; the remedy ends the refusal."""

# Turn a mapping from outside into a record: unknown keys and wrong types refused, with the key named.

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


# The ``perseus`` block in a file of its own: for jobs whose configuration is built in code.

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


# The user's own function for the loads of coming iterations: set in code, or named in the block.

LoadFunction = Callable[[int, int], object]
"""(iteration, microbatches) -> one entry a microbatch: its tokens, or a list of its sequences' lengths."""

_set: list[LoadFunction] = []


def set_function(function: LoadFunction | None) -> None:
    """Keep a function for the jobs of this process; None forgets it.

    Raises:
        ConfigError: it cannot be called.
    """
    if function is not None and not callable(function):
        raise ConfigError(f"set_load was given {function!r:.80}", hint="expected a function")
    _set[:] = [] if function is None else [function]


def load_function(named: str | None) -> LoadFunction | None:
    """Return the function that was set in code, else the one of a dotted name; None without either.

    Raises:
        ConfigError: there is no such function.
    """
    if _set or named is None:
        return _set[0] if _set else None
    module, _, name = named.replace(":", ".").rpartition(".")
    key = f"perseus.straggler.set_load is {named!r:.200}"
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # a user's module may raise anything
        why = f"{type(error).__name__}: {error!s:.200}"
        raise ConfigError(f"{key}: {why}", hint='expected "module.function"') from error
    if not callable(found):
        raise ConfigError(f"{key}, which is no function", hint='expected "module.function"')
    function: LoadFunction = found
    return function
