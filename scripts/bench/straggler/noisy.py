"""How often noise alone names a replica, and when a slow one is found, printed as JSON; see README.md.

python scripts/bench/straggler/noisy.py [--quiet 60] [--slow 200]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.controller import ReplicaStatus, StragglerController

REPLICAS = 16
BEGINS = 100
"""Iteration in which one becomes slow."""
EARLY, LATE = 200, 1_800
"""Iterations of a quiet job while means are learned, and of a long one."""
LATE_JOBS = 15
"""There is a long quiet job for so many short ones."""
APART = 0.004
"""By which quiet replicas differ in half of the quiet jobs."""
SLOW = 1
WAITED = 150
"""Which replica becomes slow, and for how many iterations it is waited for."""
NOISES = ((0.005, "normal"), (0.02, "normal"), (0.05, "normal"), (0.12, "normal"), (0.12, "log-normal"))
BARS = {
    (0.005, 1.2): (2, 2),
    (0.02, 1.2): (2, 3),
    (0.05, 1.2): (3, 5),
    (0.12, 1.2): (16, 27),
    (0.02, 1.05): (6, 10),
}
"""Iterations until 16 replicas find one so slow: median, and 95 of 100 jobs."""


def drawn(seed: int, iterations: int, replicas: int, noise: float, law: str) -> NDArray[np.float64]:
    """Own times of every replica, mean 1; shape: [iterations, replicas]."""
    normal = np.random.default_rng([seed, round(1000 * noise), len(law)]).standard_normal(
        (iterations, replicas)
    )
    if law == "normal":
        return 1.0 + noise * normal
    sigma = np.sqrt(np.log1p(noise**2))
    long_tailed: NDArray[np.float64] = np.exp(sigma * normal - sigma**2 / 2.0)
    return long_tailed


def slow_ones(own_s: NDArray[np.float64], noise: float) -> Iterator[NDArray[np.bool_]]:
    """Yield the slow replicas after every iteration, by a controller with the profile's noise."""
    replicas = own_s.shape[1]
    controller = StragglerController(np.ones(replicas), np.ones(replicas), scatter=noise)
    usual, capped = np.ones(replicas), np.zeros(replicas, dtype=np.bool_)
    for own in own_s:
        controller.observe(ReplicaStatus(own, capped, usual), usual)
        yield controller.slow


def named(seed: int, *, replicas: int, iterations: int, after: int, noise: float, law: str) -> int:
    """How many replicas of a quiet job were newly named once so many iterations had passed."""
    before, found = np.zeros(replicas, dtype=np.bool_), 0
    own_s = drawn(seed, iterations, replicas, noise, law) * (
        1.0 + APART * (seed % 2) * np.linspace(-1, 1, replicas)
    )
    for iteration, slow in enumerate(slow_ones(own_s, noise)):
        found += int((slow & ~before).sum()) if iteration >= after else 0
        before = slow
    return found


def iterations_until_found(
    seed: int, *, replicas: int, begins: int, noise: float, law: str, slowdown: float
) -> float:
    """From the one in which a replica becomes slow; infinite where it is not found."""
    own_s = drawn(seed, begins + WAITED, replicas, noise, law)
    own_s[begins:, SLOW] *= slowdown
    for iteration, slow in enumerate(slow_ones(own_s, noise)):
        if iteration >= begins and slow[SLOW]:
            return iteration - begins + 1
    return np.inf


def quiet_rows(pool: ProcessPoolExecutor, jobs: int) -> Iterator[dict[str, object]]:
    """Of jobs in which nobody is slow: replicas named while means are learned, and later."""
    for noise, law in NOISES:
        for iterations, after, tried in ((EARLY, 0, jobs), (LATE, EARLY, max(1, jobs // LATE_JOBS))):
            job = partial(named, replicas=REPLICAS, iterations=iterations, after=after, noise=noise, law=law)
            yield {
                "noise": noise,
                "law": law,
                "iterations": [after, iterations],
                "observed": tried * (iterations - after),
                "named": sum(pool.map(job, range(tried), chunksize=10)),
            }


def slow_rows(pool: ProcessPoolExecutor, jobs: int) -> Iterator[dict[str, object]]:
    """Of jobs in which a replica becomes slow: in how many iterations it is found."""
    tried = [(noise, law, 1.2) for noise, law in NOISES]
    for noise, law, slowdown in [*tried, (0.02, "normal", 1.05)]:
        job = partial(
            iterations_until_found, replicas=REPLICAS, begins=BEGINS, noise=noise, law=law, slowdown=slowdown
        )
        took = np.array(list(pool.map(job, range(jobs), chunksize=10)))
        yield {
            "noise": noise,
            "law": law,
            "slowdown": slowdown,
            "median": float(np.median(took)),
            "p95": float(np.quantile(took, 0.95, method="higher")),
            "bar": BARS[noise, slowdown],
            "not_found": int(np.isinf(took).sum()),
        }


def main() -> int:
    """Count, print, and state by the exit code whether the bars are met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--quiet", type=int, default=60, help="jobs of 200 iterations, and 1/15 as many of 1 800"
    )
    parser.add_argument("--slow", type=int, default=200, help="jobs with a slow replica")
    options = parser.parse_args()
    with ProcessPoolExecutor() as pool:
        quiet, slow = list(quiet_rows(pool, options.quiet)), list(slow_rows(pool, options.slow))
    found = {"simulated": True, "replicas": REPLICAS, "quiet": quiet, "slow": slow}
    print(json.dumps(found, indent=1))
    late = any(row["median"] > row["bar"][0] or row["p95"] > row["bar"][1] for row in slow)
    return 1 if late or any(row["named"] for row in quiet) else 0


if __name__ == "__main__":
    sys.exit(main())
