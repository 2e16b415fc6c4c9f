"""Lines in the job's log and events in the run directory: from rank 0 alone, each line once."""

from __future__ import annotations

import contextlib
import logging
import math
import secrets
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from perseus_ds.errors import as_perseus_error
from perseus_ds.plan import PlanSet
from perseus_ds.run_directory.events import append_event
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.run_directory.records import RankPlace
from perseus_ds.runtime.adapter import Adapter
from perseus_ds.runtime.channel import ranks_in_words
from perseus_ds.straggler.controller import Cause, Straggler, StragglerDecision

_engines: set[int] = set()
"""Numbers of all engines that were served in this process."""
_PATIENCE_S = 0.5
_logger = logging.getLogger("perseus_ds")


class _OwnHandler(logging.Handler):
    """Writes to standard error in a job whose program has configured no handler: its output may be parsed."""

    def emit(self, record: logging.LogRecord) -> None:
        if logging.getLogger().handlers or _logger.handlers != [self]:
            return
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001  # as handlers of the standard library do
            self.handleError(record)


_handler = _OwnHandler()
_handler.setFormatter(logging.Formatter("perseus: %(message)s"))
_logger.addHandler(_handler)
if _logger.level == logging.NOTSET:
    _logger.setLevel(logging.INFO)


def log_line(line: str, *, level: int = logging.INFO) -> None:
    """Log one line of the job; a handler of the program that fails is no reason to stop training."""
    with contextlib.suppress(Exception):
        _logger.log(level, "%s", line)


class EventLog:
    """Lines in the log and events in the run directory, from rank 0 alone.

    Where a process trains several engines, lines name theirs: ``engine`` is its number. ``run`` names this
    run in the files that it leaves: a run directory may hold files of an earlier one.
    """

    def __init__(self, rank: int, *, engine: int = 1) -> None:
        self.run = secrets.token_hex(6)
        self._rank = rank
        self._engine = engine
        _engines.add(engine)
        self._directory: RunDirectory | None = None
        self._logged: set[str] = set()
        self._writes = LateWrites()

    def writes_to(self, directory: RunDirectory) -> None:
        self._directory = directory

    def line(self, line: str) -> None:
        """Log one line, if this is rank 0."""
        if self._rank == 0:
            log_line(self._with_engine(line))

    def line_here(self, line: str) -> None:
        """Log a warning on whatever rank this is: for what only this rank knows."""
        log_line(self._with_engine(line), level=logging.WARNING)

    def line_once(self, line: str) -> None:
        if self._is_new(line):
            self.line(line)

    def event(self, event: str, line: str | None = None, **facts: object) -> None:
        """Record an event, and log its line if it has one."""
        if self._rank == 0 and self._directory is not None:
            file, at = self._directory.events, datetime.now(UTC)
            facts |= {"line": line} if line else {}
            if not self.write(file, lambda: append_event(file, event, facts, at=at), lost="any more"):
                self._directory = None  # a full disk ends the journal, not the work
        if line is not None:
            self.line(line)

    def event_once(self, event: str, line: str, **facts: object) -> None:
        if self._is_new(line):
            self.event(event, line, **facts)

    def write(self, path: Path, act: Callable[[], object], *, lost: str = "") -> bool:
        """Write a file beside the journal; a full disk costs the file, not the work.

        Returns: whether it is written, or will be; what is ``lost`` else is the end of the line that says so.
        """
        try:
            is_done = self._writes.write(act)
        except Exception as error:  # noqa: BLE001  # whatever it is, a file is no reason to stop training
            reason = getattr(error, "strerror", None) or as_perseus_error(error).message
            self.line(f"{path} is not written{lost and f' {lost}'}: {reason}")
            return False
        if not is_done:
            self.line_once("the disk of the run directory is slow: training does not wait for its files")
        return True

    def _is_new(self, line: str) -> bool:
        known = line in self._logged
        self._logged.add(line)
        return not known

    def _with_engine(self, line: str) -> str:
        return f"engine {self._engine}: {line}" if max(_engines, default=1) > 1 else line


class LateWrites:
    """Writes beside the training, in their order, by a thread that lives as long as there are any.

    On an ordinary disk a write is done when `write` returns. On one that does not answer the caller waits
    once, and not again before the disk has caught up. From Python 3.12 on no thread can begin while the
    interpreter exits: the caller writes itself then.
    """

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._waiting: deque[Callable[[], object]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def write(self, act: Callable[[], object]) -> bool:
        """Write, after all before it; return whether that is done.

        Raises what this write raised, or one before it that was not waited for.
        """
        with self._lock:
            self._waiting.append(act)
            idle = self._thread is None
            if idle:
                self._thread = threading.Thread(target=self._drain, name="perseus-disk", daemon=True)
            thread = self._thread
        if idle and thread is not None:
            self._begin(thread)
        with self._lock:
            error, self._error = self._error, None
            is_done = self._thread is None
        if error is not None:
            raise error
        return is_done

    def _begin(self, thread: threading.Thread) -> None:
        try:
            thread.start()
        except RuntimeError:  # the interpreter exits: no training is left to stall
            self._drain()
        else:
            thread.join(self._patience_s)

    def _drain(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                act = self._waiting.popleft()
            try:
                act()
            except Exception as error:  # noqa: BLE001  # the writes after it have their turn
                self._error = error


def log_troubles(log: EventLog, by_rank: Mapping[int, Sequence[str]]) -> None:
    """Report new warnings of other ranks' counters, each once; rank 0 reports its own as they come."""
    ranks_of: dict[str, list[int]] = defaultdict(list)
    for rank, troubles in by_rank.items():
        for trouble in troubles if rank else ():
            ranks_of[trouble].append(rank)
    for trouble, ranks in ranks_of.items():
        log.event_once("not_measured", f"{ranks_in_words(ranks)}: {trouble}", ranks=ranks)


class Scalars:
    """Write scalars to the framework's monitor, at its own pace and whenever the plan changes.

    A monitor that fails ends the scalars and nothing else.
    """

    def __init__(self, adapter: Adapter, log: EventLog) -> None:
        self._adapter = adapter
        self._every = adapter.scalars_every
        self._log = log
        self._written: Mapping[str, float] = {}
        self._turn = 0

    def write(self, shown: Mapping[str, float]) -> None:
        """Write if it is time, or if the plan is another one."""
        if self._every is None or not shown:
            return
        self._turn += 1
        fresh = shown.get("plan") != self._written.get("plan") or shown.keys() != self._written.keys()
        if not fresh and self._turn % self._every:
            return
        self._written = dict(shown)
        try:
            self._adapter.write_scalars(shown)
        except Exception as error:  # noqa: BLE001  # a full disk or a lost service is no reason to stop
            self._every = None
            self._log.line_once(f"{self._adapter.name}'s monitor takes no more scalars: {error}")


_MOST_GPUS = 4


class StragglerReporter:
    """Reports stragglers: a line when others wait for other ones than before; the rest is journal.

    ``awaited`` are the stragglers that others wait for just now, each with its devices.

    Shape: ``gpus``, ``names`` [replicas].
    """

    def __init__(
        self,
        log: EventLog,
        frontier: PlanSet,
        *,
        gpus: Sequence[Sequence[RankPlace]],
        names: Sequence[str],
    ) -> None:
        self._log = log
        self._frontier, self._gpus, self._names = frontier, gpus, names
        self._known: tuple[int, ...] = ()
        self._chosen: tuple[float, ...] = ()
        self._ended = False
        self.awaited: tuple[tuple[Straggler, Sequence[RankPlace]], ...] = ()

    def report(self, decision: StragglerDecision, plans: Sequence[float]) -> None:
        """Log what is new in a decision; ``plans`` are those that the replicas run from now on."""
        for replica in decision.unconfirmed:
            name = self._names[replica]
            self._log.line_once(f"{name} was announced as slow and measures as fast as the others")
        answered = decision.sync_time_s is not None or decision.ended
        awaited = [
            one
            for one in decision.stragglers
            if answered or one.cause is Cause.FLAPPING or one.replica in self._known
        ]
        replicas = tuple(sorted(one.replica for one in awaited))
        self.awaited = tuple((one, self._gpus[one.replica]) for one in awaited)
        if replicas == self._known:
            if tuple(plans) != self._chosen and decision.sync_time_s is not None:
                self._log.event("straggler", None, **self._facts(decision, plans))
        elif replicas:
            self._report_new(decision, awaited, plans)
        else:
            names = ", ".join(self._names[replica] for replica in self._known)
            self._log.event(
                "straggler_gone",
                f"{names} keeps up again: everyone is back at the objective's plan",
                replicas=list(self._known),
            )
        if decision.ended and not self._ended:
            self._log.event(
                "answers_ended",
                "answers to stragglers have cost as much time as straggler.max_cost_pct allows in the last "
                "1,000 iterations: nobody is slowed for a straggler until it is less than half of that",
            )
        self._known, self._chosen, self._ended = replicas, tuple(plans), decision.ended

    def _report_new(
        self, decision: StragglerDecision, awaited: Sequence[Straggler], plans: Sequence[float]
    ) -> None:
        slow = "; ".join(
            f"{self._names[one.replica]}{self._where(one)} is {one.slowdown:.2f} times slower than its peers "
            f"({one.cause.text}{_sureness(one)})"
            for one in awaited
        )
        facts = self._facts(decision, plans)
        answer = "nobody is slowed"
        if decision.sync_time_s is not None:
            waiting = decision.waiting[0]
            # compared with default clocks beside the same straggler; both wait for it
            planned_j, default_j = self._frontier.waiting_j(plans[waiting], decision.sync_time_s)
            saving_pct = 100.0 * (1.0 - planned_j / default_j)
            facts["predicted_saving_pct"] = saving_pct
            answer = (
                f"the others aim at {decision.sync_time_s:.4g} s with plan {plans[waiting]:.6g} of "
                f"{len(self._frontier)}: {saving_pct:.1f} % energy saved on each of them as planned"
            )
        self._log.event("straggler", f"straggler: {slow}; {answer}", **facts)

    def _facts(self, decision: StragglerDecision, plans: Sequence[float]) -> dict[str, object]:
        return {
            "sync_time_s": decision.sync_time_s,
            "stragglers": [
                {
                    "replica": one.replica,
                    "slowdown": one.slowdown,
                    "cause": one.cause.value,
                    "doubt": one.doubt,
                    "gpus": [{"host": gpu.host, "gpu": gpu.gpu} for gpu in self._gpus[one.replica]],
                }
                for one in decision.stragglers
            ],
            "waiting": list(decision.waiting),
            "plans": [int(plan) if plan == int(plan) else plan for plan in plans],
        }

    def _where(self, straggler: Straggler) -> str:
        """Name its hosts, and its GPUs where they are few."""
        hosts: dict[str, list[str]] = {}
        gpus = self._gpus[straggler.replica]
        for one in gpus:
            hosts.setdefault(one.host, []).append(one.gpu)
        few = len(gpus) <= _MOST_GPUS
        names = [f"{host}: {', '.join(each)}" if few else host for host, each in hosts.items()]
        return f" ({'; '.join(names)})" if names else ""


def _sureness(straggler: Straggler) -> str:
    """State how sure the measurement is, rounded down; nothing where none is concluded from."""
    sure_pct = math.floor(1e4 * (1.0 - straggler.doubt)) / 100.0
    return f", {min(sure_pct, 99.99):g} % sure" if straggler.doubt else ""
