"""Kill at random, and see from outside whether a clock stays locked."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cases import Case, drawn
from node import TRAINER, Node

import perseus_ds.cli.clocks  # noqa: F401 - here, so that forks have it
from perseus_ds.cli.main import main

_LIMIT_S = 60.0
_START_LIMIT_S = 60.0
_DEAF_S = 5.0
_ASKS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})  # a guard to end, when it has done its duty


@dataclass(frozen=True)
class Outcome:
    """What became of one case.

    ``lived``: a guard, a trainer or the service outlived the kill, or a guard was only asked to end.
    ``alone_s`` is how long the clock stayed locked after it (``None``: to the end of our patience, or it was
    never locked). ``left``: it was locked when nothing of ours lived any more; ``left_at_last``: it was after
    the next start. ``went_on``: a trainer did; it was then killed in its turn.
    """

    case: Case
    locked_before: bool
    lived: bool
    alone_s: float | None
    left: bool
    left_at_last: bool
    went_on: bool
    said: str

    @property
    def failed(self) -> bool:
        """Whether a clock stayed locked that should not have."""
        return (self.left_at_last and not self.without_journal) or (self.lived and self.left)

    @property
    def without_journal(self) -> bool:
        """Whether nobody can know of the clock: all of ours died, and the journal's folder is removed."""
        return self.case.disk == "folder removed" and not self.lived


def run(node: Node, count: int, seed: int) -> Iterator[Outcome]:
    """Run so many cases one after the other."""
    for number in range(count):
        yield one(node, drawn(number, seed))


def one(node: Node, case: Case) -> Outcome:
    """Start a job, kill by the case, wait, and start again."""
    node.heal()
    node.clean()
    node.set_driver(case)
    with node.service(case):
        process = node.start(case)
        try:
            outcome = _killed(node, case, process)
        finally:
            node.end_all()
            _end(process)
    return outcome


def _killed(node: Node, case: Case, process: subprocess.Popen[str]) -> Outcome:
    if case.moment != "start":
        _until_said(process)
        node.strike(case)
    time.sleep(case.wait_s)
    node.disk_as(case.disk)
    locked_before = node.locked
    victims = _victims(node, case, process)
    lives = case.service or (
        not case.in_container
        and any(
            _is_ours(words)
            for pid, words in node.processes().items()
            if pid not in victims or (case.signal in _ASKS and _is_guard(words))
        )
    )
    node.strike(case, for_s=case.errors_s)
    killed_s = time.monotonic()
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, case.signal)
    if case.signal is signal.SIGSTOP:
        time.sleep(0.05)
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    alone_s = _seconds_to_free(node, victims, killed_s) if lives else None
    return _outcome(node, case, locked_before, lives, alone_s)


def _seconds_to_free(node: Node, victims: Sequence[int], killed_s: float) -> float | None:
    """How long after the kill nobody's clock was locked any more, or somebody unharmed still held it."""
    while time.monotonic() < killed_s + _LIMIT_S:
        free_s = time.monotonic()
        if not any(map(_runs, victims)) and (not node.locked or _holds(node)):
            return free_s - killed_s
        time.sleep(0.001)
        if free_s > killed_s + _DEAF_S and _deaf(node, victims):
            return None
    return None


def _deaf(node: Node, victims: Sequence[int]) -> bool:
    """Whether a signal has not ended a process that has nothing left to do."""
    return any(_runs(pid) and not _is_guard(node.processes().get(pid, [])) for pid in victims)


def _outcome(node: Node, case: Case, locked_before: bool, lived: bool, alone_s: float | None) -> Outcome:  # noqa: FBT001
    """See what is left, then start anew."""
    left = node.locked and not _holds(node)
    went_on = any(str(TRAINER) in words for words in node.processes().values())
    if went_on:  # a signal that ended nothing, or a launcher that died before anybody watched it
        node.end_all_gently()
        left = node.locked and not (lived and _lets_go(node))
    node.heal()
    said = _next_start()
    left_at_last = node.locked and not (lived and _lets_go(node))
    return Outcome(case, locked_before, lived, alone_s, left, left_at_last, went_on, said)


def _lets_go(node: Node) -> bool:
    """Whether somebody of ours who lives, and whom the next start leaves alone, frees the clock soon."""
    until_s = time.monotonic() + _DEAF_S
    while node.locked and time.monotonic() < until_s:
        time.sleep(0.001)
    return not node.locked


def _holds(node: Node) -> bool:
    """Whether both a trainer and its guard live on, unharmed."""
    kinds = Counter(kind for words in node.processes().values() for kind in _kinds(words))
    return kinds["trainer"] > 0 and kinds["guard"] > 0


def _kinds(words: Sequence[str]) -> Iterator[str]:
    if _is_wrapper(words):
        return
    if _is_guard(words):
        yield "guard"
    if str(TRAINER) in words:
        yield "trainer"


def _is_guard(words: Sequence[str]) -> bool:
    return "perseus_ds.guard" in words


def _is_ours(words: Sequence[str]) -> bool:
    return any(_kinds(words))


def _victims(node: Node, case: Case, process: subprocess.Popen[str]) -> list[int]:
    """The processes that the case kills, the first to die first."""
    running = node.processes()
    guards = [pid for pid, words in running.items() if _is_guard(words)]
    trainers = [pid for pid, words in running.items() if "trainer" in _kinds(words)]
    of = {
        "trainer": trainers[:1],
        "guard": guards,
        "both": guards + trainers,
        "group": [pid for pid in running if _group_of(pid) == process.pid],
        "launcher": [process.pid],
        "container": _first_inside(process.pid),
        "container's rank": trainers[:1],
    }
    return of[case.victim] or [process.pid]


def _is_wrapper(words: Sequence[str]) -> bool:
    return words[0] in {"unshare", "sh"} or any(word.endswith("/torchrun") for word in words[:2])


def _first_inside(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        return [int(word) for word in children[:1]]
    return []


def _group_of(pid: int) -> int:
    with contextlib.suppress(ProcessLookupError):
        return os.getpgid(pid)
    return -1


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        ended = stat.rpartition(")")[2].split()[0] in {"Z", "X"}
        return not ended or len([*Path(f"/proc/{pid}/task").iterdir()]) > 1  # who may hold the locks
    except OSError:
        return False


def _until_said(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    poll = select.poll()
    poll.register(process.stdout.fileno(), select.POLLIN)
    if poll.poll(1000 * _START_LIMIT_S):
        process.stdout.readline()


def _next_start() -> str:
    """What the next start of anything of ours does first; in a fork, since another Python costs more."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        with (
            os.fdopen(theirs, "w") as words,
            contextlib.redirect_stdout(words),
            contextlib.redirect_stderr(words),
        ):
            code = main(["clocks", "reset"])
        os._exit(code)
    os.close(theirs)
    with os.fdopen(ours) as file:
        said = file.read().strip()
    os.waitpid(child, 0)
    return said


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    assert process.stdout is not None
    process.stdout.close()
    process.wait()


def summary(outcomes: Sequence[Outcome]) -> dict[str, object]:
    """Sum a campaign up."""
    alone = sorted(one.alone_s for one in outcomes if one.alone_s is not None and one.locked_before)
    quiet = sorted(
        one.alone_s for one in outcomes if one.alone_s is not None and one.locked_before and one.case.is_quiet
    )
    return {
        "kills": len(outcomes),
        "locked_at_the_kill": sum(one.locked_before for one in outcomes),
        "something_of_ours_lived": sum(one.lived for one in outcomes),
        "left_while_something_of_ours_lived": sum(one.lived and one.left for one in outcomes),
        "all_had_died": sum(not one.lived for one in outcomes),
        "left_when_all_had_died": sum(not one.lived and one.left for one in outcomes),
        "left_after_the_next_start": sum(one.left_at_last and not one.without_journal for one in outcomes),
        "left_whose_journal_was_removed": sum(one.left_at_last and one.without_journal for one in outcomes),
        "restore_median_s": alone[len(alone) // 2] if alone else None,
        "restore_longest_s": alone[-1] if alone else None,
        "restore_median_s_no_errors_calls_of_at_most_10_ms": quiet[len(quiet) // 2] if quiet else None,
        "restore_longest_s_no_errors_calls_of_at_most_10_ms": quiet[-1] if quiet else None,
        "jobs_that_went_on": sum(one.went_on for one in outcomes),
        "with_errors": sum(one.case.errors_pct > 0 or one.case.errors_s > 0 for one in outcomes),
        "failures": [asdict(one) for one in outcomes if one.failed],
    }
