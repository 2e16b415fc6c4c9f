"""What every framework adapter keeps to, as a test class that an adapter's own test inherits.

It runs real engines in real processes. An adapter's test defines how to build a small engine on each rank
(`host`); everything else is here, in one class that can be inherited.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import wraps
from itertools import product
from typing import Any, Protocol, TypeVar
from unittest.mock import create_autospec, patch

import pytest
import torch
from torch.nn import Module

from perseus_ds.errors import EngineError
from perseus_ds.runtime.adapter import Adapter, Batch, InstructionListener
from perseus_ds.runtime.place import matmul_weight
from perseus_ds.schedule import Kind, Load, Schedule

# Listeners that an adapter is tried with: one that notes, one that leaves, one that fails.


@dataclass(slots=True)
class NotedIteration:
    batch: Batch
    kinds: list[Kind] = field(default_factory=list)
    loads: list[Load | None] = field(default_factory=list)
    ended: str | None = None
    unpaired: bool = False


class Noting:
    """Notes every iteration; ``running`` is the instruction that runs now."""

    def __init__(self, *, wants: bool = True) -> None:
        self.wants = wants
        self.iterations: list[NotedIteration] = []
        self.others = 0
        self.failures: list[Exception] = []
        self.running: Kind | None = None

    def iteration_begins(self, batch: Batch) -> bool:
        self.iterations.append(NotedIteration(batch))
        self.running = None
        return self.wants

    def before(self, kind: Kind, load: Load | None = None) -> None:
        noted = self.iterations[-1]
        noted.unpaired |= self.running is not None
        noted.kinds.append(kind)
        noted.loads.append(load)
        self.running = kind

    def after(self, kind: Kind) -> None:
        self.iterations[-1].unpaired |= self.running is not kind
        self.running = None

    def iteration_ends(self) -> None:
        self.iterations[-1].ended = "ends"

    def other_schedule_begins(self) -> None:
        self.others += 1

    def iteration_broke(self) -> None:
        self.iterations[-1].ended = "broke"

    def fail(self, error: Exception) -> bool:
        self.failures.append(error)
        return False


def listening(**calls: object) -> Any:  # noqa: ANN401
    """A listener that wants every iteration and counts its calls; ``calls`` are what some of them do."""
    listener = create_autospec(InstructionListener, instance=True)
    listener.iteration_begins.return_value, listener.fail.return_value = True, False
    for name, effect in calls.items():
        getattr(listener, name).side_effect = effect
    return listener


def failing(where: str, *, fails_to_leave: bool = False) -> Any:  # noqa: ANN401
    """Return a listener that raises in one of its calls, and if asked in ``fail`` as well."""
    calls = {where: ZeroDivisionError("a bug of ours")}
    return listening(
        **calls | ({"fail": ZeroDivisionError("a second bug of ours")} if fails_to_leave else {})
    )


_FORWARDS = frozenset({Kind.FORWARD, Kind.FORWARD_BACKWARD})
_BACKWARDS = frozenset({Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT, Kind.FORWARD_BACKWARD})
_HOSTS_OWN = frozenset({Kind.UNKNOWN, Kind.UNKNOWN_COMPUTE})


class Witness(Noting):
    """Notes work that no mark was open for, and the kinds that work was seen in."""

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.seen: set[Kind] = set()

    def watch(self, modules: Iterable[torch.nn.Module]) -> None:
        """See every module without children compute, forwards and backwards."""
        for module in modules:
            for part in module.modules():
                if not any(part.children()):
                    part.register_forward_hook(self._forward)

    def _forward(self, module: torch.nn.Module, inputs: object, output: object) -> None:
        del inputs
        name = type(module).__name__
        self._note(f"forward of {name}", _FORWARDS)
        tensor = output[0] if isinstance(output, tuple) else output
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
            tensor.register_hook(lambda _: self._note(f"backward of {name}", _BACKWARDS))  # type: ignore[no-untyped-call]  # torch's

    def _note(self, work: str, kinds: Iterable[Kind]) -> None:
        if self.running in _HOSTS_OWN:
            return
        if self.running is None or self.running not in kinds:
            self.outside.append(f"{work} within {self.running and self.running.value}")
        else:
            self.seen.add(self.running)


T = TypeVar("T")

ITERATIONS = 3

CALLS = "iteration_begins", "before", "after", "iteration_ends", "other_schedule_begins", "iteration_broke"
"""The calls of a listener that an adapter makes."""

_SHARE_OFF = 0.05  # of all work: weights that multiply are not all that takes time


class Host(Protocol):
    """A small real engine on one rank, built anew from the same seed."""

    def adapter(self) -> Adapter:
        """Return an adapter for the engine, as `attach` would make it at the first training iteration."""

    def train(self) -> Sequence[str]:
        """Run one training iteration, on the next of the same batches; return its losses exactly (hex)."""

    def modules(self) -> Mapping[int, Module]:
        """Return the module that computes each model stage of this rank; of more than one stage, uneven."""

    def evaluate(self) -> bool:
        """Run an evaluation; False where the framework has none."""

    def weights(self) -> str:
        """Return a digest of all weights, to the last bit."""

    def fail_next(self, error: Exception) -> None:
        """Have the user's own code raise this in the next iteration, on this rank."""

    def attributes(self) -> Mapping[str, object]:
        """Return everything that hooks may replace, under its name; absent ones are left out."""

    def without(self, name: str) -> AbstractContextManager[object]:
        """Take away a name that the adapter relies on."""


def on_ranks(count: int | None = None) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Run a test in a process of its own for every rank: so many, or as many as the contract's ``ranks``."""

    def wrapped(test: Callable[[Any], None]) -> Callable[[Any], None]:
        @wraps(test)
        def everywhere(self: AdapterContract) -> None:
            self.run(lambda _: test(self), ranks=count or self.ranks)

        return everywhere

    return wrapped


class AdapterContract:
    """Inherit; give `host`, and what is true of the framework.

    ``ranks`` is the number of ranks, none of them tensor-parallel peers. ``marked`` are the kinds that the
    hooks see, of all that stand in the orders. ``required`` are some names that the adapter relies on,
    ``counting`` the functions that read its inputs, ``before_marks`` modules that compute before the host
    waits for an instruction's other inputs.
    """

    ranks = 2
    marked: Collection[Kind] = ()
    required: Sequence[str] = ()
    counting: Sequence[str] = ()
    before_marks: Collection[str] = ()
    _left: Sequence[str] = ()

    def run(self, body: Callable[[int], T], *, ranks: int) -> list[T]:
        """Call ``body(rank)`` in a process of its own for every rank, communicators ready."""
        from ranks import run_ranks  # with it come torch and DeepSpeed

        return [said.value for said in run_ranks(ranks, body)]

    def host(self, *, ranks: int) -> Host:
        """Build the engine of this rank, in one of those processes."""
        raise NotImplementedError("an adapter's test builds its own small engine")

    def installed(self, listener: InstructionListener, *, ranks: int = 1) -> tuple[Host, Adapter]:
        """Return an engine with hooks that call a listener."""
        host = self.host(ranks=ranks)
        adapter = host.adapter()
        adapter.install(listener)
        return host, adapter

    def test_events_come_in_the_derived_order(self) -> None:
        """On every rank and iteration the hooks announce the rank's order, and all derive the same."""

        def body(_: int) -> tuple[int, Schedule, Noting]:
            host, noting = self.host(ranks=self.ranks), Noting()
            adapter = host.adapter()
            place = adapter.place()
            schedule = adapter.schedule(_gathered(place))
            adapter.install(noting)
            for _ in range(ITERATIONS):
                host.train()
            adapter.remove()
            return place.pipeline_rank, schedule, noting

        answers = self.run(body, ranks=self.ranks)
        for rank, (pipeline_rank, schedule, noting) in enumerate(answers):
            assert schedule == answers[0][1], f"rank {rank} derives another schedule"
            expected = [i.kind for i in schedule.orders[pipeline_rank] if i.kind in self.marked]
            assert any(kind.is_computation for kind in expected)
            assert len(noting.iterations) == ITERATIONS
            for iteration in noting.iterations:
                assert iteration.batch.microbatches == schedule.microbatches
                assert iteration.kinds == expected, f"rank {rank}"
                assert (iteration.ended, iteration.unpaired) == ("ends", False)

    @on_ranks()
    def test_what_ranks_tell_makes_one_job(self) -> None:
        """Each stands in one place, all name the same traits, and weights grow with what stages compute."""
        host = self.host(ranks=self.ranks)
        adapter = host.adapter()
        places, traits = _gathered(adapter.place()), _gathered(adapter.traits())
        ranks = adapter.schedule(places).ranks
        seats = sorted((place.replica, place.pipeline_rank) for place in places)
        assert seats == list(product(range(len(places) // ranks), range(ranks)))
        assert all(one == traits[0] for one in traits), f"ranks differ: {traits}"
        own = {stage: float(matmul_weight(module)) for stage, module in host.modules().items()}
        computes = {stage: weight for some in _gathered(own) for stage, weight in some.items()}
        weights = {stage: weight for place in places for stage, weight in place.weights.items()}
        assert weights.keys() == computes.keys()
        if len(computes) == 1:
            return
        assert len(set(computes.values())) > 1, "even stages: this test shows nothing"
        for stage, weight in _shares(weights).items():
            assert abs(weight - _shares(computes)[stage]) < _SHARE_OFF, f"stage {stage}: {weight:.0%}"

    @on_ranks()
    def test_work_lies_between_its_marks(self) -> None:
        """A module's forward runs within a forward's marks, and its gradients come within a backward's."""
        host, witness = self.host(ranks=self.ranks), Witness()
        host.train()
        host.adapter().install(witness)
        witness.watch(host.modules().values())
        host.train()
        assert [work for work in witness.outside if work.split()[2] not in self.before_marks] == []
        assert Kind.FORWARD in witness.seen
        assert len(witness.seen) > 1, "no backward was witnessed"

    @on_ranks(1)
    def test_a_model_that_is_run_otherwise_is_another_job(self) -> None:
        """Measurements of plain modules serve no job that compiles them."""
        host = self.host(ranks=1)
        before = host.adapter().place().modules
        for module in host.modules().values():
            for part in module.modules():
                part.compile(backend="eager")  # others import torch's inductor, which is dear
        assert host.adapter().place().modules != before != ""

    @on_ranks()
    def test_an_iteration_that_is_not_wanted_is_not_announced(self) -> None:
        noting = Noting(wants=False)
        self.installed(noting, ranks=self.ranks)[0].train()
        assert [iteration.kinds for iteration in noting.iterations] == [[]]

    @on_ranks()
    def test_evaluation_stands_apart(self) -> None:
        host, noting = self.host(ranks=self.ranks), Noting()
        host.train()
        host.adapter().install(noting)
        evaluates = host.evaluate()
        assert noting.iterations == []
        assert not evaluates or noting.others >= 1

    @on_ranks()
    def test_losses_and_weights_are_identical_to_the_last_bit(self) -> None:
        assert self._trained(None) == self._trained(Noting())

    @on_ranks(1)
    def test_the_hosts_exception_passes_unchanged(self) -> None:
        """The very object, with nothing of ours behind it, also where our listener fails as well."""
        noting, breaking = Noting(), failing("iteration_broke", fails_to_leave=True)
        for listener in (noting, breaking):
            error = KeyError("the user's own")
            host, _ = self.installed(listener)
            host.fail_next(error)
            with pytest.raises(KeyError) as raised:
                host.train()
            assert raised.value is error
            assert error.__cause__ is None
            assert not isinstance(error.__context__, ZeroDivisionError)
        assert (noting.iterations[-1].ended, breaking.iteration_broke.call_count) == ("broke", 1)

    @on_ranks(1)
    def test_installing_twice_is_refused(self) -> None:
        host, _ = self.installed(Noting())
        with pytest.raises(EngineError):
            host.adapter().install(Noting())

    @on_ranks(1)
    def test_removing_restores_the_identity_of_every_attribute(self) -> None:
        """After an iteration and two removals nothing differs; a second round works as well."""
        host = self.host(ranks=1)
        host.train()
        before = host.attributes()
        for _ in range(2):
            adapter = host.adapter()
            adapter.install(Noting())
            assert _differing(before, host.attributes()), "nothing that `attributes` names was replaced"
            host.train()
            adapter.remove()
            adapter.remove()
            assert _differing(before, host.attributes()) == []

    @on_ranks()
    def test_removing_within_an_iteration_lets_it_run_to_its_end(self) -> None:
        """Same losses, nothing left, and silence afterwards."""
        plain, host = self._trained(None, evaluates=False), self.host(ranks=self.ranks)
        losses, before = [host.train()], host.attributes()
        adapter = host.adapter()
        leaving = listening(before=lambda *_: adapter.remove())
        adapter.install(leaving)
        losses += [host.train() for _ in range(ITERATIONS - 1)]
        assert (losses, host.weights()) == plain
        assert _differing(before, host.attributes()) == []
        assert leaving.before.call_count == 1

    @on_ranks()
    def test_a_failing_listener_never_reaches_the_host(self) -> None:
        """Whichever of its calls fails, once: it is asked to leave, no hook stays, and training goes on."""
        plain = self._trained(None)
        for where, fails_to_leave in (*((where, False) for where in CALLS), ("after", True)):
            listener = failing(where, fails_to_leave=fails_to_leave)
            assert self._trained(listener) == plain, where
            calls = getattr(listener, where).call_count
            if calls or where not in {"iteration_broke", "other_schedule_begins"}:
                assert (calls, listener.fail.call_count, self._left) == (1, 1, []), where

    @on_ranks()
    def test_counting_that_fails_never_reaches_the_host(self) -> None:
        """Whichever of the functions that count inputs fails: the listener is asked to leave."""
        plain = self._trained(None)
        for name in self.counting:
            noting = Noting()
            with patch(name, side_effect=ZeroDivisionError("a bug of ours")) as counting:
                assert self._trained(noting) == plain, name
            assert counting.call_count == len(noting.failures) <= 1, name
            assert counting.call_count or self.ranks > 1, f"{name} was not called"
            assert not counting.call_count or self._left == [], name

    @on_ranks(1)
    def test_a_missing_name_names_itself(self) -> None:
        assert self.required
        for name in self.required:
            host = self.host(ranks=1)
            with host.without(name), pytest.raises(EngineError, match=name.rsplit(".", 1)[-1]):
                host.adapter().place()

    @on_ranks()
    def test_of_two_engines_each_is_heard_by_its_own_listener(self) -> None:
        notes = [Noting(), Noting()]
        (first, adapter), (second, _) = (self.installed(noting, ranks=self.ranks) for noting in notes)
        for host in (first, second, first):
            host.train()
        adapter.remove()
        for host in (first, second):
            host.train()
        assert [len(noting.iterations) for noting in notes] == [2, 2]

    def _trained(
        self, listener: InstructionListener | None, *, evaluates: bool = True
    ) -> tuple[list[Sequence[str]], str]:
        host = self.host(ranks=self.ranks)
        losses = [host.train()]
        before = host.attributes()
        if listener is not None:
            adapter = host.adapter()
            getattr(adapter, "read_ahead", bool)()
            adapter.install(listener)
        losses += [host.train()]
        if evaluates:
            host.evaluate()
        losses += [host.train() for _ in range(ITERATIONS - 2)]
        self._left = _differing(before, host.attributes())
        return losses, host.weights()


def _gathered(place: T) -> list[T]:
    import torch.distributed as dist  # in a rank's own process

    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, place)
    return everyone


def _shares(weights: Mapping[int, float]) -> dict[int, float]:
    return {stage: weight / sum(weights.values()) for stage, weight in weights.items()}


def _differing(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """Names that came, went, or stand for another object."""
    missing = object()
    return sorted(
        name
        for name in before.keys() | after.keys()
        if before.get(name, missing) is not after.get(name, missing)
    )


# A listener that notes its calls as words: "begins 2", "<F", "F>", "ends", "other", "broke".


class CallNotes:
    """Notes into ``calls``, which may be a list that the host writes to as well."""

    def __init__(self, calls: list[str] | None = None, *, wants: bool = True) -> None:
        self.calls: list[str] = [] if calls is None else calls
        self.wants = wants

    def iteration_begins(self, batch: Batch) -> bool:
        self.note(f"begins {batch.microbatches}")
        return self.wants

    def before(self, kind: Kind, load: Load | None = None) -> None:
        self.note(f"<{kind.value}")

    def after(self, kind: Kind) -> None:
        self.note(f"{kind.value}>")

    def iteration_ends(self) -> None:
        self.note("ends")

    def other_schedule_begins(self) -> None:
        self.note("other")

    def iteration_broke(self) -> None:
        self.note("broke")

    def note(self, call: str) -> None:
        self.calls.append(call)
