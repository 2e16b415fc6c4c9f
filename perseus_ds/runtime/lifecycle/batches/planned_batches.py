"""The phase after profiling: batches of every size run what is planned for them."""

from __future__ import annotations

from collections.abc import Sequence

from perseus_ds.runtime.comm.status import JobStatus
from perseus_ds.runtime.control.active_plan import ActivePlan
from perseus_ds.runtime.lifecycle.batches.batch_plans import BatchPlans
from perseus_ds.runtime.lifecycle.phases import DEFAULT_CLOCK, Idle, Phase, Running
from perseus_ds.runtime.measure.accounting import Mode
from perseus_ds.runtime.measure.recorder import Iteration


class PlannedBatches(Phase):
    """A phase for each size, which moves on with the batches of that size alone.

    A size is asked for when all ranks know that all ran it. The iteration in which the size changes counts
    for neither side: clocks change within it.
    """

    rests = True

    def __init__(self, plans: BatchPlans, microbatches: int, phase: Phase) -> None:
        self._plans = plans
        self._phases = {microbatches: phase}
        self._present = microbatches
        self._is_alone = False

    @property
    def active_plan(self) -> ActivePlan | None:
        """The plan that present batches are run by; None where they run at default clocks."""
        phase = self._phases.get(self._present)
        return phase.active_plan if isinstance(phase, Running) else None

    def begins(self, index: int, microbatches: int) -> None:
        """Choose what batches of this size are run by."""
        changed, self._present = microbatches != self._present, microbatches
        phase = self._phases.get(microbatches)
        if phase is None:
            self.clock_policy, self.mode = DEFAULT_CLOCK, Mode.NEITHER
            return
        self.clock_policy = phase.clock_policy
        self.mode = Mode.NEITHER if changed else phase.mode
        if not changed:
            phase.begins(index, microbatches)

    def following(self, index: int, passed: Sequence[Iteration], job_status: JobStatus | None) -> Phase:
        """Stay; move on within the present size, and take in what is new."""
        present = self._phases.get(self._present)
        if present is not None:
            self._phases[self._present] = present.following(index, passed, job_status)
        if job_status is not None:
            self._take_in(job_status)
        return self

    @property
    def stands_alone(self) -> bool:
        """Whether present batches need nobody else."""
        return self._is_alone or self.active_plan is not None

    def alone(self) -> None:
        """Run what is there: nothing new is planned."""
        self._is_alone = True
        for microbatches, phase in self._phases.items():
            if isinstance(phase, Running):
                phase.alone()
            else:
                self._phases[microbatches] = Idle()

    def _take_in(self, job_status: JobStatus) -> None:
        size = job_status.microbatches
        if size is not None and size not in self._phases:
            self._phases[size] = self._plans.phase_for(size)
        arrived = self._plans.arrived(job_status.plans_ready)
        if arrived is not None:
            size, phase = arrived
            self._phases[size] = phase
