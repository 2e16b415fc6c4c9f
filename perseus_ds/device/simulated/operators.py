"""Work of an operator on given shapes: floating-point operations, instructions, bytes.

Rough on purpose, and the same for every GPU: products by their tiles, all else by its elements. Lane
instructions per element are counted in the inner loops of llm.c's kernels, and rounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType

from perseus_ds.device.simulated.models import GpuModel
from perseus_ds.device.simulated.physics import KernelWork

TILE = 128
_PRODUCTS = ("gemm", "mm", "linear", "matmul", "conv", "einsum")
_BYTES = MappingProxyType(
    {"float16": 2, "bfloat16": 2, "half": 2, "float8": 1, "int8": 1, "int64": 8, "float64": 8}
)
# Lane instructions for each byte that moves; the first name that an operator's contains is taken.
_INSTRUCTIONS = MappingProxyType(
    {
        "softmax_backward": 22.0,
        "bwd softmax": 22.0,
        "fused_classifier": 17.0,
        "softmax": 11.5,
        "permute": 17.5,
        "transpose": 17.5,
        "copy": 10.0,
        "embedding_backward": 17.0,
        "embedding": 8.0,
        "bwd layernorm": 14.0,
        "layer_norm_backward": 14.0,
        "native_layer_norm": 11.0,
        "layernorm": 11.0,
        "residual": 10.0,
        "bwd gelu": 9.5,
        "gelu_backward": 9.5,
        "gelu": 7.5,
        "bias reduce": 24.0,
        "bias": 13.0,
        "sum": 13.0,
    }
)
_ANY_INSTRUCTIONS = 9.0
_DEPENDENT = ("bias reduce",)  # one chain of loads and additions, in a few blocks
_FEW_BLOCKS = 0.1
_SHORTEST_S = 1e-6  # no kernel is shorter, whatever it does
_PIPE_DEPTH = 32


def work_of_operator(model: GpuModel, name: str, shapes: Sequence[Sequence[int]], dtype: str) -> KernelWork:
    """Estimate the work of a launch.

    The two operands of a product are [..., m, k] and [..., k, n]; of other operators every argument is
    read, and the largest written once more.
    """
    arrays = [tuple(shape) for shape in shapes if shape]
    item = _BYTES.get(dtype.removeprefix("torch."), 4)
    if any(word in name.lower() for word in _PRODUCTS):
        operands = [shape for shape in arrays if len(shape) > 1][-2:]
        if len(operands) == 2:  # noqa: PLR2004  # two operands
            return _product(model, operands[0], operands[1], item, 2.0 if item > 2 else 1.0)  # noqa: PLR2004  # half precision
    sizes = [math.prod(shape) for shape in arrays] or [1]
    moved = item * (sum(sizes) + max(sizes))
    return _elements(model, name.lower(), float(moved))


def _product(
    model: GpuModel, left: Sequence[int], right: Sequence[int], item: int, slower: float
) -> KernelWork:
    """Tiles of a product in whole waves over the multiprocessors; dense products draw most power.

    Each wave is a square of tiles, whose operands are read once into the second-level cache. A short inner
    dimension leaves the pipes filling and draining.
    """
    roofline = model.roofline
    rows, depth, columns = left[-2], left[-1], right[-1]
    batch = math.prod(left[:-2])
    tiles = batch * math.ceil(rows / TILE) * math.ceil(columns / TILE)
    waves = math.ceil(tiles / roofline.processors)
    filled = depth / (depth + _PIPE_DEPTH)
    flops = 2.0 * waves * roofline.processors * TILE**2 * depth
    core_s = slower * flops / (roofline.product_flops * roofline.product_efficiency * filled)
    square = TILE * math.sqrt(roofline.processors)
    read = rows * depth * math.ceil(columns / square) + depth * columns * math.ceil(rows / square)
    moved = item * batch * (read + rows * columns / roofline.write_efficiency)
    return KernelWork(max(core_s, _SHORTEST_S), moved / roofline.bandwidth, intensity=filled)


def _elements(model: GpuModel, name: str, moved: float) -> KernelWork:
    roofline = model.roofline
    per_byte = next((count for word, count in _INSTRUCTIONS.items() if word in name), _ANY_INSTRUCTIONS)
    core_s = max(per_byte * moved / roofline.lane_instructions, _SHORTEST_S)
    if any(word in name for word in _DEPENDENT):
        return KernelWork(core_s, moved / roofline.bandwidth, roofline.lane_intensity, 1.0, _FEW_BLOCKS)
    return KernelWork(core_s, moved / roofline.bandwidth, roofline.lane_intensity)
