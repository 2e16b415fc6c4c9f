"""How much a stage of a ``PipelineModule`` computes."""

from __future__ import annotations

from functools import partial

from perseus_ds.runtime.matmul_weight import Module, matmul_weight


def weight_of_stage(module: object) -> float:
    """Count the weights that multiply on this stage.

    An embedding counts only where a tied layer brings its own forward function
    (``TiedLayerSpec(forward_fn=...)``: the language-model head). What is neither module nor tied layer weighs
    nothing.

    Source: ``PipelineModule.forward_funcs``, deepspeed/runtime/pipe/module.py@0.19.8.
    """
    layers = getattr(module, "forward_funcs", None)
    return float(sum(_weight_of_layer(layer) for layer in ([module] if layers is None else layers)))


def _weight_of_layer(layer: object) -> int:
    if isinstance(layer, partial):
        return sum(matmul_weight(tied, embeddings=True) for tied in layer.args if isinstance(tied, Module))
    return matmul_weight(layer) if isinstance(layer, Module) else 0
