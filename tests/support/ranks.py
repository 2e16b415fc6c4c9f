"""Run real DeepSpeed pipeline engines quickly: import once, fork one process per rank.

Each rank is a real process with real gloo communicators; what its body returns comes back, an exception
is re-raised here with its traceback as text.
"""

import gc
import hashlib
import importlib
import multiprocessing
import os
import secrets
import signal
import socket
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing.context import ForkProcess
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any
from unittest import mock

import deepspeed
import torch
import torch._dynamo
from deepspeed.pipe import LayerSpec, PipelineModule
from deepspeed.runtime import compiler
from deepspeed.runtime.pipe.engine import PipelineEngine
from torch import nn

# Processes that tests start begin with default signals, whoever started the tests.

_INHERITED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)


def hear_what_was_ignored() -> None:
    """Hear what ``nohup`` or a shell's ``&`` has had this process ignore, and do nothing about it.

    An ignored signal stays ignored in every program started from here, one that is heard does not: so tests
    that send signals to their processes see what users see.

    Source: signal(7), "Signal dispositions": execve resets what is caught and keeps what is ignored.
    """
    for number in _INHERITED:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def begin_as_a_program() -> None:
    """Give a forked process the signals of one that was started afresh."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")


deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
torch.set_num_threads(1)

# Ranks train on CPUs alone, yet torch notes every seed, with a traceback, for devices that it may find later.
# DeepSpeed seeds before each layer: that was two fifths of a rank's time.
for device in (torch.cuda, torch.xpu, torch.mtia):
    device.manual_seed_all = lambda seed: None

# What DeepSpeed and torch import when an engine is made is imported once here, and not in every rank.
for late in (
    "deepspeed.comm.mori",
    "deepspeed.module_inject.auto_ep_config",
    "deepspeed.module_inject.auto_ep_layer",
    "omegaconf",
    "omegaconf.grammar_parser",
    "torch.profiler._cupti_monitor",
):
    with suppress(ImportError), warnings.catch_warnings():  # other releases have other modules
        warnings.simplefilter("ignore")
        importlib.import_module(late)

# DeepSpeed's ZeRO imports Muon, an optimizer that no test uses. Muon compiles functions as it is imported.
# So it loads torch's compiler: two seconds of every rank. Other releases have no Muon.
as_it_is = mock.Mock(return_value=lambda function: function)
with mock.patch.object(compiler, "compile", as_it_is, create=True), suppress(ImportError):
    importlib.import_module("deepspeed.runtime.zero.muon.muon_optimizer")

PATIENCE_S = 240.0

Answers = SimpleQueue[tuple[int, Any, str | None]]
Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Said:
    rank: int
    value: Any
    output: str


def run_ranks(
    ranks: int,
    body: Callable[..., object],
    *args: object,
    environment: Mapping[str, str] | None = None,
    enter: Callable[[int], None] | None = None,
) -> list[Said]:
    """Call ``body(rank, *args)`` in one process per rank, communicators ready, and return what each said.

    ``enter(rank)`` moves a rank's process to its host, and names the job's master in its environment.
    """
    _have_ours_ready()
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        queue: Answers = context.SimpleQueue()
        job = body, args, environment or {}, enter
        processes = [
            context.Process(target=_rank, args=(rank, ranks, folder, queue, job)) for rank in range(ranks)
        ]
        gc.freeze()  # a rank that destroyed a group of an earlier test would wait for threads that it has not
        for process in processes:
            process.start()
        gc.unfreeze()
        try:
            answers = _collect(queue, processes)
        finally:
            for process in processes:
                if process.is_alive():
                    os.kill(process.pid, signal.SIGKILL)
                process.join()
        return [Said(rank, answers[rank], (Path(folder) / f"out{rank}").read_text()) for rank in range(ranks)]


@cache
def _have_ours_ready() -> None:
    """Import what a rank with a block does, and make what reads blocks: once here, and not in every rank."""
    importlib.import_module("perseus_ds.runtime.attach")
    from perseus_ds.config import parse

    parse({}, {})


def _collect(queue: Answers, processes: list[ForkProcess]) -> dict[int, object]:
    answers: dict[int, object] = {}
    deadline = time.monotonic() + PATIENCE_S
    while len(answers) < len(processes):
        if not queue.empty():
            rank, value, error = queue.get()
            if error is not None:
                raise AssertionError(f"rank {rank} failed:\n{error}")
            answers[rank] = value
        elif time.monotonic() > deadline:
            raise AssertionError(f"only ranks {sorted(answers)} ended within {PATIENCE_S:.0f} s")
        elif any(p.exitcode not in (None, 0) for p in processes) and queue.empty():
            raise AssertionError(f"exit codes {[p.exitcode for p in processes]}")
        else:
            time.sleep(0.005)
    return answers


def _rank(rank: int, ranks: int, folder: str, queue: Answers, job: tuple[Any, ...]) -> None:
    body, args, environment, enter = job
    begin_as_a_program()
    output = os.open(f"{folder}/out{rank}", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout = sys.stderr = os.fdopen(1, "w", buffering=1, closefd=False)  # pytest's own would swallow it
    warnings.simplefilter("default")  # torch and DeepSpeed warn of each other: ours alone are errors
    warnings.filterwarnings("error", module="perseus_ds")
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), **environment)
    try:
        if enter is not None:
            enter(rank)
        method = f"file://{folder}/rendezvous" if enter is None else "env://"
        torch.distributed.init_process_group("gloo", init_method=method, rank=rank, world_size=ranks)
        torch.distributed.barrier()  # a rank that ends while another still connects would fail it
        deepspeed.init_distributed("gloo", auto_mpi_discovery=False, verbose=False)
        value = body(rank, *args)
        queue.put((rank, value, None))
    except BaseException:  # noqa: BLE001
        queue.put((rank, None, traceback.format_exc()))
    finally:
        os._exit(0)


class Layer(nn.Module):
    def __init__(self, width: int = 8, inner: int = 8) -> None:
        super().__init__()
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = hidden.to(self.up.weight.dtype)
        return hidden + self.down(torch.tanh(self.up(hidden)))


def config(
    microbatches: int = 4, *, perseus: Mapping[str, object] | None = None, **others: object
) -> dict[str, Any]:
    content: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": microbatches,
        "steps_per_print": 10**9,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        **others,
    }
    if perseus is not None:
        content["perseus"] = dict(perseus)
    return content


def build(
    content: Mapping[str, Any] | str, *, stages: int, inner: tuple[int, ...] | None = None, seed: int = 7
) -> PipelineEngine:
    """A pipeline engine with one layer per stage; ``inner`` widths make stages uneven.

    A configuration that is a word is one in base64, which goes to DeepSpeed as it is.
    """
    torch.manual_seed(seed)
    widths = inner or (8,) * stages
    module = PipelineModule(
        [LayerSpec(Layer, 8, width) for width in widths],
        num_stages=stages,
        loss_fn=nn.functional.mse_loss,
        partition_method="uniform",
        seed_layers=True,
    )
    engine, *_ = deepspeed.initialize(
        model=module,
        model_parameters=list(module.parameters()),
        config=content if isinstance(content, str) else dict(content),
    )
    return engine


def batches(seed: int = 3) -> Batches:
    generator = torch.Generator().manual_seed(seed)
    while True:
        inputs = torch.randn(2, 8, generator=generator)
        yield inputs, torch.sin(inputs)


def digest_of(parameters: Iterable[torch.Tensor]) -> str:
    """A digest of weights to the last bit."""
    data = b"".join(one.detach().float().numpy().tobytes() for one in parameters)
    return hashlib.sha256(data).hexdigest()


class FailingData:
    """Other data, until an error is raised in place of the next batch."""

    def __init__(self, data: Iterator[Any]) -> None:
        self._data = data
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:  # noqa: ANN401
        if self.error is not None:
            raise self.error
        return next(self._data)


def losses(engine: PipelineEngine, steps: int, *, seed: int = 3) -> list[str]:
    data = batches(seed)
    return [float(engine.train_batch(data)).hex() for _ in range(steps)]


@contextmanager
def without(name: str, *holders: object) -> Iterator[None]:
    """Take an attribute away from objects and from all of their classes that have it."""
    owners = [one for holder in holders for one in (holder, *type(holder).__mro__) if name in vars(one)]
    kept = {id(owner): (owner, vars(owner)[name]) for owner in owners}
    for owner, _ in kept.values():
        delattr(owner, name)
    try:
        yield
    finally:
        for owner, thing in kept.values():
            setattr(owner, name, thing)


# A port for a server that a test starts.

_LOWEST, _MANY = 20_000, 12_000


def free_port() -> int:
    """A port that nobody uses just now, below those that the system gives to whoever connects.

    A launcher takes seconds to come to it: one of those others may be taken by then.
    """
    while True:
        port = _LOWEST + secrets.randbelow(_MANY)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
