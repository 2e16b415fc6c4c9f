"""Estimate how slow every replica is against its own plan.

`SlowdownEstimate` takes one ratio per replica and iteration: measured by planned duration. A replica's level
is the median of its last 16 ratios. The median starts anew where a CUSUM proves that the level has changed,
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
FLAPS_FOR = 64  # iterations that a replica of short slow spells is named after the last of them
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


class Cusum:
    """Cumulative sums of what each replica exceeds its baseline by, in one direction.

    A sum above its limit proves a shift, but never by one iteration alone. All replicas together are wrong
    once in 1 / FALSE_ALARM iterations: a limit b lets ``(exp(2kb') - 2kb' - 1) / 2k^2`` iterations pass
    between false alarms, where b' is b + 1.166.

    Source: E. S. Page, Continuous inspection schemes, Biometrika 41 (1954); D. Siegmund, Sequential Analysis
    (1985).

    Shape: [allowances, replicas], and [replicas] of iterations in a row.
    """

    def __init__(self, replicas: int) -> None:
        self._sum = np.zeros((len(CUSUM_K), replicas))
        self._length = np.zeros((len(CUSUM_K), replicas), dtype=np.int64)
        self.in_a_row = np.zeros(replicas, dtype=np.int64)
        run = replicas * 2.0 * CUSUM_K**2 / FALSE_ALARM
        self._limit = np.maximum(np.log(run) / (2.0 * CUSUM_K) - 1.166, _MOST_SIGMAS - CUSUM_K)

    def observe(self, sigmas: _Floats) -> bool:
        """Take in one iteration's deviations (NaN: unknown); return whether any sum is beyond its limit."""
        known = np.isfinite(sigmas)
        self._sum += np.where(known, np.minimum(sigmas, _MOST_SIGMAS) - CUSUM_K, 0.0)
        np.maximum(self._sum, 0.0, out=self._sum)
        self._length = (self._length + known) * (self._sum > 0.0)
        self.in_a_row = (self.in_a_row + known) * ((sigmas > 1.0) | ~known)
        return bool((self._sum > self._limit).any())

    def individual_shifts(self) -> _Replicas:
        """Return the replicas that changed by more than a quarter of all did: what all do slows nobody."""
        quarter = (self._sum.shape[1] - 1) // 4
        common = np.partition(self._sum, quarter, axis=1)[:, quarter : quarter + 1]
        shifted: _Replicas = np.any(self._sum - common > self._limit, axis=0)
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
        self._sum[:, who], self._length[:, who], self.in_a_row[who] = 0.0, 0, 0


class SlowdownEstimate:
    """Level of every replica: measured by planned duration, robustly.

    ``first_scatter`` is the relative standard deviation of an iteration by the profile. It ignores what all
    computations of an iteration have in common and so counts as few observations; NaN: unknown, so that half
    a window of iterations has to show it, and nobody is judged before.

    All vectors are as of the last review. ``level`` is a median, NaN before the first known iteration;
    ``count`` is how many iterations it rests on and ``error`` its relative standard error. ``scatter`` is the
    relative standard deviation of one iteration, infinite until it is known. ``alarm`` marks the replicas
    whose level was found by a proof that they had become slower. ``spell_level`` is how slow a replica was in
    its last slow spell, answered or not.

    Shape: vectors [replicas].
    """

    def __init__(self, replicas: int, first_scatter: float) -> None:
        self.level = np.full(replicas, np.nan)
        self.count = np.zeros(replicas, dtype=np.int64)
        self.alarm = np.zeros(replicas, dtype=np.bool_)
        self._window = np.full((replicas, WINDOW), np.nan)  # newest last, gaps first
        self._now = self._reviewed = 0
        known = math.isfinite(first_scatter)
        self._variance, self._weight = (first_scatter**2, float(_PROFILE_COUNTS)) if known else (0.0, 0.0)
        self._own_mean, self._own_full = np.zeros(replicas), np.zeros(replicas, dtype=np.bool_)
        self._own_last = np.zeros(replicas)
        self.scatter = np.full(replicas, self._common_scatter())
        self.error = 1.25 * self.scatter
        self._mean, self._mean_count = np.full(replicas, np.nan), np.zeros(replicas, dtype=np.int64)
        self._slower, self._faster = Cusum(replicas), Cusum(replicas)
        self._began, self._short_spells = np.full(replicas, -CALM), np.zeros(replicas, dtype=np.int64)
        self._calm_mean, self._calm_count = self._mean.copy(), self._mean_count.copy()
        self._last_slow, self.spell_level = np.full(replicas, -CALM), np.ones(replicas)

    @property
    def has_samples(self) -> _Replicas:
        """Replicas whose level rests on half a window at least."""
        return self.count >= WINDOW // 2

    @property
    def flapping(self) -> _Replicas:
        """Replicas of several short slow spells, until none has come for long: answers do not pay."""
        return (self._short_spells > 1) & (self._now - self._last_slow < FLAPS_FOR)

    def observe(self, ratio: _Floats, *, awaited: _Replicas, review_every: int) -> bool:
        """Take in one iteration; return whether the levels were reviewed.

        A ``ratio`` that is not finite and above 0 is unknown. ``awaited`` marks the stragglers that others
        wait for: a single faster iteration is enough for them.
        """
        self._now += 1
        known = np.isfinite(ratio) & (ratio > 0.0)
        if not known.any():
            self._reviewed += 1
            return False
        self._window[known, :-1] = self._window[known, 1:]
        self._window[known, -1] = ratio[known]
        changed = self._weight > 0.0 and self._detect_change(np.where(known, ratio, np.nan), awaited)
        if changed or self._now - self._reviewed >= review_every or (self.count < WINDOW).any():
            self._review()
            return True
        return False

    def recovery_trend(self, who: NDArray[np.intp]) -> _Floats:
        """Return how far some replicas are below their median by now if they recover bit by bit; 0 or less.

        A median is half a window behind, and a decision is executed a few iterations later.
        """
        older, newer = np.median(self._window[who].reshape(len(who), 2, WINDOW // 2), axis=2).T
        change = np.where(np.isfinite(older), newer / older - 1.0, 0.0)
        noise = 1.5 * self.scatter[who] * math.sqrt(2.0 / (WINDOW // 2))
        return np.where(change < -noise, _AHEAD * change, 0.0)

    def restart_window(self, who: _Replicas) -> None:
        """Drop earlier levels from the windows of replicas that were found slow by their level alone.

        That happens while baselines are learned, when no change can be proved yet.
        """
        close = np.abs(self._window / self.level[:, None] - 1.0) <= self._clip()
        lasting = np.cumprod(close[:, ::-1], axis=1).sum(axis=1)
        self._restart(who & (lasting >= CONFIRMATIONS), lasting)
        self._began[who] = self._now
        self.count = np.isfinite(self._window).sum(axis=1)
        self.error = 1.25 * self.scatter / np.sqrt(np.maximum(self.count, 1))

    def _detect_change(self, ratio: _Floats, awaited: _Replicas) -> bool:
        """Start windows and baselines anew where a change is proved."""
        sigmas = self._sigmas(ratio)
        slower, faster = self._slower.observe(sigmas), self._faster.observe(-sigmas)
        enough = np.maximum(_LEAST_RECOVERY, _RECOVERY_SIGMAS * self.scatter)
        at_once = awaited & (ratio / self.level - 1.0 < -enough)
        if not (slower or faster or at_once.any()):
            return False
        further = 4 ** np.clip(self._short_spells - 1, 0, 8)  # times what is asked, for each short spell
        asked, in_a_row = np.minimum(CONFIRMATIONS * further, MOST_CONFIRMATIONS), self._slower.in_a_row
        shifted = self._slower.individual_shifts()
        up = shifted & ((asked <= CONFIRMATIONS) | (in_a_row >= asked))
        down = self._faster.individual_shifts() & ~awaited | at_once
        in_spell = shifted & (in_a_row >= CONFIRMATIONS) & (ratio / self._mean - 1.0 > enough)
        self._last_slow[in_spell], self.spell_level[in_spell] = self._now, ratio[in_spell]
        lasted = self._now - self._began
        self._short_spells[down & (lasted < SHORT_SPELL)] += 1
        self._short_spells[up & (lasted >= CALM)] = 0
        self._began[up] = self._now
        new = up & ~self.alarm
        self._calm_mean[new], self._calm_count[new] = self._mean[new], self._mean_count[new]
        back = down & (lasted < SHORT_SPELL) & (np.abs(ratio / self._calm_mean - 1.0) <= self._clip())
        changed, kept = up | down, np.where(up, self._slower.run_length(), self._faster.run_length())
        for side in (self._slower, self._faster):
            if side.common_shift():
                changed, kept = np.ones_like(up), np.full(len(up), side.run_length().max())
        self.alarm = (self.alarm & ~down) | up
        self._restart(changed, kept)
        # after a short spell the level is the one before it: the next spell shows as soon as the first did
        self._mean[back], self._mean_count[back] = self._calm_mean[back], self._calm_count[back]
        return bool(changed.any())

    def _sigmas(self, ratio: _Floats) -> _Floats:
        """Take one iteration into the baselines; return how many standard deviations it is above them.

        A baseline is a replica's long mean since its last change; NaN while too few iterations made it. Its
        memory is longer where iterations are noisier, since a change takes longer to show there and the mean
        must not follow it meanwhile. One that a replica may be leaving is held, but none of fewer than
        ``_LONG`` iterations: the error of a held mean counts in every further iteration. A mean of c
        iterations multiplies false alarms by ``exp(2 s^2 / c)``, where s is how many standard deviations a
        sum has to go. For 10 that is 23 times at 64, 500 times at 32.
        """
        spread = np.maximum(self.scatter, LEAST_SCATTER)
        held = (self._mean_count >= _LONG) | self.flapping
        leaving = (self._slower.begun() | self._faster.begun()) & held
        deviation = _deviation(ratio, self._mean)
        judged = deviation if spread.min() < _NOISY else _deviation(ratio, self._shrunk_means(spread))
        known = np.isfinite(ratio)
        self._mean = np.where(known & (self._mean_count == 0), ratio, self._mean)
        longest = min(max(_LONG, int(_LONG * float(spread.min()) / _NOISY)), 2 * _LONG)
        self._mean_count = np.minimum(self._mean_count + known, longest)
        share = 1.0 / np.maximum(self._mean_count, 1)
        step = np.clip(deviation, -_CLIP_SIGMAS * spread, _CLIP_SIGMAS * spread) * share
        self._mean *= 1.0 + np.where(np.isfinite(deviation) & ~leaving, step, 0.0)
        return np.where(self._mean_count >= WINDOW // 2, judged / (spread * np.sqrt(1.0 + share)), np.nan)

    def _shrunk_means(self, spread: _Floats) -> _Floats:
        """Baselines drawn to their median where few iterations explain how far they are apart.

        Source: empirical Bayes, B. Efron and C. Morris, JASA 68 (1973).
        """
        if len(self._mean) < _FEWEST or not self._mean_count.all():
            return self._mean
        middle = float(np.median(self._mean))
        apart, error = self._mean / middle - 1.0, spread**2 / self._mean_count
        between = max(0.0, (_NORMAL_MAD * float(np.median(np.abs(apart)))) ** 2 - float(np.median(error)))
        shrunk: _Floats = middle * (1.0 + apart * between / (between + error))
        return shrunk

    def _restart(self, who: _Replicas, kept: _Ints) -> None:
        """Keep the last ``kept`` ratios of some windows; begin their baselines and sums anew from them."""
        first_kept = WINDOW - np.minimum(kept, WINDOW)
        self._window[who[:, None] & (np.arange(WINDOW) < first_kept[:, None])] = np.nan
        median, _, count = self._median()
        self._mean = np.where(who, median, self._mean)
        self._mean_count = np.where(who, count, self._mean_count)
        self._slower.reset(who)
        self._faster.reset(who)

    def _median(self) -> tuple[_Floats, _Floats, _Ints]:
        """Lower median and robust scatter of every window (NaN: empty), and how many ratios it holds."""
        ordered, count = np.sort(self._window, axis=1), np.isfinite(self._window).sum(axis=1)  # NaN goes last
        rows, last = np.arange(len(ordered)), np.maximum(count - 1, 0)
        median = ordered[rows, last // 2]
        middle_half = ordered[rows, (3 * last + 2) // 4] - ordered[rows, last // 4]
        return median, middle_half / (_NORMAL_MIDDLE_HALF * median), count

    def _clip(self) -> float:
        return _CLIP_SIGMAS * max(self._common_scatter(), LEAST_SCATTER)

    def _review(self) -> None:
        """Take the medians anew, and learn the noise from the windows."""
        self.level, spread, self.count = self._median()
        fresh, self._reviewed = self._now - self._reviewed, self._now
        was_known = self._weight > 0.0
        self._learn_common_scatter(fresh)
        if self._weight and not was_known:  # what was seen until now is the baseline
            self._restart(np.ones_like(self.alarm), self.count)
        if self._mean_count.max() < WINDOW:  # no baseline told two levels apart from the first iteration on
            middle = np.maximum(self.count - 2, 0) // 2
            differences = np.sort(np.abs(np.diff(self._window, axis=1)), axis=1)
            spread = differences[np.arange(len(middle)), middle] / (_NORMAL_DIFFERENCE * self.level)
        self.scatter = self._own_scatter(spread, fresh)
        self.error = 1.25 * self.scatter / np.sqrt(np.maximum(self.count, 1))

    def _common_scatter(self) -> float:
        """The scatter of one iteration that all replicas have in common: rather too much than too little.

        A false alarm has the probability ``exp(-L)``, and an estimate that errs by ``e`` makes it
        ``exp(-L (1 - 2 e))``. ``L / (2 weight)`` more keeps that on average where the error is small.
        """
        if not self._weight:
            return math.inf
        more = min(math.sqrt(0.5 / self._weight), -math.log(FALSE_ALARM) / (2.0 * self._weight))
        return math.sqrt(self._variance) * (1.0 + more)

    def _learn_common_scatter(self, fresh: int) -> None:
        """Take in each window's mean square deviation, of which ``fresh`` iterations are new."""
        use = self.count > 1
        if not use.any() or not (self._weight or self.count.max() >= WINDOW // 2):
            return
        apart = np.minimum(np.abs(self._window / self.level[:, None] - 1.0), self._clip())
        freedom = self.count[use] - 1.0
        seen = float(np.nansum(apart[use] ** 2) / freedom.sum())
        share = np.minimum(1.0, fresh / self.count[use]) if self._weight else 1.0
        weight = float((freedom * share).sum())
        self._variance += (seen - self._variance) * weight / (self._weight + weight)
        self._weight = min(self._weight + weight, 16.0 * WINDOW * len(self.count))

    def _own_scatter(self, spread: _Floats, fresh: int) -> _Floats:
        """Return a replica's own scatter where it is clearly above the common one, from steady windows.

        One window errs by 29 %: of 25 replicas that vary alike one would look 1.5 times noisier. So several
        are averaged. A single window counts where it is beyond doubt, and a quiet one ends it at once.
        """
        steady = self.has_samples & ~self._slower.begun() & ~self._faster.begun()  # no mixture of two levels
        share = np.where(self._own_full, min(1.0, fresh / _LONG), 1.0)
        self._own_mean = np.where(steady, self._own_mean + share * (spread - self._own_mean), self._own_mean)
        self._own_last = np.where(steady, spread, self._own_last)
        self._own_full |= steady & (self.count >= WINDOW)
        common = self._common_scatter()
        noisier = (self._own_last > _NOISIER_AT_ONCE * common) | (self._own_mean > _NOISIER * common)
        return np.where(noisier & (self._own_last > _NOISIER * common), self._own_last, common)


def _deviation(ratio: _Floats, mean: _Floats) -> _Floats:
    """Relative deviation, above by its logarithm: durations that vary with their load have a long tail."""
    deviation = ratio / mean - 1.0
    found: _Floats = np.log1p(np.maximum(deviation, 0.0)) + np.minimum(deviation, 0.0)
    return found
