"""What a sweep has measured so far, in a file: a job that is killed meanwhile goes on where it stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from perseus_ds.errors import PerseusError
from perseus_ds.files import read_json
from perseus_ds.files.digest import KEY, check_digest, digest_of
from perseus_ds.files.fields import (
    MOST,
    MOST_COUNT,
    Content,
    line,
    listed,
    mapping,
    real,
    record,
    rows,
    texts,
    whole,
)
from perseus_ds.profile import Computation, LoadSums, Sweep
from perseus_ds.profile.loads.seen_loads import SeenLoads, kept, load_of, pair_of, seen_of, seen_rows
from perseus_ds.profile.rows import computation_row, key_of, point_of, point_row
from perseus_ds.profile.sweep_cost import SweepPace
from perseus_ds.run_directory import write_json
from perseus_ds.runtime.job import Job, differences
from perseus_ds.runtime.measure.pooling import Pooled
from perseus_ds.runtime.measure.sweeps import Sweeps
from perseus_ds.schedule import Load

FORMAT = "perseus-sweep"
VERSION = 1
_MOST_BYTES = 32 << 20
_MOST_LOADS = 1 << 16
_MOST_MHZ = 100_000
_OF_START = ("most_slower_pct", "coming")
_NUMBERS = ("blocking_power_w", "spread", "heat_w", "size_variation")


@dataclass(frozen=True, slots=True)
class CountedLoads:
    """What the windows so far have shown of the loads of microbatches.

    ``mean`` is what all durations are brought to, ``own_means`` stands for it on ranks that count themselves,
    by model stage.

    Shape: ``own_means`` [ranks].
    """

    mean: Load | None = None
    own_means: Sequence[Mapping[int, Load] | None] = ()
    seen: Sequence[Load] = ()
    iterations: SeenLoads = ()


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A sweep of which some clocks are measured; all that comes after them needs.

    ``first_iterations`` came before its first window, ``void`` were thrown away. ``written`` is when the last
    window was added. A window keeps nothing of temperatures but those of its points: what a GPU showed of its
    own heat is shown anew.

    Shape: ``sweeps``, ``windows`` [groups].
    """

    sweeps: Sequence[Sweep]
    windows: Sequence[list[Pooled]]
    pace: SweepPace
    first_iterations: int = 0
    void: int = 0
    loads: CountedLoads = field(default_factory=CountedLoads)
    written: str = ""

    @property
    def done(self) -> int:
        """How many windows are measured."""
        return max(sweep.done for sweep in self.sweeps)

    def as_sweeps(self, *, mine: int) -> Sweeps:
        """Go on with them, as a rank of one of the groups."""
        found = Sweeps(self.sweeps, mine=mine)
        found.windows = list(self.windows)
        return found


def write_unfinished(found: Unfinished, job: Job, path: Path) -> None:
    """Write atomically.

    Raises:
        OSError: it cannot be written.
    """
    content = {
        "format": FORMAT,
        "version": VERSION,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "fingerprints": [dict(job.profile_fingerprint(group)) for group in range(len(found.sweeps))],
        "gpus": _gpus(job),
        "first_iterations": found.first_iterations,
        "void": found.void,
        "pace": {key: max(value, 0) for key, value in asdict(found.pace).items() if key != "most_slower_pct"},
        "mean_load": None if found.loads.mean is None else pair_of(found.loads.mean),
        "own_means": [_means_row(means) for means in found.loads.own_means],
        "seen": [pair_of(load) for load in _thinned(found.loads.seen)],
        "iterations": seen_rows(kept(found.loads.iterations)),
        "groups": [
            {
                "clocks_mhz": list(sweep.clocks_mhz),
                "refused_mhz": sorted(sweep.refused_mhz),
                "windows": [_window_row(one) for one in windows],
            }
            for sweep, windows in zip(found.sweeps, found.windows, strict=True)
        ],
    }
    write_json(path, content | {KEY: digest_of(content)})


def read_unfinished(path: Path, job: Job, *, begins: SweepPace, writers: frozenset[int]) -> Unfinished | None:
    """Read what an earlier start of this job has measured; None where there is nothing.

    ``begins`` is the pace at which a sweep of this start would begin.

    Raises:
        PerseusError: it cannot be read, or is of another job or of other GPUs.
    """
    if not path.exists():
        return None
    try:
        content = mapping(read_json(path, most_bytes=_MOST_BYTES, writers=writers, shared=True), "it")
        return _unfinished(content, job, begins)
    except OSError as error:
        raise PerseusError(f"{path}: {error.strerror}") from error
    except PerseusError as error:
        raise PerseusError(f"{path}: {error.message}", hint=error.hint) from error


def _unfinished(content: Content, job: Job, begins: SweepPace) -> Unfinished:
    if content.get("format") != FORMAT or content.get("version") != VERSION:
        raise PerseusError("is not a sweep of a version that we read")
    check_digest(content)
    _check_job(content, job)
    groups = [mapping(one, "groups") for one in listed(content.get("groups"), "groups")]
    windows = [list(rows(one.get("windows"), "windows", _window)) for one in groups]
    return Unfinished(
        [_sweep(*pair) for pair in zip(groups, windows, strict=True)],
        windows,
        record(
            SweepPace,
            {
                **mapping(content.get("pace"), "pace"),
                **{key: value for key, value in asdict(begins).items() if key in _OF_START},
            },
        ),
        first_iterations=whole(content, "first_iterations", least=0, most=MOST_COUNT),
        void=whole(content, "void", least=0, most=MOST_COUNT),
        loads=CountedLoads(
            mean=None if content.get("mean_load") is None else load_of(content["mean_load"]),
            own_means=[_means(one) for one in listed(content.get("own_means"), "own_means")],
            seen=[load_of(one) for one in listed(content.get("seen"), "seen")],
            iterations=seen_of(content.get("iterations")),
        ),
        written=line(content, "written"),
    )


def _check_job(content: Content, job: Job) -> None:
    """Refuse windows of another job, or of other GPUs: no two of them are quite alike.

    Raises:
        PerseusError: naming the difference.
    """
    theirs = listed(content.get("fingerprints"), "fingerprints")
    if len(theirs) != len(job.groups):
        raise PerseusError(f"it is of {len(theirs)} groups of GPUs, this job has {len(job.groups)}")
    for group, fingerprint in enumerate(theirs):
        wrong = differences(job.profile_fingerprint(group), texts(fingerprint, "fingerprints"))
        if wrong:
            raise PerseusError(f"it is of another job: {wrong}")
    if content.get("gpus") != _gpus(job):
        raise PerseusError("it is of other GPUs than this job has now")


def _gpus(job: Job) -> list[list[str]]:
    return [[one.host, one.gpu] for one in job.addresses]


def _sweep(content: Content, windows: Sequence[Pooled]) -> Sweep:
    clocks_mhz, refused_mhz = (_clocks(content.get(key), key) for key in ("clocks_mhz", "refused_mhz"))
    if len(clocks_mhz) < len(windows):
        raise PerseusError("clocks_mhz has fewer clocks than windows")
    sweep = Sweep(clocks_mhz, refused_mhz=frozenset(refused_mhz))
    for window in windows:
        sweep.record(window.points)
    return sweep


def _clocks(value: object, key: str) -> tuple[int, ...]:
    return tuple(whole({key: one}, key, least=1, most=_MOST_MHZ) for one in listed(value, key))


def _window_row(window: Pooled) -> dict[str, object]:
    return {
        **{key: getattr(window, key) for key in _NUMBERS},
        "points": [computation_row(key) | point_row(point) for key, point in window.points.items()],
        "fixed_s": _shares_rows(window.fixed_s),
        "larger": _shares_rows(window.larger),
        "loads": [
            computation_row(key) | {"products": sums.products.tolist(), "plain": sums.plain.tolist()}
            for key, sums in window.loads.items()
        ],
    }


def _window(row: Content) -> Pooled:
    blocking_power_w, spread, heat_w, size_variation = (
        real(row, key, least=0.0, most=MOST) for key in _NUMBERS
    )
    return Pooled(
        points=dict(rows(row.get("points"), "points", point_of)),
        fixed_s=_shares(row, "fixed_s"),
        blocking_power_w=blocking_power_w,
        spread=spread,
        heat_w=heat_w,
        larger=_shares(row, "larger"),
        size_variation=size_variation,
        loads=dict(rows(row.get("loads"), "loads", _sums)),
    )


def _shares_rows(values: Mapping[Computation, float]) -> list[dict[str, object]]:
    return [computation_row(key) | {"value": value} for key, value in values.items()]


def _shares(row: Content, key: str) -> dict[Computation, float]:
    return dict(rows(row.get(key), key, _share))


def _share(row: Content) -> tuple[Computation, float]:
    return key_of(row), real(row, "value", least=0.0, most=MOST)


def _sums(row: Content) -> tuple[Computation, LoadSums]:
    try:
        products, plain = (np.array(row.get(key), dtype=np.float64) for key in ("products", "plain"))
    except (TypeError, ValueError) as error:
        raise PerseusError("loads are no numbers") from error
    if products.shape != (4, 4) or plain.shape != (4,) or not np.isfinite([*products.flat, *plain]).all():
        raise PerseusError("loads are not 4 x 4 and 4 finite numbers")
    return key_of(row), LoadSums(products, plain)


def _thinned(loads: Sequence[Load]) -> Sequence[Load]:
    """As many of them as a file may hold, from all of the time."""
    if len(loads) <= _MOST_LOADS:
        return loads
    places = np.linspace(0, len(loads) - 1, _MOST_LOADS).round().astype(int)
    return [loads[place] for place in places.tolist()]


def _means_row(means: Mapping[int, Load] | None) -> dict[str, list[float]] | None:
    return None if means is None else {str(stage): pair_of(load) for stage, load in means.items()}


def _means(value: object) -> dict[int, Load] | None:
    if value is None:
        return None
    content = mapping(value, "own_means")
    if not all(stage.isdecimal() for stage in content):
        raise PerseusError("own_means names a stage that is no number")
    return {int(stage): load_of(pair) for stage, pair in content.items()}
