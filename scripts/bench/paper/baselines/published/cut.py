"""The minimum cut of a graph whose arcs have lower and upper bounds.

Source: arXiv 2312.06902, algorithm 2; Ahuja, Magnanti, Orlin, "Network Flows", section 6.7 (lower bounds).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from perseus_ds.errors import SolverError

_ROOM = 1 << 29  # flows are int32: twice the sum of all bounds has to fit


def minimum_cut(
    tail: NDArray[np.int64],
    head: NDArray[np.int64],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    *,
    nodes: int,
) -> NDArray[np.bool_]:
    """Return which nodes are on the source's side; node 0 is the source, node 1 the sink.

    An upper bound may be infinite. Bounds become whole numbers, as fine as 32 bits allow.

    Raises:
        SolverError: no flow keeps the lower bounds.
    """
    finite = np.isfinite(upper)
    scale = _ROOM / max(float(lower.sum() + upper[finite].sum()), np.finfo(np.float64).tiny)
    low = np.floor(lower * scale).astype(np.int64)
    high = np.where(finite, np.floor(np.where(finite, upper, 0.0) * scale), _ROOM).astype(np.int64)
    between = _network(tail, head, np.maximum(high - low, 0), nodes)
    kept = maximum_flow(_with_demands(between, tail, head, low, nodes), nodes, nodes + 1)
    if kept.flow_value < int(low.sum()):
        raise SolverError(
            f"lower bounds of {int(low.sum())} units cannot be kept: at most {kept.flow_value}",
            hint="the costs are not convex",
        )
    flow = kept.flow[:nodes, :nodes]
    flow[1, 0] = flow[0, 1] = 0
    residual = csr_array(between - flow)
    residual.data[residual.data < 0] = 0
    residual.eliminate_zeros()
    most = maximum_flow(residual.astype(np.int32), 0, 1)
    return _reached(csr_array(residual - most.flow), nodes)


def _network(
    tail: NDArray[np.int64], head: NDArray[np.int64], capacity: NDArray[np.int64], nodes: int
) -> csr_array:
    """Build a square matrix; parallel arcs add up."""
    place = (tail.astype(np.int32), head.astype(np.int32))
    return csr_array(coo_array((capacity.astype(np.int32), place), shape=(nodes, nodes)).tocsr())


def _with_demands(
    between: csr_array, tail: NDArray[np.int64], head: NDArray[np.int64], low: NDArray[np.int64], nodes: int
) -> csr_array:
    """Add a source that brings what every arc must carry to its head, and a sink that takes it away."""
    brought = np.bincount(head, low, nodes).astype(np.int64)
    taken = np.bincount(tail, low, nodes).astype(np.int64)
    inner = between.tocoo()
    every = np.arange(nodes)
    tails = np.concatenate([inner.row, np.full(nodes, nodes), every, [1]])
    heads = np.concatenate([inner.col, every, np.full(nodes, nodes + 1), [0]])
    return _network(tails, heads, np.concatenate([inner.data, brought, taken, [2 * _ROOM]]), nodes + 2)


def _reached(residual: csr_array, nodes: int) -> NDArray[np.bool_]:
    residual.data[residual.data < 0] = 0
    residual.eliminate_zeros()
    side = np.zeros(nodes, dtype=np.bool_)
    side[breadth_first_order(residual, 0, return_predecessors=False)] = True
    return side
