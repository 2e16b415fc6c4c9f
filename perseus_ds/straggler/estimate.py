"""Estimate how slow every replica is against its own plan.

`SlowdownEstimate` takes one number per replica and iteration, measured by planned duration. A replica's level
is the median of its last 16 numbers. The median starts anew where a CUSUM proves that the level has changed,
so that a change of 20 % shows after two iterations and a hiccup does not show at all.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]
_Replicas = NDArray[np.bool_]

# docs/stragglers.md states what each number buys.
WINDOW = 16  # iterations that a median is taken over
REVIEW_EVERY = 4  # iterations between two medians after one that changed a limit; then twice as many, ...
CONFIRMATIONS = 2  # slow iterations in a row after which a replica is believed to be slow
MOST_CONFIRMATIONS = 32  # the same for one that was slow and recovered again and again
SHORT_SPELL = 12  # iterations: an answer to a shorter slow spell does not pay
CALM = 256  # iterations without a slow spell after which earlier short spells are forgiven
FALSE_ALARM = 3e-6  # probability that one iteration names a replica wrongly, all replicas together
LEAST_SCATTER = 0.004  # assumed least relative standard deviation of an iteration

_PROFILE_COUNTS = 8  # observations that the profile's scatter is worth
_MOST_SIGMAS = 5.0  # that one iteration counts for at most: two beyond it prove a change, one does not
_RECOVERY_SIGMAS, _LEAST_RECOVERY = 3.5, 0.025  # one iteration that much faster ends a wait; less is drift
_NOISIER, _NOISIER_AT_ONCE = 1.5, 2.2  # times the common scatter: over several windows, in a single one
_AHEAD = 1.25  # half windows from the middle of a window to its end and two iterations on
_NORMAL_MIDDLE_HALF = 1.349  # standard deviations that hold the middle half of a normal distribution
_NORMAL_DIFFERENCE = 0.9539  # median absolute difference of two normal numbers, in standard deviations
_NORMAL_MAD = 1.4826  # standard deviation by the median absolute deviation

CUSUM_K = np.array([[2.0], [1.0], [0.5]])  # allowances: half the shift that a sum finds soonest, in sigmas
_BEGUN = 3  # iterations after which a sum may be a change under way

_LONG = 4 * WINDOW  # iterations of a baseline's memory
_NOISY = 0.06  # scatter above which that memory is longer in proportion, up to twice as long
_CLIP_SIGMAS = 3.0
_FEWEST = 4  # replicas whose baselines show how far apart baselines are


def cusum_h(allowance: float, replicas: int) -> float:
    """Return the sum above which a shift is proved, but never by one iteration alone.

    All replicas together are wrong once in 1 / FALSE_ALARM iterations. Simulated, the three sums together
    keep that once mean and scatter are learned, but not in a job's first 200 iterations
    (``scripts/bench/straggler/noisy.py``).

    Source: D. Siegmund, Sequential Analysis (1985): ``(exp(2kb) - 2kb - 1) / 2k^2`` iterations between false
    alarms, where b is the threshold plus 1.166.
    """
    run = replicas * 2.0 * allowance**2 / FALSE_ALARM
    return max(math.log(run) / (2.0 * allowance) - 1.166, _MOST_SIGMAS - allowance)


class Cusum:
    """Cumulative sums of what each replica exceeds its baseline by, in one direction.

    Source: E. S. Page, Continuous inspection schemes, Biometrika 41 (1954).

    Shape: [allowances, replicas], and [replicas] of iterations in a row.
    """

    def __init__(self, replicas: int) -> None:
        self._sum = np.zeros((len(CUSUM_K), replicas))
        self._length = np.zeros((len(CUSUM_K), replicas), dtype=np.int64)
        self._in_a_row = np.zeros(replicas, dtype=np.int64)
        self._limit = np.array([[cusum_h(float(one), replicas)] for one in CUSUM_K[:, 0]])

    def observe(self, sigmas: _Floats, known: _Replicas) -> bool:
        """Take in one iteration's deviations; return whether any sum is beyond its limit."""
        self._sum += np.where(known, np.minimum(sigmas, _MOST_SIGMAS) - CUSUM_K, 0.0)
        np.maximum(self._sum, 0.0, out=self._sum)
        self._length = (self._length + known) * (self._sum > 0.0)
        self._in_a_row = (self._in_a_row + known) * ((sigmas > 1.0) | ~known)
        return bool((self._sum > self._limit).any())

    def individual_shifts(self, confirmations: _Ints) -> _Replicas:
        """Return the replicas that changed while a quarter of all did not: what all do is nobody's slowness.

        Shape: ``confirmations`` [replicas], iterations in a row that are asked of each.
        """
        quarter = (self._sum.shape[1] - 1) // 4
        common = np.partition(self._sum, quarter, axis=1)[:, quarter : quarter + 1]
        proved = (self._sum - common > self._limit).any(axis=0)
        shifted: _Replicas = proved & ((confirmations <= CONFIRMATIONS) | (self._in_a_row >= confirmations))
        return shifted

    def common_shift(self) -> bool:
        """Return whether three quarters of all replicas changed."""
        return 4 * int((self._sum > self._limit).any(axis=0).sum()) >= 3 * self._sum.shape[1]

    def run_length(self) -> _Ints:
        """Return for how many iterations each replica has been beyond its baseline."""
        soonest = np.argmax(self._sum / self._limit, axis=0)
        length: _Ints = np.maximum(self._length[soonest, np.arange(len(soonest))], 1)
        return length

    def begun(self) -> _Replicas:
        """Return the replicas that may be changing."""
        far: _Replicas = (self._sum[-1] > self._limit[-1] / 4.0) & (self._length[-1] >= _BEGUN)
        return far

    def reset(self, who: _Replicas) -> None:
        """Begin anew for some replicas."""
        self._sum[:, who], self._length[:, who], self._in_a_row[who] = 0.0, 0, 0


class BaselineMean:
    """Long mean of every replica since its last change: what the sums hold an iteration against.

    Its memory is longer where iterations are noisier, since a change takes longer to show there and the mean
    must not follow it meanwhile. A mean that a replica may be leaving is held, but none of fewer than
    ``_LONG`` iterations: the error of a held mean counts in every further iteration. One of c iterations
    multiplies false alarms by ``exp(2 s^2 / c)``, where s is how many standard deviations a sum has to go.
    For 10 that is 23 times at 64, 500 times at 32.

    Shape: vectors [replicas].
    """

    def __init__(self, replicas: int) -> None:
        self._mean = np.full(replicas, np.nan)
        self._count = np.zeros(replicas, dtype=np.int64)

    @property
    def is_ready(self) -> _Replicas:
        """Replicas whose mean is known well enough to see a change by."""
        return self._count >= WINDOW // 2

    def sigmas(self, ratio: _Floats, scatter: _Floats, leaving: _Replicas) -> _Floats:
        """Take in one iteration (NaN: unknown); return how many standard deviations it is above the mean.

        Longer iterations count by their logarithm: durations that vary with their load have a long tail.
        """
        spread = np.maximum(scatter, LEAST_SCATTER)
        deviation = _deviation(ratio, self._mean)
        judged = deviation if spread.min() < _NOISY else _deviation(ratio, self._shrunk(spread))
        known = np.isfinite(ratio)
        self._mean = np.where(known & (self._count == 0), ratio, self._mean)
        longest = min(max(_LONG, int(_LONG * float(spread.min()) / _NOISY)), 2 * _LONG)
        self._count = np.minimum(self._count + known, longest)
        share = 1.0 / np.maximum(self._count, 1)
        step = np.clip(deviation, -_CLIP_SIGMAS * spread, _CLIP_SIGMAS * spread) * share
        step[~np.isfinite(deviation) | (leaving & (self._count >= _LONG))] = 0.0
        self._mean = self._mean * (1.0 + step)
        sigmas: _Floats = judged / (spread * np.sqrt(1.0 + share))
        return sigmas

    def _shrunk(self, spread: _Floats) -> _Floats:
        """Means drawn to their median where few iterations explain how far they are apart.

        Source: empirical Bayes, B. Efron and C. Morris, JASA 68 (1973).
        """
        if len(self._mean) < _FEWEST or not self._count.all():
            return self._mean
        middle = float(np.median(self._mean))
        apart, error = self._mean / middle - 1.0, spread**2 / self._count
        between = max(0.0, (_NORMAL_MAD * float(np.median(np.abs(apart)))) ** 2 - float(np.median(error)))
        shrunk: _Floats = middle * (1.0 + apart * between / (between + error))
        return shrunk

    def restart(self, who: _Replicas, level: _Floats, count: _Ints) -> None:
        """Begin anew for some replicas, from a level that rests on so many iterations."""
        self._mean, self._count = np.where(who, level, self._mean), np.where(who, count, self._count)


def _deviation(ratio: _Floats, mean: _Floats) -> _Floats:
    deviation = ratio / mean - 1.0
    found: _Floats = np.log1p(np.maximum(deviation, 0.0)) + np.minimum(deviation, 0.0)
    return found


class NoiseEstimate:
    """Relative standard deviation of one iteration, common to all replicas; infinite until it is known.

    ``first`` is the profile's, which ignores what all computations of an iteration have in common and so
    counts as few observations. NaN: unknown, so that half a window of iterations has to show it.
    """

    def __init__(self, first: float) -> None:
        known = math.isfinite(first)
        self._variance, self._weight = (first**2, float(_PROFILE_COUNTS)) if known else (0.0, 0.0)

    @property
    def is_known(self) -> bool:
        """Return whether a profile or enough iterations have shown it."""
        return self._weight > 0.0

    @property
    def deviation(self) -> float:
        """The estimate and its standard error: rather too much than too little.

        A false alarm has the probability ``exp(-L)``, and an estimate that errs by ``e`` makes it
        ``exp(-L (1 - 2 e))``. ``L / (2 weight)`` more keeps that on average where the error is small.
        """
        if not self.is_known:
            return math.inf
        more = min(math.sqrt(0.5 / self._weight), -math.log(FALSE_ALARM) / (2.0 * self._weight))
        return math.sqrt(self._variance) * (1.0 + more)

    def learn(self, square: _Floats, count: _Ints, *, fresh: int) -> None:
        """Take in each replica's mean square deviation over ``count`` iterations, ``fresh`` of them new."""
        use = count > 1
        if not use.any() or not (self.is_known or count.max() >= WINDOW // 2):
            return
        freedom = count[use] - 1.0
        seen = float((square[use] * count[use]).sum() / freedom.sum())
        share = np.minimum(1.0, fresh / count[use]) if self.is_known else 1.0
        weight = float((freedom * share).sum())
        self._variance += (seen - self._variance) * weight / (self._weight + weight)
        self._weight = min(self._weight + weight, 16.0 * WINDOW * len(count))


class ReplicaNoise:
    """Relative standard deviation of each replica by itself, from the middle half of its windows.

    One window errs by 29 %: of 25 replicas that vary alike one would look 1.5 times noisier. So several are
    averaged. A single window counts where it is beyond doubt, and a quiet one ends it at once.

    Shape: vectors [replicas].
    """

    def __init__(self, replicas: int) -> None:
        self._mean, self._last = np.zeros(replicas), np.zeros(replicas)
        self._full = np.zeros(replicas, dtype=np.bool_)

    def learn(self, spread: _Floats, steady: _Replicas, count: _Ints, *, fresh: int) -> None:
        """Take in the spread of steady windows; until a window is full it counts alone."""
        share = np.where(self._full, min(1.0, fresh / _LONG), 1.0)
        self._mean = np.where(steady, self._mean + share * (spread - self._mean), self._mean)
        self._last = np.where(steady, spread, self._last)
        self._full |= steady & (count >= WINDOW)

    def unless_common(self, common: float) -> _Floats:
        """Return the spread of each replica's last window where it is clearly above the common one."""
        clearly = (self._last > _NOISIER_AT_ONCE * common) | (self._mean > _NOISIER * common)
        return np.where(clearly & (self._last > _NOISIER * common), self._last, common)


class FlapDamping:
    """Ask a replica that was slow for short spells to confirm the next one for longer.

    Shape: vectors [replicas].
    """

    def __init__(self, replicas: int) -> None:
        self._now = 0
        self._began = np.full(replicas, -CALM, dtype=np.int64)
        self._short = np.zeros(replicas, dtype=np.int64)

    def tick(self) -> None:
        """Count one iteration."""
        self._now += 1

    def confirmations(self) -> _Ints:
        """Return the slow iterations in a row that are asked for: times four per further short spell."""
        return np.minimum(CONFIRMATIONS * 4 ** np.clip(self._short - 1, 0, 8), MOST_CONFIRMATIONS)

    def record(self, slower: _Replicas, faster: _Replicas) -> None:
        """Note which replicas turned slow and fast in this iteration."""
        lasted = self._now - self._began
        self._short[faster & (lasted < SHORT_SPELL)] += 1
        self._short[slower & (lasted >= CALM)] = 0
        self._began[slower] = self._now


class SlowdownEstimate:
    """Level of every replica: measured by planned duration, robustly.

    All vectors are as of the last review, shape [replicas]. ``level`` is a median, NaN before the first known
    iteration; ``count`` is how many iterations it rests on and ``error`` its relative standard error.
    ``scatter`` is the relative standard deviation of one iteration, infinite until it is known. ``alarm``
    marks the replicas whose level was found by a proof that they had become slower.
    """

    def __init__(self, replicas: int, first_scatter: float) -> None:
        self.level = np.full(replicas, np.nan)
        self.count = np.zeros(replicas, dtype=np.int64)
        self.alarm = np.zeros(replicas, dtype=np.bool_)
        self._noise, self._own_noise = NoiseEstimate(first_scatter), ReplicaNoise(replicas)
        self.scatter = np.full(replicas, self._noise.deviation)
        self.error = 1.25 * self.scatter
        self._window = np.full((replicas, WINDOW), np.nan)  # newest last, gaps first
        self._windows_full = False  # as of the last review
        self._damping = FlapDamping(replicas)
        self._baseline = BaselineMean(replicas)
        self._slower, self._faster = Cusum(replicas), Cusum(replicas)
        self._side = np.zeros(replicas)
        self._same_side = np.zeros(replicas, dtype=np.int64)
        self._unreviewed = self._observed = 0

    @property
    def has_samples(self) -> _Replicas:
        """Replicas whose level rests on half a window at least."""
        return self.count >= WINDOW // 2

    @property
    def is_ready(self) -> bool:
        """Return whether the noise of iterations is known: before, nobody is judged."""
        return self._noise.is_known

    def observe(self, ratio: _Floats, *, awaited: _Replicas, review_every: int) -> bool:
        """Take in one iteration; return whether the levels were reviewed.

        A ``ratio`` that is not finite and above 0 is unknown. ``awaited`` marks the stragglers that others
        wait for: a single faster iteration is enough for them.
        """
        self._damping.tick()
        known = np.isfinite(ratio) & (ratio > 0.0)
        if not known.any():
            return False
        self._window[known, :-1] = self._window[known, 1:]
        self._window[known, -1] = ratio[known]
        ratio = np.where(known, ratio, np.nan)
        deviation = ratio / self.level - 1.0
        self._unreviewed += 1
        self._observed += 1
        changed = self.is_ready and self._changed(ratio, deviation, awaited)
        due = changed or self._drifts(deviation, awaited) or self._unreviewed >= review_every
        if due or not self._windows_full:
            self._review()
            return True
        return False

    def recovery_trend(self, who: NDArray[np.intp]) -> _Floats:
        """Return how far some replicas are below their median by now if they recover bit by bit; 0 or less.

        A median is half a window behind, and a decision is executed a few iterations later.
        """
        halves = self._window[who].reshape(len(who), 2, WINDOW // 2)
        older, newer = np.partition(halves, WINDOW // 4, axis=2)[:, :, WINDOW // 4].T
        change = np.where(self._count()[who] >= WINDOW, newer / older - 1.0, 0.0)
        noise = 1.2 * 1.25 * self.scatter[who] * math.sqrt(2.0 / (WINDOW // 2))
        return np.where(change < -noise, _AHEAD * change, 0.0)

    def restart_window(self, who: _Replicas) -> None:
        """Drop earlier levels from the windows of replicas that were found slow by their level alone.

        That happens while baselines are learned, when no change can be proved yet.
        """
        close = np.abs(self._window / self.level[:, None] - 1.0) <= self._clip()
        lasting = np.cumprod(close[:, ::-1], axis=1).sum(axis=1)
        restarted = who & (lasting >= CONFIRMATIONS)
        self._keep_last(restarted, lasting)
        self.count = self._count()
        self._baseline.restart(restarted, self.level, self.count)
        self.error = 1.25 * self.scatter / np.sqrt(np.maximum(self.count, 1))

    def clear_alarm(self, who: _Replicas) -> None:
        """Note that some replicas, though they became slower, are no slower than the others."""
        self.alarm &= ~who

    def _count(self) -> _Ints:
        count: _Ints = np.isfinite(self._window).sum(axis=1)
        return count

    def _median(self) -> tuple[_Floats, _Floats, _Ints]:
        """Lower median and robust scatter of every window (NaN: empty), and how many numbers it holds."""
        ordered, count = np.sort(self._window, axis=1), self._count()  # NaN goes last
        rows, last = np.arange(len(ordered)), np.maximum(count - 1, 0)
        median = ordered[rows, last // 2]
        middle_half = ordered[rows, (3 * last + 2) // 4] - ordered[rows, last // 4]
        return median, middle_half / (_NORMAL_MIDDLE_HALF * median), count

    def _keep_last(self, who: _Replicas, kept: _Ints) -> None:
        first_kept = WINDOW - np.minimum(kept, WINDOW)
        self._window[who[:, None] & (np.arange(WINDOW) < first_kept[:, None])] = np.nan
        self._windows_full &= not who.any()

    def _clip(self) -> float:
        return _CLIP_SIGMAS * max(self._noise.deviation, LEAST_SCATTER)

    def _drifts(self, deviation: _Floats, awaited: _Replicas) -> bool:
        """Return whether an awaited straggler was on the same side of its median several times in a row."""
        if not awaited.any():
            return False
        side = np.sign(deviation)
        self._same_side = np.where(side == self._side, self._same_side + 1, 1)
        self._side = side
        return bool((self._same_side[awaited] >= REVIEW_EVERY).any())

    def _changed(self, ratio: _Floats, deviation: _Floats, awaited: _Replicas) -> bool:
        """Start windows and baselines anew where a change is proved."""
        leaving = self._slower.begun() | self._faster.begun()
        sigmas = self._baseline.sigmas(ratio, self.scatter, leaving)
        judged = np.isfinite(sigmas) & self._baseline.is_ready
        slower, faster = self._slower.observe(sigmas, judged), self._faster.observe(-sigmas, judged)
        at_once = awaited & (deviation < -np.maximum(_LEAST_RECOVERY, _RECOVERY_SIGMAS * self.scatter))
        if not (slower or faster or at_once.any()):
            return False
        up = self._slower.individual_shifts(self._damping.confirmations())
        down = self._faster.individual_shifts(np.full(len(up), CONFIRMATIONS)) & ~awaited | at_once
        self._damping.record(up, down)
        changed, kept = up | down, np.where(up, self._slower.run_length(), self._faster.run_length())
        for side in (self._slower, self._faster):
            if side.common_shift():
                changed, kept = np.ones_like(up), np.full(len(up), side.run_length().max())
        if not changed.any():
            return False
        self.alarm = (self.alarm & ~down) | up
        self._keep_last(changed, kept)
        median, _, count = self._median()
        self._baseline.restart(changed, median, count)
        self._slower.reset(changed)
        self._faster.reset(changed)
        return True

    def _review(self) -> None:
        """Take the medians anew, and learn the noise from the windows."""
        self._same_side[:] = 0
        self.level, spread, self.count = self._median()
        self._windows_full = bool((self.count == WINDOW).all())
        was_ready, fresh, self._unreviewed = self.is_ready, self._unreviewed, 0
        apart = np.minimum(np.abs(self._window / self.level[:, None] - 1.0), self._clip())
        square = np.nansum(apart**2, axis=1) / np.maximum(self.count, 1)
        self._noise.learn(square, self.count, fresh=fresh)
        if self.is_ready and not was_ready:  # what was seen until now is the baseline
            self._baseline.restart(np.ones_like(self.alarm), self.level, self.count)
        if self._observed < WINDOW:  # no baseline told two levels apart from the first iteration on
            rows, differences = np.arange(len(self.level)), np.abs(np.diff(self._window, axis=1))
            middle = np.maximum(self.count - 2, 0) // 2
            spread = np.sort(differences, axis=1)[rows, middle] / (_NORMAL_DIFFERENCE * self.level)
        steady = self.has_samples & ~self._slower.begun() & ~self._faster.begun()  # no mixture of two levels
        self._own_noise.learn(spread, steady, self.count, fresh=fresh)
        self.scatter = self._own_noise.unless_common(self._noise.deviation)
        self.error = 1.25 * self.scatter / np.sqrt(np.maximum(self.count, 1))
