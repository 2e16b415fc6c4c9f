"""How slow every replica is against its own plan: a running median, begun anew where a change is proved."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

# The numbers that the answer to stragglers rests on; docs/stragglers.md states what each buys.

WINDOW = 16
"""Iterations that a median is taken over."""

REVIEW_EVERY = 4
"""Iterations between two medians after one that changed a budget; then twice as many, and so on."""

REVIEW_EVERY_MOST = 8
"""The most iterations between two medians while somebody waits."""

REVIEW_EVERY_WHILE_CALM = 16
"""Iterations between two medians while nobody waits."""

FALSE_ALARM = 3e-6
"""Probability that an iteration makes some replica look slow that is not, all replicas together."""

MOST_SIGMAS = 5.0
"""How many standard deviations one iteration can count for: two that are beyond are a change, one is not."""

RECOVERY_SIGMAS = 3.5
"""How many standard deviations faster one iteration is of a replica that nobody need wait for any more."""

LEAST_RECOVERY = 0.025
"""What that iteration is faster by at least; what is less is drift."""

PROVED_SIGMAS = 1.0
"""How many standard errors slower than the others one is that has been proved to have become slower."""

SURE_SIGMAS = 4.0
"""How many standard errors slower than an answer pays for one has to be that was slow from the first on."""

KEPT_SIGMAS = 2.0
"""How many standard errors slower one has to stay to be slow still."""

LEAST_SCATTER = 0.004
"""What an iteration is taken to vary by at least."""

NOISIER = 1.5
"""Above this many times the common scatter a replica has a scatter of its own."""

NOISIER_AT_ONCE = 2.2
"""Above this many times a single window is enough."""

PROFILE_COUNTS = 8
"""How many observations the profile's scatter is worth."""

NOISE_SIGMAS = 5.0
"""How many standard errors slack has to be above the noise."""

LEAST_SLACK = 0.01
"""Relative slack from which waiting slower pays."""

LEAST_SLACK_KEPT = 0.005
"""Relative slack below which it does no more."""

CONFIRMATIONS = 2
"""Slow iterations in a row after which a replica is believed to be slow."""

MOST_CONFIRMATIONS = 32
"""The same for one that was slow and recovered again and again."""

SHORT_SPELL = 12
"""A slow spell of fewer iterations was not worth its answer."""

CALM = 256
"""Iterations without a slow spell after which one short spell is forgiven."""

EXCESS = 0.0027
"""How much longer than T' an iteration may become on average because those who wait vary too."""

LEAST_MARGIN = 0.001
"""What those who wait stay below T' in any case."""

MAX_COST_PCT = 0.2
"""Time that answers may cost over the last 1 000 iterations, by default."""

BEHIND = 0.02
"""How much longer than planned an iteration lasts of a replica that asks for no lower clock ahead."""

LEAST_MOVE = 0.002
"""Relative change of a limit that is worth another plan."""

EXCESS_PACED = 0.0005
"""How much longer iterations may become on average because predictions of the longest replica err."""

# Whether a replica has left its level for good: cumulative sums of what iterations exceed it by.
#
# Source: E. S. Page, Continuous inspection schemes, Biometrika 41 (1954); run lengths after D. Siegmund,
# Sequential Analysis (1985): ``(exp(2kb) - 2kb - 1) / 2k^2`` iterations between false alarms, where b is the
# threshold plus 1.166.

_Replicas = NDArray[np.bool_]

_ALLOWANCES = np.array([[2.0], [1.0], [0.5]])
"""Half the shift that a sum finds soonest, in standard deviations: large shifts first."""

_BEGUN = 3  # iterations

_IN_A_ROW = 1.0  # standard deviations above which iterations count as in a row


def threshold(allowance: float, replicas: int) -> float:
    """Sum above which a shift is proved, but never by one iteration alone.

    All replicas together are wrong once in 1 / FALSE_ALARM iterations. Simulated, the three sums
    together keep that once the mean and the scatter are learned, but not in a job's first 200 iterations
    (``scripts/bench/straggler/noisy.py``).
    """
    run = replicas * 2.0 * allowance**2 / FALSE_ALARM
    return max(math.log(run) / (2.0 * allowance) - 1.166, MOST_SIGMAS - allowance)


class Excursions:
    """One direction: how far, and for how many iterations, each replica has been beyond its level.

    One iteration alone counts for ``MOST_SIGMAS`` at most, so that no hiccup proves anything.

    Shape: [sums, replicas], and [replicas] of iterations in a row.
    """

    def __init__(self, replicas: int) -> None:
        self._sum = np.zeros((len(_ALLOWANCES), replicas))
        self._length = np.zeros((len(_ALLOWANCES), replicas), dtype=np.int64)
        self._row = np.zeros(replicas, dtype=np.int64)
        self._proof = np.array([[threshold(float(one), replicas)] for one in _ALLOWANCES[:, 0]])

    def observe(self, sigmas: NDArray[np.float64], known: _Replicas) -> bool:
        """Take in one iteration's deviations; return whether somebody may have left his level."""
        step = np.minimum(sigmas, MOST_SIGMAS) - _ALLOWANCES
        if not known.all():
            step[:, ~known] = 0.0
        self._sum += step
        np.maximum(self._sum, 0.0, out=self._sum)
        self._length += known
        self._length *= self._sum > 0.0
        self._row += known
        self._row *= (sigmas > _IN_A_ROW) | ~known
        return bool((self._sum > self._proof).any())

    def alone(self, in_a_row: NDArray[np.int64]) -> _Replicas:
        """The replicas that have left their level while a quarter of all have not.

        ``in_a_row`` iterations are asked of those that flap.

        Shape: both [replicas].
        """
        place = (self._sum.shape[1] - 1) // 4
        common = np.partition(self._sum, place, axis=1)[:, place : place + 1]
        proved = (self._sum - common > self._proof).any(axis=0)
        steady: _Replicas = proved & ((in_a_row <= CONFIRMATIONS) | (self._row >= in_a_row))
        return steady

    def together(self) -> bool:
        """Whether three quarters of all have left their levels: nobody is slow where all are."""
        far = int((self._sum > self._proof).any(axis=0).sum())
        return 4 * far >= 3 * self._sum.shape[1]

    def lasted(self) -> NDArray[np.int64]:
        """For how many iterations each has been beyond its level: by the sum that proves it soonest."""
        soonest = np.argmax(self._sum / self._proof, axis=0)
        lasted: NDArray[np.int64] = np.maximum(self._length[soonest, np.arange(len(soonest))], 1)
        return lasted

    def begun(self) -> _Replicas:
        """Who may be leaving his level."""
        far: _Replicas = (self._sum[-1] > self._proof[-1] / 4.0) & (self._length[-1] >= _BEGUN)
        return far

    def forget(self, who: _Replicas) -> None:
        """Begin anew for some replicas."""
        self._sum[:, who] = 0.0
        self._length[:, who] = 0
        self._row[who] = 0


# What each replica is held against to see whether it has changed: its own long mean.

_LONG = 4 * WINDOW  # iterations of the mean's memory
_NOISY = 0.06  # scatter above which the memory is longer in proportion, up to twice as long
_MOST_SIGMAS = 3.0
_FEWEST = 4  # replicas whose means tell how far apart means are
_OF_MEDIAN = 1.4826  # a normal standard deviation, by the median of absolute deviations


class Reference:
    """Mean of measured by planned duration of every replica, since it changed last.

    Its memory is longer where iterations are noisier. There a change takes many iterations to show, and the
    mean must not follow it meanwhile. So a mean that a replica may be leaving is held, but none of fewer
    than ``_LONG`` iterations. The error of a held mean counts in every further iteration. One of c iterations
    multiplies false alarms by ``exp(2 s^2 / c)``; s is how many standard deviations a sum has to go. For 10
    that is 23 times at 64, 500 times at 32.

    Shape: vectors [replicas].
    """

    def __init__(self, replicas: int) -> None:
        self._mean = np.full(replicas, np.nan)
        self._count = np.zeros(replicas, dtype=np.int64)

    @property
    def judges(self) -> NDArray[np.bool_]:
        """Whose reference is known well enough to see a change by."""
        return self._count >= WINDOW // 2

    def sigmas(
        self, ratio: NDArray[np.float64], scatter: NDArray[np.float64], leaving: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Take in one iteration; return how many standard deviations it is above the reference.

        Longer ones count by their logarithm: what varies with its load has a long tail there.
        NaN is unknown. ``leaving`` marks replicas that may be about to leave theirs.
        """
        spread = np.maximum(scatter, LEAST_SCATTER)
        deviation = _deviation(ratio, self._mean)
        judged = deviation if spread.min() < _NOISY else _deviation(ratio, self._shrunk(spread))
        known = np.isfinite(ratio)
        if not self._count.all():
            self._mean = np.where(known & (self._count == 0), ratio, self._mean)
        longest = min(max(_LONG, int(_LONG * float(spread.min()) / _NOISY)), 2 * _LONG)
        self._count = np.minimum(self._count + known, longest)
        share = 1.0 / np.maximum(self._count, 1)
        sigmas: NDArray[np.float64] = judged / (spread * np.sqrt(1.0 + share))
        step = np.minimum(np.maximum(deviation, -_MOST_SIGMAS * spread), _MOST_SIGMAS * spread) * share
        step[~np.isfinite(deviation) | (leaving & (self._count >= _LONG))] = 0.0
        self._mean = self._mean * (1.0 + step)
        return sigmas

    def _shrunk(self, spread: NDArray[np.float64]) -> NDArray[np.float64]:
        """Own means, nearer to their median where few iterations explain how far they are apart.

        Source: empirical Bayes, B. Efron and C. Morris, JASA 68 (1973).
        """
        if len(self._mean) < _FEWEST or not self._count.all():
            return self._mean
        middle = float(np.median(self._mean))
        apart, error = self._mean / middle - 1.0, spread**2 / self._count
        between = max(0.0, (_OF_MEDIAN * float(np.median(np.abs(apart)))) ** 2 - float(np.median(error)))
        shrunk: NDArray[np.float64] = middle * (1.0 + apart * between / (between + error))
        return shrunk

    def restart(self, who: NDArray[np.bool_], level: NDArray[np.float64], count: NDArray[np.int64]) -> None:
        """Begin anew for some replicas, from a level that rests on so many iterations."""
        self._mean = np.where(who, level, self._mean)
        self._count = np.where(who, count, self._count)


def _deviation(ratio: NDArray[np.float64], mean: NDArray[np.float64]) -> NDArray[np.float64]:
    deviation = ratio / mean - 1.0
    found: NDArray[np.float64] = np.log1p(np.maximum(deviation, 0.0)) + np.minimum(deviation, 0.0)
    return found


# How much one iteration of a replica varies: as the profile predicts, then as iterations show.

_MEMORY = 16 * WINDOW  # observations of each replica
_OWN_MEMORY = 4 * WINDOW


class Scatter:
    """Relative standard deviation of one iteration, common to all replicas; infinite until it is known.

    ``first`` is the profile's; it counts as ``PROFILE_COUNTS`` observations, because it knows nothing of what
    is alike in all computations of an iteration. NaN: the profile does not state it, so that half a window of
    iterations has to.
    """

    def __init__(self, first: float) -> None:
        known = math.isfinite(first)
        self._variance = first**2 if known else 0.0
        self._weight = float(PROFILE_COUNTS) if known else 0.0

    @property
    def known(self) -> bool:
        """Whether anything is known of it."""
        return self._weight > 0.0

    @property
    def deviation(self) -> float:
        """The estimate and its standard error: rather too much than too little.

        A false alarm has the probability ``exp(-L)``, and an estimate that errs by ``e`` makes it
        ``exp(-L (1 - 2 e))``. ``L / (2 weight)`` more keeps that on average where the error is small.
        """
        if not self.known:
            return math.inf
        more = min(math.sqrt(0.5 / self._weight), -math.log(FALSE_ALARM) / (2.0 * self._weight))
        return math.sqrt(self._variance) * (1.0 + more)

    def learn(self, square: NDArray[np.float64], count: NDArray[np.int64], *, fresh: int) -> None:
        """Take in each replica's mean square deviation from its level over its last ``count`` iterations.

        ``fresh`` of them were not learned from before.

        Shape: both [replicas].
        """
        use = count > 1
        if not use.any() or not (self.known or count.max() >= WINDOW // 2):
            return
        freedom = count[use] - 1.0
        seen = float((square[use] * count[use]).sum() / freedom.sum())
        share = np.minimum(1.0, fresh / count[use]) if self.known else 1.0
        weight = float((freedom * share).sum())
        self._variance += (seen - self._variance) * weight / (self._weight + weight)
        self._weight = min(self._weight + weight, float(_MEMORY * len(count)))


class OwnScatter:
    """Relative standard deviation of each replica by itself, by the middle half of its windows.

    One window errs by 29 %: of 25 replicas that vary alike one would look 1.5 times noisier. So several are
    averaged. A single window counts where it is beyond doubt, and a quiet one ends it at once.

    Shape: vectors [replicas].
    """

    def __init__(self, replicas: int) -> None:
        self._mean = np.zeros(replicas)
        self._full = np.zeros(replicas, dtype=np.bool_)
        self._last = np.zeros(replicas)

    def learn(
        self,
        spread: NDArray[np.float64],
        steady: NDArray[np.bool_],
        count: NDArray[np.int64],
        *,
        fresh: int,
    ) -> None:
        """Take in the spread of every window of ``count`` iterations where it is ``steady``.

        ``fresh`` of them were not learned from before. Until a window is full it counts alone.
        """
        share = np.where(self._full, min(1.0, fresh / _OWN_MEMORY), 1.0)
        self._mean = np.where(steady, self._mean + share * (spread - self._mean), self._mean)
        self._last = np.where(steady, spread, self._last)
        self._full |= steady & (count >= WINDOW)

    def unless_common(self, common: float) -> NDArray[np.float64]:
        """Return every replica's own as of its last window where it is clearly above the common one."""
        clearly = (self._last > NOISIER_AT_ONCE * common) | (self._mean > NOISIER * common)
        return np.where(clearly & (self._last > NOISIER * common), self._last, common)


# The last few numbers of every replica, and their median.

_PLACES = np.arange(WINDOW)
_MIDDLE_DIFFERENCE = 0.9539  # of two normal numbers, in their standard deviations


class Windows:
    """A ring per replica; forgetting one replica's past leaves the others'.

    ``full``: all were there when the median was taken last.

    Shape: [replicas, WINDOW], NaN where nothing was entered yet.
    """

    def __init__(self, replicas: int) -> None:
        self._ring = np.full((replicas, WINDOW), np.nan)
        self._entered = np.zeros(replicas, dtype=np.int64)
        self._everyone = np.arange(replicas)
        self.full = False

    @property
    def count(self) -> NDArray[np.int64]:
        """How many numbers each window holds."""
        return np.minimum(self._entered, WINDOW)

    def enter_all(self, numbers: NDArray[np.float64]) -> None:
        """Enter one number for every replica."""
        self._ring[self._everyone, self._entered % WINDOW] = numbers
        self._entered += 1

    def enter(self, who: NDArray[np.intp], numbers: NDArray[np.float64]) -> None:
        """Enter one number for each of some replicas."""
        self._ring[who, self._entered[who] % WINDOW] = numbers
        self._entered[who] += 1

    def keep_last(self, who: NDArray[np.intp], count: NDArray[np.int64]) -> None:
        """Forget all but the last few numbers of some replicas."""
        kept = np.minimum(count, self.count[who])
        order = (self._entered[who, None] - kept[:, None] + _PLACES) % WINDOW  # oldest that is kept first
        oldest_first = np.take_along_axis(self._ring[who], order, axis=1)
        self._ring[who] = np.where(kept[:, None] > _PLACES, oldest_first, np.nan)
        self._entered[who] = kept
        self.full = self.full and not len(who)

    def lasting(self, who: NDArray[np.intp], level: NDArray[np.float64], within: float) -> NDArray[np.int64]:
        """How many of the latest numbers of some replicas in a row lie within a share of a level."""
        order = (self._entered[who, None] - 1 - _PLACES) % WINDOW  # newest first
        close = np.abs(np.take_along_axis(self._ring[who], order, axis=1) / level[:, None] - 1.0) <= within
        lasting: NDArray[np.int64] = np.cumprod(close, axis=1).sum(axis=1)
        return lasting

    def median(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Median (the lower of two) and scatter of every window; NaN where it is empty.

        The scatter is the standard deviation of a normal distribution with the same middle half.

        Cost: linear in replicas.
        """
        ordered = np.sort(self._ring, axis=1)  # NaN goes last
        last = np.maximum(self.count - 1, 0)
        self.full = bool((last == WINDOW - 1).all())
        median = ordered[self._everyone, last // 2]
        middle_half = ordered[self._everyone, (3 * last + 2) // 4] - ordered[self._everyone, last // 4]
        return median, middle_half / (1.349 * median)

    def successive_spread(self, level: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scatter of every window by its successive differences, which one change of level does not widen.

        In parts of a level; NaN where there is no difference yet.
        """
        order = (self._entered[:, None] - self.count[:, None] + _PLACES) % WINDOW  # oldest first
        apart = np.sort(np.abs(np.diff(np.take_along_axis(self._ring, order, axis=1), axis=1)), axis=1)
        middle: NDArray[np.float64] = apart[self._everyone, np.maximum(self.count - 2, 0) // 2]
        return middle / (_MIDDLE_DIFFERENCE * level)

    def square_deviation(self, level: NDArray[np.float64], most: float) -> NDArray[np.float64]:
        """Mean square of what each window's numbers differ from a level by, in parts of it; 0 where empty.

        A number differs by ``most`` at the most.
        """
        apart = np.minimum(np.abs(self._ring / level[:, None] - 1.0), most)
        total: NDArray[np.float64] = np.nansum(apart**2, axis=1)
        return total / np.maximum(self.count, 1)

    def drift(self, who: NDArray[np.intp]) -> NDArray[np.float64]:
        """How much the newer half of some full windows is above the older; 0 while they fill."""
        order = (self._entered[who, None] + _PLACES) % WINDOW
        halves = self._ring[who[:, None], order].reshape(len(who), 2, WINDOW // 2)
        older, newer = np.partition(halves, WINDOW // 4, axis=2)[:, :, WINDOW // 4].T
        return np.where(self._entered[who] >= WINDOW, newer / older - 1.0, 0.0)


_AHEAD = 1.25  # from the middle of a window to its end and 2 iterations on, in half windows


class SlowdownEstimate:
    """Measured by planned duration of every replica, robustly.

    Each replica's level is the median of its last iterations. It starts anew where a cumulative sum proves
    that the replica has left it: at the first of the iterations that did. A replica that turns slow for short
    spells again and again has to confirm it longer. What all do at once is nobody's slowness.

    Shape: vectors [replicas], as of the last review. ``level`` is NaN before the first known iteration,
    ``count`` how many iterations it rests on. ``scatter`` is the relative standard deviation of one iteration
    (infinite until it is known). ``error`` is the relative standard error of the level: that of a median.
    ``proved`` marks whose level was found by its having become slower.
    """

    def __init__(self, replicas: int, first_scatter: float) -> None:
        self.level = np.full(replicas, np.nan)
        self.count = np.zeros(replicas, dtype=np.int64)
        self.proved = np.zeros(replicas, dtype=np.bool_)
        self._scatter = Scatter(first_scatter)
        self.scatter = np.full(replicas, self._scatter.deviation)
        self.error = 1.25 * self.scatter
        self._own_scatter = OwnScatter(replicas)
        self._windows = Windows(replicas)
        self._damping = FlapDamping(replicas)
        self._reference = Reference(replicas)
        self._slower = Excursions(replicas)
        self._faster = Excursions(replicas)
        self._side = np.zeros(replicas)
        self._in_a_row = np.zeros(replicas, dtype=np.int64)
        self._unreviewed = 0
        self._observed = 0

    @property
    def sure(self) -> _Replicas:
        """Whose level rests on half a window at least."""
        return self.count >= WINDOW // 2

    @property
    def tells(self) -> bool:
        """Whether it is known how much iterations vary: before, nobody is judged."""
        return self._scatter.known

    def observe(self, ratio: NDArray[np.float64], *, impatient: _Replicas, review_every: int) -> bool:
        """Take in one iteration; return whether the levels were taken anew.

        What is not finite and above 0 is unknown. ``impatient`` marks replicas of whom one faster
        iteration is enough: those that others wait for.
        """
        self._damping.tick()
        known = np.isfinite(ratio) & (ratio > 0.0)
        if known.all():
            self._windows.enter_all(ratio)
        elif not known.any():
            return False
        else:
            self._windows.enter(np.flatnonzero(known), ratio[known])
        ratio = np.where(known, ratio, np.nan)
        deviation = ratio / self.level - 1.0
        jumped = self._scatter.known and self._jumped(ratio, deviation, impatient)
        return self._review(now=jumped or self._leans(deviation, impatient), every=review_every)

    def sinking(self, who: NDArray[np.intp]) -> NDArray[np.float64]:
        """How far below their median some replicas are by now if they become faster bit by bit; 0 or less.

        A median is half a window behind, and what is decided is run a few iterations later.
        """
        change = self._windows.drift(who)
        noise = 1.2 * 1.25 * self.scatter[who] * math.sqrt(2.0 / (WINDOW // 2))
        return np.where(change < -noise, _AHEAD * change, 0.0)

    def _leans(self, deviation: NDArray[np.float64], impatient: _Replicas) -> bool:
        """Whether one of whom others wait was on the same side of its median several times in a row."""
        if not impatient.any():
            return False
        side = np.sign(deviation)
        self._in_a_row = np.where(side == self._side, self._in_a_row + 1, 1)
        self._side = side
        return bool((self._in_a_row[impatient] >= REVIEW_EVERY).any())

    def _jumped(
        self, ratio: NDArray[np.float64], deviation: NDArray[np.float64], impatient: _Replicas
    ) -> bool:
        """Start anew where a change is proved."""
        leaving = self._slower.begun() | self._faster.begun()
        sigmas = self._reference.sigmas(ratio, self.scatter, leaving)
        judged = np.isfinite(sigmas) & self._reference.judges
        slower = self._slower.observe(sigmas, judged)
        faster = self._faster.observe(-sigmas, judged)
        at_once = impatient & (deviation < -np.maximum(LEAST_RECOVERY, RECOVERY_SIGMAS * self.scatter))
        if not (slower or faster or at_once.any()):
            return False
        up = self._slower.alone(self._damping.confirmations())
        down = self._faster.alone(np.full(len(up), CONFIRMATIONS)) & ~impatient  # of these the drift is led
        down |= at_once
        self._damping.remember(up, down)
        lasted = np.where(up, self._slower.lasted(), self._faster.lasted())
        jumped = up | down
        for side in (self._slower, self._faster):
            if side.together():
                jumped, lasted = np.ones_like(up), np.full(len(up), side.lasted().max())
        who = jumped.nonzero()[0]
        if not len(who):
            return False
        self.proved = (self.proved & ~down) | up
        self._windows.keep_last(who, lasted[who])
        self._reference.restart(jumped, self._windows.median()[0], self._windows.count)
        self._slower.forget(jumped)
        self._faster.forget(jumped)
        return True

    def _review(self, *, now: bool, every: int) -> bool:
        """Take the medians anew: at once after a change or while windows fill, else every few iterations."""
        self._unreviewed += 1
        self._observed += 1
        if self._unreviewed < every and not now and self._windows.full:
            return False
        self._in_a_row[:] = 0
        self.level, spread = self._windows.median()
        self.count = self._windows.count
        most = _MOST_SIGMAS * max(self._scatter.deviation, LEAST_SCATTER)
        square = self._windows.square_deviation(self.level, most)
        told = self.tells
        fresh = self._unreviewed
        self._scatter.learn(square, self.count, fresh=fresh)
        if not told and self.tells:  # what was seen until now is the reference
            self._reference.restart(np.ones_like(self.proved), self.level, self.count)
        self._unreviewed = 0
        common = self._scatter.deviation
        if self._observed < WINDOW:  # no reference was there to tell two levels apart from the first on
            spread = self._windows.successive_spread(self.level)
        steady = self.sure & ~self._slower.begun() & ~self._faster.begun()  # no mixture of two levels
        self._own_scatter.learn(spread, steady, self.count, fresh=fresh)
        self.scatter = self._own_scatter.unless_common(common)
        self.error = 1.25 * self.scatter / np.sqrt(np.maximum(self.count, 1))
        return True

    def settle(self, who: _Replicas) -> None:
        """Begin anew for some that were found slow by their level alone, early, while references are learned.

        What their windows hold from before is another level and no scatter.
        """
        found = who.nonzero()[0]
        within = _MOST_SIGMAS * max(self._scatter.deviation, LEAST_SCATTER)
        lasting = self._windows.lasting(found, self.level[found], within)
        found, lasting = found[lasting >= CONFIRMATIONS], lasting[lasting >= CONFIRMATIONS]
        self._windows.keep_last(found, lasting)
        self.count = self._windows.count
        anew = np.isin(np.arange(len(who)), found)
        self._reference.restart(anew, self.level, self.count)
        self.error = 1.25 * self.scatter / np.sqrt(np.maximum(self.count, 1))

    def dismiss(self, who: _Replicas) -> None:
        """Note that some replicas, though they became slower, are no slower than the others."""
        self.proved &= ~who


class FlapDamping:
    """Memory of flapping: an answer to a spell that is over at once costs time and saves nothing.

    Shape: vectors [replicas].
    """

    def __init__(self, replicas: int) -> None:
        self._now = 0
        self._began = np.full(replicas, -CALM, dtype=np.int64)
        self._short = np.zeros(replicas, dtype=np.int64)

    def tick(self) -> None:
        """An iteration passes."""
        self._now += 1

    def confirmations(self) -> NDArray[np.int64]:
        """Slow iterations in a row that are asked for: four times as many per short spell after the first."""
        exponent = np.clip(self._short - 1, 0, 8)
        return np.minimum(CONFIRMATIONS * 4**exponent, MOST_CONFIRMATIONS)

    def remember(self, slower: NDArray[np.bool_], faster: NDArray[np.bool_]) -> None:
        """Some replicas turned slow in this iteration, some turned fast again."""
        lasted = self._now - self._began
        self._short[faster & (lasted < SHORT_SPELL)] += 1
        self._short[slower & (lasted >= CALM)] = 0
        self._began[slower] = self._now
