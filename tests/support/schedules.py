"""Schedules written as text, and plans that can be checked by hand."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from perseus_ds.config import Objective
from perseus_ds.plan import FrequencyPlan, PlanSet
from perseus_ds.plan.record import Baseline, Options
from perseus_ds.schedule import Instruction, Kind, Schedule, dag_of, textbook
from perseus_ds.straggler.frontier_index import FrontierIndex


def schedule(*orders: str, microbatches: int) -> Schedule:
    parsed = tuple(tuple(map(Instruction.parse, order.split())) for order in orders)
    return Schedule("by hand", microbatches, parsed)


# Ranks that run their orders as an engine would, step by step, without any graph.
#
# Each rank stands at one place of its order and goes on when what it needs is there: data from its own rank
# or through a buffer, or, for transfers in the order, its other end. Knows text only, nothing of the product.

Word = tuple[int, str, int]  # stage, letters, number
Step = tuple[Word, ...]  # what a rank does at once: one thing, or a forward and a backward
PEER = {"SA": ("RA", 1), "RA": ("SA", -1), "SG": ("RG", -1), "RG": ("SG", 1)}


def read(text: str) -> Step:
    return tuple(_word(part) for part in text.split("+"))


def _word(text: str) -> Word:
    match = re.fullmatch(r"(\d+)([A-Z]+)(\d+)", text)
    assert match, text
    return int(match[1]), match[2], int(match[3])


def run(
    orders: Sequence[Sequence[str]],
    lasts: Callable[[str], float],
    delay_s: Callable[[int, str], float] = lambda stage, kind: 0.0,
) -> Mapping[str, float] | None:
    """When each instruction ends; None when the ranks wait for each other for ever.

    ``lasts`` is how long an instruction takes, a transfer under its sender's name; ``delay_s`` how long what
    a stage sends is on its way through a buffer, by "SA" or "SG".
    """
    machine = _Machine([[read(text) for text in order] for order in orders], lasts, delay_s)
    while machine.step():
        pass
    return None if machine.stuck else machine.ends()


def _text(step: Step) -> str:
    return "+".join("".join(map(str, word)) for word in step)


class _Machine:
    def __init__(
        self, orders: list[list[Step]], lasts: Callable[[str], float], delay_s: Callable[[int, str], float]
    ) -> None:
        self._orders, self._lasts, self._delay_s = orders, lasts, delay_s
        self._at = [0] * len(orders)
        self._free = [0.0] * len(orders)
        words = [[word for step in order for word in step] for order in orders]
        self._home = {word[0]: rank for rank, order in enumerate(words) for word in order}
        self._last = max(self._home)
        self._streams = any(word[1] in PEER for order in words for word in order)
        self._split = {word[:1] + word[2:] for order in words for word in order if word[1] == "I"}
        self._queued: list[list[Word]] = [[] for _ in orders]
        self._commits = [any(word[1] == "CM" for word in order) for order in words]
        self._posted: dict[Word, float] = {}
        self.end: dict[Word, float] = {}

    @property
    def stuck(self) -> bool:
        return any(at < len(order) for at, order in zip(self._at, self._orders, strict=True))

    def ends(self) -> Mapping[str, float]:
        steps = {step for order in self._orders for step in order}
        alone = {_text((word,)): end for word, end in self.end.items()}
        return alone | {_text(step): self.end[step[0]] for step in steps}

    def step(self) -> bool:
        """Let every rank that can go on do one thing; say whether any could."""
        return sum(self._go_on(rank) for rank in range(len(self._orders))) > 0

    def _go_on(self, rank: int) -> bool:
        if self._at[rank] == len(self._orders[rank]):
            return False
        step = self._orders[rank][self._at[rank]]
        word = step[0]
        if word[1] in PEER and self._commits[rank]:
            self._queued[rank].append(word)
            self._at[rank] += 1
            return True
        if word[1] in PEER or word[1] == "CM":
            return self._meet(rank, word)
        ready = [self._ready(part) for part in step]
        known = [moment for moment in ready if moment is not None]
        if len(known) < len(ready):
            return False
        self._finish(rank, step, max(self._free[rank], *known) + self._lasts(_text(step)))
        return True

    def _meet(self, rank: int, word: Word) -> bool:
        mine = self._queued[rank] if word[1] == "CM" else [word]
        moved = False
        for transfer in mine:
            moved |= transfer not in self._posted
            self._posted.setdefault(transfer, self._free[rank])
        others = [(w[0] + PEER[w[1]][1], PEER[w[1]][0], w[2]) for w in mine]
        if not all(other in self._posted for other in others):
            return moved
        ends = [
            max(self._posted[a], self._posted[b]) + self._lasts(_text((a if a[1] in ("SA", "SG") else b,)))
            for a, b in zip(mine, others, strict=True)
        ]
        self.end |= dict(zip(mine, ends, strict=True))
        after = max([self._free[rank], *ends])
        self._finish(rank, (word,), after + self._lasts(_text((word,))) if word[1] == "CM" else after)
        self._queued[rank] = []
        return True

    def _finish(self, rank: int, step: Step, end: float) -> None:
        self.end |= dict.fromkeys(step, end)
        self._free[rank] = end
        self._at[rank] += 1

    def _ready(self, word: Word) -> float | None:
        giver = self._giver(word)
        if giver is None:
            return 0.0
        if giver not in self.end:
            return None
        if self._home[giver[0]] == self._home[word[0]]:
            return self.end[giver]
        kind = "SA" if word[1] == "F" else "SG"
        if self._streams:
            return self.end.get((word[0], "RA" if kind == "SA" else "RG", word[2]))
        return self.end[giver] + self._delay_s(giver[0], kind)

    def _giver(self, word: Word) -> Word | None:
        stage, kind, number = word
        if kind == "F":
            return (stage - 1, "F", number) if stage else None
        if kind == "W":
            return (stage, "I", number)
        if kind in ("B", "I") and stage == self._last:
            return (stage, "F", number)
        if kind in ("B", "I"):
            return (stage + 1, "I" if (stage + 1, number) in self._split else "B", number)
        return None


# Plans for two stages and one microbatch, small enough to read and to check by hand.
# Blocking power is 50 W, so waiting costs 100 W in all. Columns of ``choice``: 0F0 0B0 1F0 1B0.


def _plans(
    forward: Options, backward: Options, choice: list[list[int]], more: dict[str, str], **arrays: list[float]
) -> PlanSet:
    times_s = arrays["iteration_time_s"]
    return PlanSet(
        fingerprint={"gpu": "A100", "stages": "2"} | more,
        schedule=textbook("1f1b", stages=2, microbatches=1),
        blocking_power_w=50.0,
        options={
            (stage, kind): options
            for stage in (0, 1)
            for kind, options in ((Kind.FORWARD, forward), (Kind.BACKWARD, backward))
        },
        fixed_s={},
        choice=np.array(choice, np.uint8),
        baseline=Baseline(iteration_time_s=6.0, energy_j=1600.0, blocking_power_w=50.0),
        t_min_s=times_s[0],
        t_star_s=times_s[-1],
        solve_time_s=0.25,
        **{name: np.array(values) for name, values in arrays.items()},
    )


FORWARD = Options(np.array([1400, 1000]), np.array([1.0, 1.1]), np.array([220.0, 160.0]))
BACKWARD = Options(np.array([1400, 1000, 700]), np.array([2.0, 2.8, 4.0]), np.array([430.0, 400.0, 380.0]))


def hand_made() -> PlanSet:
    """Three plans: total energy 1600, 1500 and 1550 J over 6, 7 and 9 s."""
    return _plans(
        FORWARD,
        BACKWARD,
        [[0, 0, 0, 0], [1, 0, 1, 1], [1, 2, 1, 1]],
        {},
        iteration_time_s=[6.0, 7.0, 9.0],
        effective_energy_j=[1000.0, 800.0, 650.0],
        lower_bound_j=[1580.0, 1500.0, 1500.0],
        effective_bound_j=[980.0, 800.0, 600.0],
    )


def two_plans() -> PlanSet:
    """Everything at 1400 MHz in 6 s; everything but the first forward at 1000 MHz in 8 s."""
    return _plans(
        Options(np.array([1400, 1000]), np.array([1.0, 1.4]), np.array([220.0, 180.0])),
        Options(np.array([1400, 1000]), np.array([2.0, 2.8]), np.array([430.0, 400.0])),
        [[0, 0, 0, 0], [0, 1, 1, 1]],
        {"microbatches": "1"},
        iteration_time_s=[6.0, 8.0],
        effective_energy_j=[1000.0, 800.0],
        lower_bound_j=[1590.0, 1590.0],
        effective_bound_j=[990.0, 790.0],
    )


def index_at(plans: PlanSet, objective: int) -> FrontierIndex:
    """The index of plans whose objective is plan ``objective``."""
    return replace(FrontierIndex.of(plans, Objective()), objective=objective)


def clocks_of_stage(plan: FrequencyPlan, stage: int) -> list[int]:
    """Clocks in MHz of one stage, in running order: one for a computation, more where it changes."""
    portions, options = plan.portions(), plan.of.options
    return [
        segment.clock_mhz
        for i in plan.of.computations()
        if i.stage == stage
        for portion in portions[i]
        for segment in options[i.stage, i.kind].segments(portion.option)
    ]


def grid(timed: Schedule) -> str:
    """Draw the computations as if each took one step: ranks down, steps across."""
    dag, ranks = dag_of(timed), timed.rank_of_stages()
    starts = dag.earliest_starts([float(node.kind.is_computation) for node in dag.nodes])
    computed = [
        (node, int(at)) for node, at in zip(dag.nodes, starts, strict=True) if node.kind.is_computation
    ]
    rows = [["."] * (1 + max(at for _, at in computed)) for _ in timed.orders]
    for node, at in computed:
        parts = "+".join(f"{part.kind.value}{part.microbatch}" for part in node.parts)
        rows[ranks[node.stage]][at] = str(node) if timed.has_chunks else parts
    name, width = "rank" if timed.has_chunks else "stage", max(len(cell) for row in rows for cell in row)
    return "\n".join(
        f"{name} {rank} | {' '.join(cell.ljust(width) for cell in row)}" for rank, row in enumerate(rows)
    )
