"""The contract of adapters on real engines of one rank, in this process; `tests/e2e/adapters` has more ranks.

With an adapter's own test come DeepSpeed and torch's pipelines: the worker that runs this imports it late.
"""

import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import pytest
import torch
from adapter_contract import CALLS, ITERATIONS, AdapterContract, Host, Noting
from lone_job import alone, events_of, names_of

import perseus_ds
from perseus_ds.run_directory.events import why_unmeasured
from perseus_ds.runtime.emulation import EmulatedRank
from perseus_ds.schedule import Kind

T = TypeVar("T")


@pytest.fixture(scope="module", autouse=True)
def process_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    import ranks  # noqa: F401  # keeps DeepSpeed from compiling
    from deepspeed import comm

    with pytest.MonkeyPatch.context() as changed:
        for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}.items():
            changed.setenv(name, value)
        with alone(tmp_path_factory.mktemp("group") / "store"):
            comm.init_distributed("gloo", auto_mpi_discovery=False, verbose=False)
            yield
            comm.destroy_process_group()  # DeepSpeed forgets its groups, which ranks forked later would take


@contextmanager
def quiet() -> Iterator[None]:
    """Without what torch and DeepSpeed warn of each other: our own warnings alone are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", module="perseus_ds")
        yield


def of_whole(name: str) -> property:
    return property(lambda self: getattr(self.contract(), name))


class Alone(AdapterContract):
    """As the class ``whole`` of an adapter's own test has it, but for where it runs."""

    ranks = 1
    whole = ""
    marked, required, counting = map(of_whole, ("marked", "required", "counting"))

    def contract(self) -> AdapterContract:
        module, name = self.whole.split(".")
        return getattr(import_module(module), name)()

    def run(self, body: Callable[[int], T], *, ranks: int) -> list[T]:
        assert ranks == 1
        with quiet():
            return [body(0)]

    def host(self, *, ranks: int) -> Host:
        return self.contract().host(ranks=ranks)


class TestZero(Alone):
    whole = "test_zero_contract.TestZero1"


class TestPipelining(Alone):
    whole = "test_pipelining_contract.TestOneForwardOneBackward"


class TestDeepSpeed(Alone):
    whole = "test_deepspeed_contract.TestOneForwardOneBackward"


def observed(run_dir: Path) -> dict[str, object]:
    return {"enabled": True, "run_dir": str(run_dir), "device": "simulated", "mode": "observe"}


def by_zero(block: dict[str, object] | None) -> tuple[Any, Host]:
    from deepspeed_hosts import ZeroHost, zero_engine

    engine = zero_engine(1, perseus=block)
    return engine, ZeroHost(engine)


def by_deepspeed(block: dict[str, object] | None) -> tuple[Any, Host]:
    import ranks
    from test_deepspeed_contract import EngineHost

    engine = ranks.build(ranks.config(perseus=block), stages=1)
    return engine, EngineHost(engine)


def by_pipelining(block: dict[str, object] | None) -> tuple[Any, Host]:
    from test_pipelining_contract import PipelineHost

    host = PipelineHost("1F1B", microbatches=2, evaluates=True, at_once=False)
    if block is not None:
        perseus_ds.attach(host.pipeline.schedule, config=block)
    return host.pipeline.schedule, host


@pytest.mark.parametrize("made", [by_zero, by_deepspeed, by_pipelining])
def test_a_job_is_observed_until_it_is_left(made: Callable[..., tuple[Any, Host]], tmp_path: Path) -> None:
    """Training is the same to the last bit, and nothing of ours stays on the engine."""
    _, plain = made(None)
    before = plain.attributes().keys()
    with quiet():
        engine, host = made(observed(tmp_path / "run"))
        losses = [host.train() for _ in range(ITERATIONS)]
        during = host.attributes().keys()
        perseus_ds.detach(engine)
        losses += [host.train()]
    assert losses == [plain.train() for _ in losses]
    assert during > before == host.attributes().keys()
    assert names_of(tmp_path / "run").count("attached") == 1


FAILS = [(by_zero, call) for call in CALLS if call != "iteration_broke"]


@pytest.mark.parametrize(
    ("made", "where"), [*FAILS, (by_deepspeed, "iteration_ends"), (by_pipelining, "before")]
)
def test_what_fails_in_front_of_the_session_ends_us_and_not_the_job(
    made: Callable[..., tuple[Any, Host]], where: str, tmp_path: Path
) -> None:
    """Clocks are given back, one event says why, and training is the same to the last bit."""
    _, plain = made(None)
    with quiet(), patch.object(EmulatedRank, where, side_effect=ZeroDivisionError("a bug of ours")):
        _, host = made(observed(tmp_path / "run"))
        before = plain.attributes().keys()
        trained = [host.train() for _ in range(ITERATIONS)], host.evaluate(), host.train()
    assert trained == ([plain.train() for _ in range(ITERATIONS)], plain.evaluate(), plain.train())
    [disabled] = events_of(tmp_path / "run", "disabled")
    assert str(disabled["reason"]).count("ZeroDivisionError") == 1
    assert host.attributes().keys() <= before | plain.attributes().keys()


def test_who_asks_for_it_has_our_errors_raised(tmp_path: Path) -> None:
    with quiet(), patch.object(EmulatedRank, "before", side_effect=ZeroDivisionError("a bug of ours")):
        _, host = by_zero(observed(tmp_path / "run") | {"on_error": "raise"})
        host.train()
        with pytest.raises(ZeroDivisionError):
            host.train()


def test_the_loss_of_a_pipeline_belongs_to_its_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    noting, within, loss_of = Noting(), list[Kind | None](), torch.nn.functional.mse_loss

    def noted(*tensors: torch.Tensor) -> torch.Tensor:
        within.append(noting.running)
        return loss_of(*tensors)

    monkeypatch.setattr(torch.nn.functional, "mse_loss", noted)
    _, host = by_pipelining(None)
    host.train()  # torch looks at shapes in the first iteration
    within.clear()
    host.adapter().install(noting)
    host.train()
    assert within == [Kind.FORWARD] * 2


def trained_by(
    run_dir: Path, iterations: int, skipping: Collection[int] = (), *, refers: bool = False
) -> list[Any]:
    """Train as a user's loop does that skips a microbatch, or refers to the model before each."""
    from deepspeed_hosts import zero_engine

    inputs = torch.ones(2, 8)
    with quiet():
        engine = zero_engine(1, perseus={"enabled": True, "run_dir": str(run_dir), "device": "simulated"})
        for iteration in range(iterations):
            if iteration in skipping:
                engine(inputs).square().mean()
            for _ in range(engine.gradient_accumulation_steps()):
                if refers:
                    with torch.no_grad():
                        engine(inputs)
                engine.backward(engine(inputs).square().mean())
                engine.step()
        perseus_ds.detach(engine)
    return events_of(run_dir)


@pytest.mark.parametrize("skipping", [[0], [3], [2, 3, 5, 6, 8]])
def test_an_iteration_that_skips_a_microbatch_is_left_out(skipping: list[int], tmp_path: Path) -> None:
    trained_by(tmp_path / "run", 10, skipping)
    assert "attached" in names_of(tmp_path / "run")
    assert "disabled" not in names_of(tmp_path / "run")


def test_a_loop_that_skips_again_and_again_is_served_no_more(tmp_path: Path) -> None:
    trained_by(tmp_path / "run", 12, range(3, 12))
    [disabled] = events_of(tmp_path / "run", "disabled")
    assert "order" in str(disabled["reason"])


def test_a_reference_forward_before_each_microbatch_keeps_all_from_being_measured(tmp_path: Path) -> None:
    events = trained_by(tmp_path / "run", 12, refers=True)
    [told] = [event["line"] for event in events if event["event"] == "not_measured"]
    assert "no_grad" in told
    assert told in str(why_unmeasured(events))
