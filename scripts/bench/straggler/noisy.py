"""How often noise alone names a replica, and when a slow one is found, printed as JSON; see README.md.

python scripts/bench/straggler/noisy.py [--quiet 6000] [--slow 400]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.controller import ReplicaObservation, StragglerController

EARLY, LATE = 200, 5_000
"""Iterations of a quiet job while means are learned, and of a long one."""
SLOW, SLOWDOWN = 1, 1.2
"""Which replica becomes slow, and how slow."""
IN_TIME, WAITED = 25, 150
"""Iterations in which it should be found, and for which it is waited for."""
REPLICAS = 16
NOISES = ((0.02, "normal"), (0.05, "normal"), (0.12, "normal"), (0.12, "log-normal"))


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
        controller.observe(ReplicaObservation(own, usual, usual, capped))
        yield controller.slow


def named(seed: int, iterations: int, after: int, noise: float, law: str) -> int:
    """How many replicas of a quiet job were newly named once so many iterations had passed."""
    before, found = np.zeros(REPLICAS, dtype=np.bool_), 0
    for iteration, slow in enumerate(slow_ones(drawn(seed, iterations, REPLICAS, noise, law), noise)):
        found += int((slow & ~before).sum()) if iteration >= after else 0
        before = slow
    return found


def iterations_until_found(seed: int, replicas: int, begins: int, noise: float, law: str) -> float:
    """From the one in which a replica becomes slow; infinite where it is not found."""
    own_s = drawn(seed, begins + WAITED, replicas, noise, law)
    own_s[begins:, SLOW] *= SLOWDOWN
    for iteration, slow in enumerate(slow_ones(own_s, noise)):
        if iteration >= begins and slow[SLOW]:
            return iteration - begins + 1
    return np.inf


def quiet_rows(pool: ProcessPoolExecutor, jobs: int) -> Iterator[dict[str, object]]:
    """Of jobs in which nobody is slow: replicas named while means are learned, and later."""
    for noise, law in NOISES:
        for iterations, after, tried in ((EARLY, 0, jobs), (LATE, EARLY, jobs // 50)):
            job = partial(named, iterations=iterations, after=after, noise=noise, law=law)
            yield {
                "noise": noise,
                "law": law,
                "iterations": [after, iterations],
                "observed": tried * (iterations - after),
                "named": sum(pool.map(job, range(tried), chunksize=10)),
            }


def slow_rows(pool: ProcessPoolExecutor, jobs: int) -> Iterator[dict[str, object]]:
    """Of jobs in which a replica becomes slow: in how many iterations it is found."""
    for (noise, law), begins, replicas in product(NOISES, (40, 100), (2, 4, 16, 32)):
        job = partial(iterations_until_found, replicas=replicas, begins=begins, noise=noise, law=law)
        took = np.array(list(pool.map(job, range(jobs), chunksize=10)))
        yield {
            "noise": noise,
            "law": law,
            "replicas": replicas,
            "slow_from": begins,
            "median": float(np.median(took)),
            "p95": float(np.quantile(took, 0.95, method="higher")),
            "in_time_pct": round(100.0 * float((took <= IN_TIME).mean()), 1),
            "not_found": int(np.isinf(took).sum()),
        }


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quiet", type=int, default=6_000, help="jobs of 200 iterations; 1/50 of 5 000")
    parser.add_argument("--slow", type=int, default=400, help="jobs with a slow replica")
    options = parser.parse_args()
    with ProcessPoolExecutor() as pool:
        quiet = list(quiet_rows(pool, options.quiet))
        slow = list(slow_rows(pool, options.slow))
    print(json.dumps({"simulated": True, "replicas": REPLICAS, "quiet": quiet, "slow": slow}, indent=1))


if __name__ == "__main__":
    main()
