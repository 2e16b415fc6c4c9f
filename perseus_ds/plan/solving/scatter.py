"""How much an iteration varies, as its computations varied in the profile."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from perseus_ds.plan.options import Options
from perseus_ds.plan.solving.reserve import variation_of
from perseus_ds.plan.solving.translation import Translation
from perseus_ds.profile import Computation, Profile
from perseus_ds.schedule import Dag

_DRAWS = 100
_MOST_NUMBERS = 1_000_000  # nodes times draws


def iteration_scatter_pct(profile: Profile, translation: Translation) -> float | None:
    """Relative standard deviation of an iteration at the highest clocks; None where the profile is silent."""
    variation = variation_of(profile)
    if variation is None:
        return None
    return scatter_pct(translation.dag, translation.options, translation.fixed_s, variation)


def scatter_pct(
    dag: Dag,
    options: Mapping[Computation, Options],
    fixed_s: Mapping[Computation, float],
    variation: Mapping[Computation, float],
) -> float:
    """Relative standard deviation of an iteration whose computations vary by these shares.

    All computations of a microbatch vary alike, as they do where its load makes them: what varies by itself
    scatters less. Durations are drawn log-normal.

    Cost: 100 passes over the graph, as vectors.
    """
    nodes = [(node.stage, node.kind) for node in dag.nodes]
    share = np.array([variation.get(key, 0.0) if key in options else 0.0 for key in nodes])
    mean_s = np.array([options[key].time_s[0] if key in options else fixed_s[key] for key in nodes])
    batch = np.array([max(0, node.microbatch) for node in dag.nodes])
    draws = max(20, min(_DRAWS, _MOST_NUMBERS // len(nodes)))
    normal = np.random.default_rng(0).standard_normal((int(batch.max()) + 1, draws))[batch]
    width = np.sqrt(np.log1p(share**2))[:, None]
    drawn_s = mean_s[:, None] * np.exp(width * normal - width**2 / 2.0)
    end_s = (dag.starts_of_many(drawn_s, fixed_s) + drawn_s).max(axis=0)
    return float(100.0 * end_s.std() / end_s.mean())
