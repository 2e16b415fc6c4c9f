"""Which of this machine's GPUs a training job of this Python would compute on; torch is not imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from perseus_ds.cli.job.job_config import Finding
from perseus_ds.cli.machine.local_gpus import LocalGpus

VARIABLE = "CUDA_VISIBLE_DEVICES"
_ORDER = "CUDA_DEVICE_ORDER"
_BY_BUS = "PCI_BUS_ID"
_SLICE = "MIG-"


def visible_gpus(found: LocalGpus, environment: Mapping[str, str]) -> LocalGpus:
    """Return the GPUs that ``CUDA_VISIBLE_DEVICES`` leaves, those that cannot be opened among them."""
    value = environment.get(VARIABLE)
    if value is None:
        return found
    uuids = {gpu.identity.index: gpu.identity.uuid for gpu in found.gpus}
    uuids |= {refused.index: "" for refused in found.refused if refused.index is not None}
    left = _left_by(value, [uuids[index] for index in sorted(uuids)])
    return LocalGpus(
        tuple(gpu for gpu in found.gpus if gpu.identity.index in left),
        tuple(refused for refused in found.refused if refused.index is None or refused.index in left),
    )


def findings_of_visibility(found: LocalGpus, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Return why jobs would train on the CPU, or on other GPUs than the numbers here suggest."""
    if torch_has_gpus() is False:
        yield Finding(
            "this Python's torch is built without CUDA: jobs train on the CPU, and no clock is set",
            "install a build of torch with CUDA (pytorch.org/get-started)",
        )
    value, visible = environment.get(VARIABLE), visible_gpus(found, environment)
    if value is None or not found.known:
        return
    if value.startswith(_SLICE):
        yield Finding(
            f"{VARIABLE}={value} names MIG slices, which have no clock or energy of their own",
            "name whole GPUs",
        )
    elif not visible.known:
        yield Finding(
            f"{VARIABLE}={value} leaves no GPU: jobs train on the CPU, and no clock is set",
            f"unset {VARIABLE}, or name GPUs that are here",
        )
    elif (
        not value.startswith("GPU-")
        and len({gpu.identity.name for gpu in found.gpus}) > 1
        and visible.known < found.known
        and environment.get(_ORDER) != _BY_BUS
    ):
        yield Finding(
            f"{VARIABLE}={value} counts GPUs of several models with the fastest first, maybe not as here",
            f"{_ORDER}={_BY_BUS}, or name them by UUID",
        )


def torch_has_gpus() -> bool | None:
    """Whether the installed torch is built for CUDA or HIP, by its ``version.py``; None where none tells."""
    spec = PathFinder.find_spec("torch")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        try:
            tree = ast.parse(Path(folder, "version.py").read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError):
            continue
        values = dict(_assigned(tree))
        if "cuda" in values:
            return bool(values["cuda"] or values.get("hip"))
    return None


def _assigned(tree: ast.Module) -> Iterator[tuple[str, object]]:
    for line in tree.body:
        targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
        value = getattr(line, "value", None)
        if isinstance(value, ast.Constant):
            yield from ((target.id, value.value) for target in targets if isinstance(target, ast.Name))


def _left_by(value: str, uuids: Sequence[str]) -> list[int]:
    """Read the variable as torch does: the first wrong entry ends the list, a repeated one empties it.

    Source: ``_parse_visible_devices``, ``_transform_uuid_to_ordinals`` of torch/cuda/__init__.py@2.13.
    """
    by_uuid = value.startswith("GPU-")
    left: list[int] = []
    for entry in value.split(","):
        if by_uuid:
            matches = [index for index, uuid in enumerate(uuids) if uuid.startswith(entry)]
            index = matches[0] if entry.startswith("GPU-") and len(matches) == 1 else -1
        else:
            digits = re.match(r"[+-]?\d+", entry.strip())
            index = int(digits[0]) if digits else -1
        if index in left:
            return []
        if not 0 <= index < len(uuids):
            break
        left.append(index)
    return left
