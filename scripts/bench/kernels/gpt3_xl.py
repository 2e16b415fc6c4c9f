"""The 46 kernels of one GPT-3-XL iteration in llm.c, with their shapes, in the order of the paper's table.

GPT-3 XL: 24 layers, width 2048, 16 heads of 128, 2048 tokens, vocabulary 50 304 (padded), half precision.
"""

from __future__ import annotations

from perseus_ds.kernels import KernelClass, KernelTrace, LaunchSequence
from perseus_ds.schedule import Kind

LAYERS, WIDTH, HEADS, TOKENS, VOCABULARY = 24, 2048, 16, 2048, 50_304
HEAD = WIDTH // HEADS

Shapes = tuple[tuple[int, ...], ...]


def rows(batch: int) -> list[tuple[str, Shapes, str]]:
    """Name, operands and part of every row: a product has two operands, all else what it moves."""
    n = batch * TOKENS
    hidden, wide, fused = (n, WIDTH), (n, 4 * WIDTH), (n, 3 * WIDTH)
    scores = (batch * HEADS, TOKENS, TOKENS // 2)  # causal: half of the square is touched
    query, key = (batch * HEADS, TOKENS, HEAD), (batch * HEADS, HEAD, TOKENS)
    square = (batch * HEADS, TOKENS, TOKENS)
    norm_back = (hidden, hidden, hidden)
    return [
        ("embedding", (hidden,), "embedding"),
        ("layernorm", (hidden,), "embedding"),
        ("gemm", (hidden, (WIDTH, 3 * WIDTH)), "forward"),
        ("permute", (fused,), "forward"),
        ("gemm", (query, key), "forward"),
        ("softmax", (scores,), "forward"),
        ("gemm", (square, query), "forward"),
        ("permute", (hidden,), "forward"),
        ("gemm", (hidden, (WIDTH, WIDTH)), "forward"),
        ("residual", (hidden, hidden, hidden), "forward"),
        ("gemm", (hidden, (WIDTH, 4 * WIDTH)), "forward"),
        ("gelu", (wide,), "forward"),
        ("gemm", (wide, (4 * WIDTH, WIDTH)), "forward"),
        ("residual", (hidden, hidden, hidden), "forward"),
        ("gemm", (hidden, (WIDTH, VOCABULARY)), "loss"),
        ("fused_classifier", ((n, VOCABULARY),), "loss"),
        ("gemm", ((n, VOCABULARY), (VOCABULARY, WIDTH)), "loss"),
        ("gemm", ((VOCABULARY, n), hidden), "loss"),
        ("bwd layernorm", norm_back, "loss"),
        ("gelu", (wide,), "backward"),
        ("bwd bias", (hidden, (WIDTH,)), "backward"),
        ("bwd bias reduce", ((256, WIDTH),), "backward"),
        ("gemm", (hidden, (WIDTH, 4 * WIDTH)), "backward"),
        ("bwd gelu", (wide, wide), "backward"),
        ("gemm", ((4 * WIDTH, n), hidden), "backward"),
        ("bwd bias", (wide, (4 * WIDTH,)), "backward"),
        ("gemm", (wide, (4 * WIDTH, WIDTH)), "backward"),
        ("gemm", ((WIDTH, n), wide), "backward"),
        ("bwd layernorm", norm_back, "backward"),
        ("bwd bias", (hidden, (WIDTH,)), "backward"),
        ("bwd bias reduce", ((256, WIDTH),), "backward"),
        ("gemm", (hidden, (WIDTH, WIDTH)), "backward"),
        ("gemm", ((WIDTH, n), hidden), "backward"),
        ("permute", (hidden,), "backward"),
        ("gemm", (query, key), "backward"),
        ("gemm", (square, query), "backward"),
        ("bwd softmax", (scores, scores), "backward"),
        ("gemm", (square, query), "backward"),
        ("gemm", (square, query), "backward"),
        ("permute", (fused,), "backward"),
        ("bwd bias", (fused, (3 * WIDTH,)), "backward"),
        ("gemm", (fused, (3 * WIDTH, WIDTH)), "backward"),
        ("gemm", ((WIDTH, n), fused), "backward"),
        ("bwd layernorm", norm_back, "backward"),
        ("embedding_backward", (hidden,), "embedding backward"),
        ("embedding_backward", (hidden, hidden), "embedding backward"),
    ]


def trace_of(batch: int, stages: int = 1) -> KernelTrace:
    """One iteration: forward to the logits, backward from the loss; a class for each row of the table.

    Layers are shared evenly among the stages; the first has the embedding, the last the loss.
    """
    table = rows(batch)
    classes = tuple(
        KernelClass(name, shapes, "bfloat16", f"row {place}") for place, (name, shapes, _) in enumerate(table)
    )
    part = {
        name: [place for place, row in enumerate(table) if row[2] == name]
        for name in ("embedding", "forward", "loss", "backward", "embedding backward")
    }
    sequences = []
    for stage in range(stages):
        forward, backward = (part[name] * (LAYERS // stages) for name in ("forward", "backward"))
        if stage == 0:
            forward, backward = part["embedding"] + forward, backward + part["embedding backward"]
        if stage == stages - 1:
            forward, backward = forward + part["loss"][:1], part["loss"][1:] + backward
        sequences.append(LaunchSequence(stage, Kind.FORWARD, tuple(forward)))
        sequences.append(LaunchSequence(stage, Kind.BACKWARD, tuple(backward)))
    return KernelTrace(classes, tuple(sequences), fingerprint={"model": "GPT-3 XL, one iteration of llm.c"})
