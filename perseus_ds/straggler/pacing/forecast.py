"""How long an iteration will take, and what is left of it at each mark, by the loads of its microbatches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.plan import PlanSet
from perseus_ds.profile import Profile
from perseus_ds.schedule import Instruction, Load, dag_of
from perseus_ds.schedule.graph import LongestPaths
from perseus_ds.straggler.pacing.progress_marks import ProgressMarks

_DRAWS = 40
_LEAST_ERROR = 0.004  # of an iteration: no prediction is better
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Foretold:
    """What is left at each mark at the objective's plan, and the relative standard error of that.

    Shape: both [marks].
    """

    left_s: Floats
    error: Floats


def _usual_s(plans: PlanSet, objective: int, node: Instruction, columns: Mapping[Instruction, int]) -> float:
    key = node.stage, node.kind
    if node not in columns:
        return plans.fixed_s[key]
    return float(plans.blended(columns[node], plans.options[key].time_s)[objective])


class Forecast:
    """Durations of the objective's plan, times what microbatches' loads make of them, on the plan's graph.

    Loads are those that the first model stage counts. What they leave open (``LoadFit.scatter``) is
    drawn once, each computation by itself. Without a ``profile`` nothing is foretold but the usual;
    ``marks`` are chosen by the plan where none are given.
    """

    def __init__(
        self, plans: PlanSet, objective: int, profile: Profile | None, marks: ProgressMarks | None = None
    ) -> None:
        self._dag, self._profile = dag_of(plans.schedule), profile
        self.microbatches = plans.schedule.microbatches
        columns = {instruction: column for column, instruction in enumerate(plans.computations())}
        self._usual_s = np.array([_usual_s(plans, objective, node, columns) for node in self._dag.nodes])
        self._paths = LongestPaths(self._dag.graph, self._dag.delays_s(plans.fixed_s))
        self._keys = sorted({(node.stage, node.kind) for node in columns}, key=str)
        self._row, self._microbatch = self._places(columns)
        self._terms = None if profile is None else profile.load_terms(self._keys, counted_at=0)
        self._first = self._first_stage(plans)
        ends_s = self._paths.ends(self._usual_s)
        self.marks = marks or ProgressMarks.of([ends_s[at] for at in self._first], self._paths.over(ends_s))
        self.usual = Foretold(self._left_s(self._usual_s), self._error(plans.scatter_pct))

    def _places(self, columns: Mapping[Instruction, int]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Row of every node's computation among the terms, and its microbatch.

        What has no load is of microbatch 0, and its row is one of ones behind those of all computations.
        """
        row = {key: place for place, key in enumerate(self._keys)}
        ones, nodes = len(self._keys), self._dag.nodes
        rows = [row[node.stage, node.kind] if node in columns else ones for node in nodes]
        return np.array(rows), np.array([node.microbatch if node in columns else 0 for node in nodes])

    def _first_stage(self, plans: PlanSet) -> list[int]:
        """Where the first stage's computations are among the paths, in its order."""
        place = {node: index for index, node in enumerate(self._dag.nodes)}
        first = [node for node in plans.schedule.orders[0] if node.kind.is_computation]
        return [self._paths.place(place[node]) for node in first]

    @property
    def tells(self) -> bool:
        """Whether durations are known to follow loads."""
        return self._profile is not None and bool(self._profile.loads)

    def of(self, loads: Sequence[Load]) -> Foretold:
        """Foretell an iteration.

        Shape: ``loads`` [microbatches].
        Cost: linear in the plan's graph, interpreted: about 0.1 us for each of its nodes.
        """
        assert self._terms is not None
        counted = np.array([(1.0, load.tokens, load.squares) for load in loads])
        factor = np.vstack((self._terms @ counted.T, np.ones(len(loads))))[self._row, self._microbatch]
        return Foretold(self._left_s(self._usual_s * factor), self.usual.error)

    def _left_s(self, lasts_s: Floats) -> Floats:
        ends_s = self._paths.ends(lasts_s)
        over_s = [0.0 if after < 0 else ends_s[self._first[after]] for after in self.marks.after]
        return self._paths.over(ends_s) - np.array(over_s)

    def _error(self, scatter_pct: float | None) -> Floats:
        """Relative error of what is left at each mark, since every computation differs from its prediction.

        By how much iterations vary, where the profile does not state it of all; NaN where that is unknown.
        """
        varies = {} if self._profile is None else self._profile.variation() or {}
        fits = {} if self._profile is None else self._profile.loads
        scatters = [fits[key].scatter if key in fits else varies.get(key, math.nan) for key in self._keys]
        share = np.array([*scatters, 0.0])[self._row]
        if np.isnan(share).any():
            whole = math.nan if scatter_pct is None else scatter_pct / 100.0
            return np.array([whole / math.sqrt(1.0 - share) for share in self.marks.share])
        normal = np.random.default_rng(0).standard_normal((len(share), _DRAWS))
        drawn_s = self._usual_s[:, None] * np.maximum(0.2, 1.0 + share[:, None] * normal)
        left_s = np.stack([self._left_s(one_s) for one_s in drawn_s.T])
        error: Floats = np.maximum(left_s.std(axis=0) / left_s.mean(axis=0), _LEAST_ERROR)
        return error
