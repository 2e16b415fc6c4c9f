"""The orders by name, and schedules of them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from perseus_ds.errors import ScheduleError
from perseus_ds.schedule.schedule import Instruction, Kind, Schedule

F, B, I, W = Kind.FORWARD, Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT  # noqa: E741
Step = tuple[int, Kind]

# A stage on every rank: GPipe, 1F1B and ZB-H1.


def gpipe(rank: int, *, ranks: int, microbatches: int, is_fifo: bool = False) -> Iterator[Instruction]:
    """Run all forwards, then all backwards in reverse, or in the forwards' order.

    Source: Huang et al. 2019 (arXiv 1811.06965), figure 2; in order as torch 2.13's ``ScheduleGPipe``.
    """
    del ranks
    forwards = range(microbatches)
    for microbatch in forwards:
        yield Instruction(rank, Kind.FORWARD, microbatch)
    for microbatch in forwards if is_fifo else reversed(forwards):
        yield Instruction(rank, Kind.BACKWARD, microbatch)


def one_f_one_b(rank: int, *, ranks: int, microbatches: int) -> Iterator[Instruction]:
    """Hold no more microbatches than there are ranks ahead.

    Source: PipeDream-Flush, Narayanan et al. 2021 (arXiv 2006.09503).
    """
    warm_up = min(ranks - rank - 1, microbatches)
    kinds = [*[F] * warm_up, *[F, B] * (microbatches - warm_up), *[B] * warm_up]
    return _number((rank, kind) for kind in kinds)


def zero_bubble_h1(rank: int, *, ranks: int, microbatches: int) -> Iterator[Instruction]:
    """Owe ``rank`` weight gradients at most, and repay them, oldest first, while the pipeline drains.

    Backwards that leave the debt as it is stay whole.

    Source: Qi et al. 2023 (arXiv 2401.10241), section 2; as ``ZeroBubbleH1Pipeline`` in Megatron-DeepSpeed
    4efb479d without ``enable_zbh1_exact_semantics``.
    """
    return _number((rank, kind) for kind in _h1_kinds(rank, ranks, microbatches))


def _h1_kinds(rank: int, ranks: int, microbatches: int) -> Iterator[Kind]:
    warm_up = min(ranks - rank - 1, microbatches)
    yield from [F] * warm_up
    for backward in range(microbatches - warm_up):
        yield F
        if backward < rank:
            yield I
        elif rank > 0 and backward + warm_up + 1 == microbatches:
            yield from (I, W)
        else:
            yield B
    yield from ([I, W] if rank else [B]) * warm_up
    yield from [W] * rank


def _number(steps: Iterable[Step]) -> Iterator[Instruction]:
    """Number forwards, and backwards alike, whole or split; repay weight gradients oldest first."""
    done: Counter[Step] = Counter()
    owed: deque[tuple[int, int]] = deque()
    for stage, kind in steps:
        if kind is W:
            if owed:
                late, microbatch = owed.popleft()
                yield Instruction(late, W, microbatch)
            continue
        way = stage, F if kind is F else B
        if kind is I:
            owed.append((stage, done[way]))
        yield Instruction(stage, kind, done[way])
        done[way] += 1


# Several chunks of the model on every rank, in a loop: interleaved 1F1B, with zero bubble, breadth first.


def interleaved(
    rank: int, *, ranks: int, microbatches: int, chunks: int, group: int | None = None
) -> Iterator[Instruction]:
    """Alternate forwards and backwards of chunks; chunk c of a rank is model stage ``c * ranks + rank``.

    ``group`` microbatches (by default as many as there are ranks) pass one chunk before they pass the next.

    Source: Narayanan et al. 2021 (arXiv 2104.04473), section 2.2; groups and warm-up as in
    megatron-core 0.16.1, ``get_schedule_table`` and ``get_pp_rank_microbatches``.
    """
    group = group or ranks
    steps = list(passes(microbatches, chunks, group))
    warm_up = min(2 * (ranks - rank - 1) + (chunks - 1) * group, len(steps))
    forwards = [Instruction(c * ranks + rank, Kind.FORWARD, m) for m, c in steps]
    backwards = [Instruction((chunks - 1 - c) * ranks + rank, Kind.BACKWARD, m) for m, c in steps]
    yield from forwards[:warm_up]
    for forward, backward in zip(forwards[warm_up:], backwards, strict=False):
        yield forward
        yield backward
    yield from backwards[len(steps) - warm_up :]


def interleaved_combined(
    rank: int, *, ranks: int, microbatches: int, chunks: int, group: int | None = None
) -> Iterator[Instruction]:
    """Warm up by one forward more, then run each forward at once with the backward that would follow it.

    Source: megatron-core 0.16.1 with ``overlap_moe_expert_parallel_comm``: ``get_pp_rank_microbatches``, and
    for one rank and one chunk ``combined_1f1b_schedule_for_no_pipelining``.
    """
    order = list(interleaved(rank, ranks=ranks, microbatches=microbatches, chunks=chunks, group=group))
    forwards = [i for i in order if i.kind is Kind.FORWARD]
    backwards = [i for i in order if i.kind is Kind.BACKWARD]
    warm_up = min(order.index(backwards[0]), len(forwards))
    yield from forwards[:warm_up]
    for forward, backward in zip(forwards[warm_up:], backwards, strict=False):
        yield Instruction.combine(forward, backward)
    yield from backwards[len(forwards) - warm_up :]


def passes(microbatches: int, chunks: int, group: int) -> Iterator[tuple[int, int]]:
    """Yield microbatch and chunk of a rank's n-th forward: group after group, chunk after chunk."""
    for first in range(0, microbatches, group):
        for chunk in range(chunks):
            for microbatch in range(first, min(first + group, microbatches)):
                yield microbatch, chunk


def interleaved_zero_bubble(
    rank: int, *, ranks: int, microbatches: int, chunks: int, group: int | None = None
) -> Iterator[Instruction]:
    """Follow every input gradient but the first ``rank`` by the oldest weight gradient that is owed.

    Source: Qi et al. 2023 (arXiv 2401.10241), as in torch 2.13's ``ScheduleInterleavedZeroBubble``.
    """
    group = group or ranks
    chunks_run = [chunk for _, chunk in passes(microbatches, chunks, group)]
    forwards = [(chunk * ranks + rank, F) for chunk in chunks_run]
    backwards = [((chunks - 1 - chunk) * ranks + rank, I) for chunk in chunks_run]
    warm_up = min(ranks - rank - 1 + (chunks - 1) * group, len(forwards))
    steps = forwards[:warm_up]
    for step, backward in enumerate(backwards):
        steps += [*forwards[warm_up + step : warm_up + step + 1], backward]
        steps += [(rank, W)] * (step >= rank)
    return _number([*steps, *[(rank, W)] * rank])


def looped_bfs(rank: int, *, ranks: int, microbatches: int, chunks: int) -> Iterator[Instruction]:
    """Run a chunk's forwards in a row and its backwards in a row, reversed.

    Source: Lamy-Poirier 2022 (arXiv 2211.05953), as in torch 2.13's ``ScheduleLoopedBFS``.
    """
    stages = range(rank, ranks * chunks, ranks)
    for stage in stages:
        for microbatch in range(microbatches):
            yield Instruction(stage, Kind.FORWARD, microbatch)
    for stage in reversed(stages):
        for microbatch in reversed(range(microbatches)):
            yield Instruction(stage, Kind.BACKWARD, microbatch)


# Two chunks on every rank, laid out as a V: ZBV and DualPipe-V.


def zero_bubble_v(rank: int, *, ranks: int, microbatches: int) -> Iterator[Instruction]:
    """Fill the V, alternate both arms, drain; an order made for more microbatches leaves those out.

    Source: Qi et al. 2023 (arXiv 2401.10241), section 6, as in torch 2.13's ``ScheduleZBVZeroBubble``.
    """
    done: Counter[Step] = Counter()
    for stage, kind in _zero_bubble_steps(rank, ranks, max(2 * ranks - 1, microbatches)):
        microbatch = done[stage, kind]
        done[stage, kind] += 1
        if microbatch < microbatches:
            yield Instruction(stage, kind, microbatch)


def _zero_bubble_steps(rank: int, ranks: int, microbatches: int) -> Iterator[Step]:
    down, up, ahead = rank, 2 * ranks - 1 - rank, ranks - rank
    yield from [(down, F)] * (2 * ahead - 1)
    yield from [(up, F), (down, F)] * rank
    yield from [(up, F), (up, I), (up, W)] * ahead
    more = microbatches - (2 * ahead - 1 + rank)
    yield from [(down, F), (down, I), (down, W), (up, F), (up, I), (up, W)] * more
    drained = microbatches - ranks - more  # forwards that the upper chunk still owes
    yield from [(down, I), (down, W), (up, F), (up, I), (up, W)] * drained
    yield from [(down, I), (up, I)] * rank
    yield from [(down, I), (down, W)] * ahead
    yield from [(up, W)] * rank
    yield from [(down, W)] * rank


def dualpipe_v(rank: int, *, ranks: int, microbatches: int) -> Iterator[Instruction]:
    """Split the backwards that fill the bubble; needs 2 microbatches per rank.

    Source: https://github.com/deepseek-ai/DualPipe, as in torch 2.13's ``ScheduleDualPipeV``.
    """
    return _number(_dualpipe_steps(rank, ranks, microbatches))


def dualpipe_v_whole(rank: int, *, ranks: int, microbatches: int) -> Iterator[Instruction]:
    """Keep every backward whole; needs 2 microbatches per rank.

    Source: DeepSpeed 0.19.8's ``DualPipeVSchedule``.
    """
    steps = _dualpipe_steps(rank, ranks, microbatches)
    return _number((stage, B if kind is I else kind) for stage, kind in steps if kind is not W)


def _dualpipe_steps(rank: int, ranks: int, microbatches: int) -> Iterator[Step]:
    """The eight steps of the source; a ``W`` stands where one may be repaid."""
    down, up, behind = rank, 2 * ranks - 1 - rank, ranks - rank - 1
    yield from [(down, F)] * 2 * behind  # 1
    yield from [(down, F), (up, F)] * (rank + 1)  # 2
    yield from [(up, I), (up, W), (up, F)] * behind  # 3
    yield from [(down, F), (up, B), (up, F), (down, B)] * (microbatches - 2 * ranks + rank + 1)  # 4
    yield from [(up, B), (up, F), (down, B)] * behind  # 5
    for place in range(2 * (rank + 1)):  # 6: the second half is split
        yield (up, down)[place % 2], I if place > rank else B
    yield from [(up, W), (down, I)] * behind  # 7
    yield from [(up, W)] * (rank + 1)  # 8


@dataclass(frozen=True, slots=True)
class Textbook:
    """An order and what it asks for: chunks per rank (None: any number), groups, microbatches per rank."""

    order: Callable[..., Iterator[Instruction]]
    chunks: int | None = 1
    grouped: bool = False
    microbatches_per_rank: int = 0


TEXTBOOK = {
    "1f1b": Textbook(one_f_one_b),
    "gpipe": Textbook(gpipe),
    "gpipe-fifo": Textbook(partial(gpipe, is_fifo=True)),
    "zb-h1": Textbook(zero_bubble_h1),
    "interleaved": Textbook(interleaved, chunks=None, grouped=True),
    "interleaved-zb": Textbook(interleaved_zero_bubble, chunks=None, grouped=True),
    "interleaved-fb": Textbook(interleaved_combined, chunks=None, grouped=True),
    "looped-bfs": Textbook(looped_bfs, chunks=None),
    "zbv": Textbook(zero_bubble_v, chunks=2),
    "dualpipe-v": Textbook(dualpipe_v, chunks=2, microbatches_per_rank=2),
    "dualpipe-v-whole": Textbook(dualpipe_v_whole, chunks=2, microbatches_per_rank=2),
}


def textbook(
    name: str, *, stages: int, microbatches: int, chunks: int | None = None, group: int | None = None
) -> Schedule:
    """Build a named schedule of ``stages`` model stages, ``chunks`` of them on every rank.

    ``chunks`` is 1, or 2 where the order has two arms, if not given. Interleaved orders take any number, and
    in how large a ``group`` microbatches pass a chunk.

    Raises:
        ScheduleError: an unknown name, or sizes that make no such pipeline.
    """
    if name not in TEXTBOOK:
        raise ScheduleError(f"schedule {name!r} is not known", hint=f"known: {', '.join(TEXTBOOK)}")
    if stages < 1 or microbatches < 1 or (group is not None and group < 1):
        raise ScheduleError(
            f"{stages} stages and {microbatches} microbatches do not make a pipeline",
            hint="both are at least 1, as is a group",
        )
    book = TEXTBOOK[name]
    each = chunks if chunks is not None else book.chunks or 1
    if each < 1 or each != (book.chunks or each):
        raise ScheduleError(
            f"{name} with {each} chunks on every rank does not exist",
            hint=f"it has {book.chunks}" if book.chunks else "at least 1",
        )
    if stages % each:
        raise ScheduleError(f"{stages} stages do not fill ranks of {each} chunks", hint="give a multiple")
    ranks = stages // each
    if microbatches < ranks * book.microbatches_per_rank:
        raise ScheduleError(
            f"{name} on {ranks} ranks needs {ranks * book.microbatches_per_rank} microbatches,"
            f" got {microbatches}"
        )
    order = book.order if book.chunks else partial(book.order, chunks=each)
    if book.grouped:
        order = partial(order, group=group)
    elif group is not None:
        raise ScheduleError(f"{name} has no groups of microbatches", hint="leave the group out")
    orders = tuple(tuple(order(rank, ranks=ranks, microbatches=microbatches)) for rank in range(ranks))
    return Schedule(name, microbatches, orders)
