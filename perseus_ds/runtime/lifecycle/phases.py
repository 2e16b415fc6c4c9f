"""The lifecycle of a job: warm-up, profile, plan, run with audits; each phase says what comes next.

Every rank walks the same lifecycle: a phase decides from the count of iterations and from what all ranks
collected alike, never from what one rank alone can see.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from perseus_ds.runtime.comm.status import JobStatus
from perseus_ds.runtime.control.active_plan import ActivePlan
from perseus_ds.runtime.control.clock_sequencer import ClockPolicy, FixedClock
from perseus_ds.runtime.measure.accounting import Mode, beside
from perseus_ds.runtime.measure.recorder import Iteration
from perseus_ds.runtime.measure.sweeps import Sweeps

DEFAULT_CLOCK = FixedClock(None)

_EVER = 1 << 30


class Phase(ABC):
    """How the coming iteration is run, what it counts for, and what follows it.

    ``rests``: whether the host's own time between two iterations is spent at default clocks.
    """

    clock_policy: ClockPolicy = DEFAULT_CLOCK
    mode: Mode = Mode.NEITHER
    rests: bool = False

    def begins(self, index: int, microbatches: int) -> None:  # noqa: B027 - most phases run all batches alike
        """An iteration begins, with a batch of this size: ``clock_policy`` and ``mode`` are for it."""

    @abstractmethod
    def following(self, index: int, passed: Sequence[Iteration], job_status: JobStatus | None) -> Phase:
        """The phase of the next iteration.

        ``index`` is the iteration that just ended, ``passed`` those that the device has finished since.
        """

    @property
    def stands_alone(self) -> bool:
        """Whether this can go on without the other ranks."""
        return False

    def alone(self) -> None:  # noqa: B027 - only what stands alone is left alone
        """Go on without the other ranks, who do not answer any more."""


class WarmUp(Phase):
    """Leave the first iterations alone, then open with a known iteration time."""

    def __init__(self, iterations: int, start: Callable[[float], Phase]) -> None:
        self._left = iterations
        self._start_decision = start

    def following(self, index: int, passed: Sequence[Iteration], job_status: JobStatus | None) -> Phase:
        """Open when enough iterations have passed and their duration is known."""
        del index, passed
        self._left -= 1
        if self._left > 0 or job_status is None or job_status.iteration_s is None:
            return self
        return self._start_decision(job_status.iteration_s)


class Idle(Phase):
    """Nothing more to do: default clocks, counted as baseline."""

    mode = Mode.BASELINE

    def following(self, index: int, passed: Sequence[Iteration], job_status: JobStatus | None) -> Phase:
        """Stay."""
        del index, passed, job_status
        return self


class Profiling(Phase):
    """Measure a few iterations at one clock after another.

    The first iteration at a new clock is not measured: the switch falls into it, as it does in the first
    one after something else ran on the engine (an evaluation). Before the first clock ``settling`` iterations
    are not, in which the GPU warms up. A window that ``measured`` finds too short
    to tell anything is measured again, twice as long.
    """

    def __init__(
        self,
        sweep: Sweeps,
        iterations: int,
        *,
        measured: Callable[[int, Sequence[Iteration]], bool],
        then: Callable[[], Phase],
        policy_at: Callable[[int], ClockPolicy] = FixedClock,
        settling: int = 1,
    ) -> None:
        self._sweep = sweep
        self._policy_at = policy_at
        self._iterations = iterations
        self._measured = measured
        self._then = then
        self._window: list[Iteration] = []
        self._first: int | None = None
        self._settling = settling
        self.clock_policy = policy_at(sweep.clock_mhz)

    def following(self, index: int, passed: Sequence[Iteration], job_status: JobStatus | None) -> Phase:
        """Go on to the next clock when the window is full, and out when the sweep is finished."""
        del job_status
        if self._first is None:
            self._first, self._settling = index + self._settling, 1
        self._window.extend(i for i in passed if i.index >= self._first and not i.resumed)
        window = [i for i in self._window if i.index < index][: self._iterations]
        if len(window) < self._iterations:
            return self
        self._window, self._first = [], None
        if not self._measured(self._sweep.clock_mhz, window):
            self._iterations *= 2
            return self
        if self._sweep.finished:
            return self._then()
        self.clock_policy = self._policy_at(self._sweep.clock_mhz)
        return self


class Planning(Phase):
    """Train on at default clocks until the plan is there."""

    def following(self, index: int, passed: Sequence[Iteration], job_status: JobStatus | None) -> Phase:
        """Stay: who asked for the plan brings what follows."""
        del index, passed, job_status
        return self


@dataclass(frozen=True, slots=True)
class _Act:
    """Some iterations: what they count for, whether the plan is run, whether an audit is published first.

    One that ``settles`` lasts as long as the GPU's temperature needs.
    """

    mode: Mode
    iterations: int
    planned: bool
    publishes: bool = False
    settles: bool = False


class Running(Phase):
    """Play the plan; every so often a few iterations at default clocks, so that the saving is measured.

    The iteration in which clocks change counts for neither side, nor do those in which the GPU still has the
    other side's temperature (``settling`` of them, at most a fifth of an audit's distance); those beside a
    straggler count for sides of their own. The first audit comes early, so that a measured figure does; their
    distance varies. What is ``audited`` may ask for another plan.
    """

    rests = True

    def __init__(
        self,
        active_plan: ActivePlan,
        *,
        every_iterations: int,
        audit_iterations: int,
        audited: Callable[[], ActivePlan | None],
        settling: int = 1,
        seed: int = 0,
    ) -> None:
        self.active_plan = active_plan
        self._every = every_iterations
        self._audit = audit_iterations
        self._audited = audited
        self._settling = min(settling, every_iterations // 5)
        self._random = Random(seed)  # noqa: S311 - so that all ranks spread alike
        self._acts = self._lifecycle()
        self._enter(next(self._acts))
        self._runs = False
        self._set_out(changed=True)

    def begins(self, index: int, microbatches: int) -> None:
        """Note that this iteration is run by the plan, unless clocks have only just changed to it."""
        del microbatches
        if self._runs:
            self.active_plan.will_run(index)

    def following(self, index: int, passed: Sequence[Iteration], job_status: JobStatus | None) -> Phase:
        """Stay; move on within the cycle of plan and audit."""
        del passed
        changed = job_status is not None and self.active_plan.observe(index, job_status)
        self._left -= 1
        if self._left == 0:
            self._enter(next(self._acts))
            if self._act.publishes and (other := self._audited()) is not None:
                self.active_plan, changed = other, True
        self._set_out(changed=changed)
        self._runs = self._act.planned
        return self

    @property
    def stands_alone(self) -> bool:
        """A plan needs nobody else once it is there."""
        return True

    def alone(self) -> None:
        """Play the objective's plan on without audits: the other ranks do not answer any more."""
        self.active_plan.alone()
        self._acts = iter(())
        self._enter(_Act(Mode.PERSEUS, _EVER, planned=True))
        self._set_out(changed=True)

    def _enter(self, act: _Act) -> None:
        self._act = act
        self._left = max(act.iterations, self._settling) if act.settles else act.iterations

    def _set_out(self, *, changed: bool) -> None:
        self.clock_policy = self.active_plan.clock_policy if self._act.planned else DEFAULT_CLOCK
        mode = Mode.NEITHER if changed and self._act.planned else self._act.mode
        self.mode = beside(mode) if self.active_plan.has_slack else mode

    def _spread(self, every: int) -> int:
        """Vary the distance of audits by a third, so that they are in step with nothing that recurs."""
        return max(1, every + self._random.randint(-(every // 3), every // 3))

    def _lifecycle(self) -> Iterator[_Act]:
        every = min(self._every, 2 * self._audit) if self._every else 0
        yield _Act(Mode.NEITHER, 1, planned=True, settles=True)
        while self._every:
            yield _Act(Mode.PERSEUS, self._spread(every), planned=True)
            yield _Act(Mode.NEITHER, 1, planned=False, settles=True)
            yield _Act(Mode.BASELINE, self._audit, planned=False)
            yield _Act(Mode.NEITHER, 2, planned=True, settles=True)
            yield _Act(Mode.PERSEUS, 1, planned=True, publishes=True)
            every = self._every
        while True:
            yield _Act(Mode.PERSEUS, _EVER, planned=True)
