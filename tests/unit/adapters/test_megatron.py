"""Two models that train in one process: the first one's passes are measured, nobody else's."""

import sys
from collections.abc import Callable
from enum import Enum
from functools import wraps
from types import ModuleType, SimpleNamespace

import pytest
from adapter_contract import CallNotes
from torch import nn

from perseus_ds.adapters import megatron as adapter
from perseus_ds.errors import EngineError
from perseus_ds.schedule import Load


@pytest.mark.parametrize(
    ("rank", "ranks", "microbatches", "reduces", "order"),
    [
        (0, 2, 3, True, "0F0 0F1 0B0 0F2 0B1 0B2 0AR0 0OS0"),
        (1, 2, 2, False, "1F0 1B0 1F1 1B1 1OS0"),
        (0, 1, 2, True, "0F0 0B0 0F1 0B1 0AR0 0OS0"),
    ],
)
def test_1f1b_ends_in_a_step(rank: int, ranks: int, microbatches: int, order: str, *, reduces: bool) -> None:
    found = adapter.order_of(rank, ranks=ranks, microbatches=microbatches, reduces=reduces)
    assert " ".join(map(str, found)) == order


INTERLEAVED = adapter.order_of(1, ranks=2, microbatches=2, chunks=2, group=2, reduces=True)
TABLE = [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_chunk_c_of_a_rank_is_model_stage_c_times_ranks_plus_rank() -> None:
    assert " ".join(map(str, INTERLEAVED)) == "1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1 1AR0 1OS0"
    adapter.check_table(TABLE, INTERLEAVED, ranks=2, chunks=2)


@pytest.mark.parametrize("table", [TABLE[:-1], TABLE[::-1], []])
def test_another_table_is_refused(table: list[tuple[int, int]]) -> None:
    with pytest.raises(EngineError, match="interleaved"):
        adapter.check_table(table, INTERLEAVED, ranks=2, chunks=2)


@pytest.mark.parametrize(
    ("overlaps", "left_out"),
    [
        ({}, ""),
        ({"overlap_param_gather": True}, "1F0 3F0"),
        ({"overlap_grad_reduce": True}, "1B1 3B1"),
        ({"overlap_param_gather": True, "overlap_grad_reduce": True}, "1B1 1F0 3B1 3F0"),
    ],
)
def test_what_contains_a_wait_for_replicas_is_left_out(overlaps: dict[str, bool], left_out: str) -> None:
    module = SimpleNamespace(ddp_config=SimpleNamespace(**overlaps))
    assert " ".join(sorted(map(str, adapter.left_out_of(INTERLEAVED, [module])))) == left_out


class Scope(Enum):
    full_iteration = 1
    attn = 2


def megatron(without: str = "") -> ModuleType:
    """A module with all that is asked of megatron-core's, but for a name."""
    module, state = ModuleType(adapter.MODULE), SimpleNamespace()
    for required in adapter.REQUIRED_NAMES.keys() - {without}:
        *path, name = required.split(".")
        setattr(state if path else module, name, lambda: 1)
    if without != "forward_step":
        module.forward_step = lambda *args, current_microbatch=None, **kwargs: None
    module.parallel_state = state
    return module


def test_a_missing_name_is_named_with_the_releases_tested() -> None:
    adapter.check(megatron())
    for required in adapter.REQUIRED_NAMES:
        with pytest.raises(EngineError, match=required) as refused:
            adapter.check(megatron(required))
        assert "0.16.1" in (refused.value.hint or "")


def test_the_fork_of_megatron_deepspeed_is_known_by_its_forward_step() -> None:
    module = megatron()
    module.forward_step = lambda forward_step_func, data_iterator, model: None
    with pytest.raises(EngineError, match="current_microbatch") as refused:
        adapter.check(module)
    assert "--deepspeed" in (refused.value.hint or "")


REPLAYED = [
    {"enable_cuda_graph": True, "cuda_graph_scope": "full_iteration"},
    {"cuda_graph_impl": "local", "cuda_graph_scope": [Scope.full_iteration]},
    {"cuda_graph_impl": "full_iteration"},
]
SERVED = [
    {},
    {"overlap_moe_expert_parallel_comm": True, "hybrid_context_parallel": False},
    {"variable_seq_lengths": True},
    {"enable_cuda_graph": True, "cuda_graph_scope": "full"},
    {"cuda_graph_impl": "none", "cuda_graph_scope": [Scope.full_iteration]},
    {"cuda_graph_impl": "local", "cuda_graph_scope": [Scope.attn]},
    {"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": Scope.attn},
]


@pytest.mark.parametrize(
    ("settings", "argument", "words"),
    [
        ({"hybrid_context_parallel": True}, "Other", "hybrid_context_parallel"),
        ({}, "MultiModuleProcessGroupCollection", "backward_step_multimodule"),
        ({}, "MultiModulePipelineCommunicator", "backward_step_multimodule"),
    ],
)
def test_what_is_not_served_has_its_reason(settings: dict[str, object], argument: str, words: str) -> None:
    keywords = {"pg_collection": type(argument, (), {})()}
    with pytest.raises(EngineError, match=words):
        adapter.refuse_unsupported(SimpleNamespace(**settings), keywords)


@pytest.mark.parametrize("settings", [*SERVED, *REPLAYED])
def test_what_one_graph_holds_is_known_and_served_too(settings: dict[str, object]) -> None:
    config = SimpleNamespace(**settings)
    adapter.refuse_unsupported(config, {})
    assert adapter.is_one_graph(config) == (settings in REPLAYED)


def schedules_of(function: Callable[..., object], **more: object) -> ModuleType:
    """A stand-in of Megatron's module, each of whose passes is this function."""
    module = ModuleType("schedules")
    vars(module).update(dict.fromkeys(adapter.PASSES, function), **more)
    return module


@pytest.fixture
def schedules() -> ModuleType:
    """A pass runs one forward and one backward, looked up at the call."""

    def a_pass(**_: object) -> None:
        for step in adapter.STEPS:
            getattr(module, step)()

    steps = {step: lambda: None for step in adapter.STEPS}
    module = schedules_of(a_pass, get_model_config=lambda _: SimpleNamespace(), **steps)
    return module


def test_a_second_model_runs_unmeasured(schedules: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, heard = nn.Linear(1, 1), nn.Linear(1, 1), CallNotes()
    hooks = adapter.MegatronAdapter(adapter.OnePass(schedules, adapter.PASSES[0], {"model": first}))
    hooks.install(heard)
    train = getattr(schedules, adapter.PASSES[0])
    train(model=first, num_microbatches=1)
    measured = list(heard.calls)
    assert measured == ["begins 1", "<F", "F>", "<B", "B>", "ends"]
    train(model=second, num_microbatches=1)
    train(model=[second], num_microbatches=1)
    assert heard.calls == [*measured, "other", "other"]
    assert capsys.readouterr().err.count("second model") == 1
    train(model=first, num_microbatches=1, forward_only=True)
    train(model=first, num_microbatches=1)
    assert heard.calls[len(measured) :] == ["other", "other", "other", *measured]
    hooks.remove()


@pytest.mark.parametrize(("length", "load"), [(8, Load(tokens=24.0, squares=192.0)), (None, None)])
def test_a_call_states_the_load_of_its_microbatches(length: int | None, load: Load | None) -> None:
    keywords = {"micro_batch_size": 3, "seq_length": length}
    assert adapter.OnePass(ModuleType("schedules"), adapter.PASSES[0], keywords).load == load


NAME = adapter.PASSES[1]


@pytest.fixture
def module() -> ModuleType:
    return schedules_of(lambda *, calls, **_: calls.append("megatron"))


def saying(module: ModuleType, word: str) -> adapter.Wrapping:
    def around(present: adapter.OnePass, call: Callable[[], object]) -> object:
        present.keywords["calls"].append(word)
        return call()

    return adapter.Wrapping(module, around)


def called(module: ModuleType, function: Callable[..., object] | None = None) -> list[str]:
    calls: list[str] = []
    (function or getattr(module, NAME))(calls=calls)
    return calls


def others(module: ModuleType, *, copies: bool) -> None:
    original = getattr(module, NAME)

    def theirs(**keywords: object) -> object:
        keywords["calls"].append("theirs")
        return original(**keywords)

    setattr(module, NAME, wraps(original)(theirs) if copies else theirs)


@pytest.mark.parametrize("outer_first", [True, False])
def test_removed_in_any_order_the_own_functions_are_back(module: ModuleType, *, outer_first: bool) -> None:
    before = dict(vars(module))
    pair = [saying(module, word) for word in ("first", "second")]
    assert called(module) == ["second", "first", "megatron"]
    assert list(adapter.wrappings_of(module)) == pair[::-1]
    one, other = reversed(pair) if outer_first else pair
    one.remove()
    one.remove()
    assert called(module) == ["first" if outer_first else "second", "megatron"]
    other.remove()
    assert dict(vars(module)) == before
    assert list(adapter.wrappings_of(module)) == []


def test_a_function_that_the_job_kept_calls_what_is_there_now(module: ModuleType) -> None:
    waiting, kept = saying(module, "waiting"), getattr(module, NAME)
    waiting.remove()
    assert called(module, kept) == ["megatron"]
    serving = saying(module, "serving")
    assert called(module, kept) == ["serving", "megatron"]
    serving.remove()
    assert called(module, kept) == ["megatron"]


@pytest.mark.parametrize("copies", [True, False])
def test_other_peoples_wrappers_stay_and_nothing_runs_twice(module: ModuleType, *, copies: bool) -> None:
    waiting = saying(module, "waiting")
    others(module, copies=copies)
    waiting.remove()
    assert called(module) == ["theirs", "megatron"]
    serving = saying(module, "serving")
    assert called(module) == ["serving", "theirs", "megatron"]
    serving.remove()
    assert called(module) == ["theirs", "megatron"]


def test_what_the_host_raises_leaves_the_wrapper_usable(module: ModuleType) -> None:
    saying(module, "serving")
    with pytest.raises(TypeError):
        getattr(module, NAME)("positional", calls=[])
    assert called(module) == ["serving", "megatron"]


# Scalars in the writers of Megatron's own training script, which a stand-in of its module hands out.

SHOWN = {"rank0_energy_per_iteration_j": 812.0, "rank0_power_w": 290.0, "plan": 3.0}


class Rows(list[tuple[object, ...]]):
    def add_scalar(self, *row: object) -> None:
        self.append(row)

    log = add_scalar


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    made = SimpleNamespace(board=Rows(), log=None)
    made.arguments = SimpleNamespace(log_energy=False, tensorboard_log_interval=5, curr_iteration=70)
    made.get_args = lambda: made.arguments
    made.get_tensorboard_writer = lambda: made.board
    made.get_wandb_writer = lambda: made.log
    monkeypatch.setitem(sys.modules, "megatron.training.global_vars", made)
    return made


def test_both_writers_get_megatrons_own_names(script: SimpleNamespace) -> None:
    script.log = Rows()
    writers = adapter.Writers.find()
    assert writers.every == 5
    writers.write(SHOWN)
    assert script.board == [("iter-energy/gpu", 812.0, 70), ("power/gpu", 290.0, 70)]
    assert script.log == [({"iter-energy/gpu": 812.0, "power/gpu": 290.0}, 70)]
    script.arguments.curr_iteration = 75
    writers.write({"rank0_power_w": 291.0})
    assert script.board[-1] == ("power/gpu", 291.0, 75)


def test_no_other_writers_are_used(script: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    script.arguments.log_energy = True
    assert adapter.Writers.find() is None, "Megatron's own monitor is not doubled"
    script.arguments.log_energy, script.board = False, None
    assert adapter.Writers.find() is None, "on this rank there is none"
    monkeypatch.setitem(sys.modules, "megatron.training.global_vars", ModuleType("global_vars"))
    assert adapter.Writers.find() is None, "another script"
    monkeypatch.delitem(sys.modules, "megatron.training.global_vars")
    assert adapter.Writers.find() is None
