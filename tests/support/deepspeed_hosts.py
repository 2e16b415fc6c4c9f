"""Small pipeline engines of DeepSpeed: 1F1B, DualPipe-V, and a user's own schedule in a subclassed engine."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import deepspeed
import torch
from deepspeed.runtime.pipe import schedule as pipe
from deepspeed.runtime.pipe.engine import PipelineEngine
from ranks import Layer, LayerSpec, build, config, digest_of, without
from torch import nn

from perseus_ds.adapters.deepspeed_zero import ZeroAdapter, order_of
from perseus_ds.schedule import Kind

MICROBATCHES = 4


def uneven(stages: int) -> tuple[int, ...]:
    return tuple(8 * (1 + stage) for stage in range(stages))


def one_f_one_b(stages: int) -> PipelineEngine:
    engine = build(config(MICROBATCHES), stages=stages, inner=uneven(stages))
    if not hasattr(engine, "_train_schedule"):
        made = pipe.TrainSchedule(engine.micro_batches, engine.num_stages, engine.stage_id)
        engine._train_schedule = lambda: made
    return engine


def dualpipe_v(ranks: int, *, perseus: dict[str, Any] | None = None) -> PipelineEngine:
    """Two model stages on every rank; at least twice as many microbatches as ranks."""
    from deepspeed.runtime.pipe.dualpipev import DualPipeVModule

    torch.manual_seed(7)
    module = DualPipeVModule(
        [LayerSpec(Layer, 8, width) for width in uneven(2 * ranks)],
        num_stages=ranks,
        loss_fn=nn.functional.mse_loss,
        partition_method="uniform",
        seed_layers=True,
    )
    engine, *_ = deepspeed.initialize(
        model=module,
        model_parameters=list(module.parameters()),
        config=config(2 * ranks + 1, perseus=perseus),
    )
    return engine


class ReferenceForward(pipe.BufferOpInstruction):
    """An instruction that nobody knows."""


class AllForwardsFirst(pipe.PipeSchedule):
    """GPipe, backwards in reverse, a reference forward before each forward; a constructor of its own."""

    def __init__(self, *, engine: PipelineEngine) -> None:
        super().__init__(engine.micro_batches, engine.num_stages, engine.stage_id)

    def steps(self) -> Iterator[list[object]]:
        for microbatch in range(self.micro_batches):
            commands: list[object] = [ReferenceForward(microbatch)]
            if not self.is_first_stage:
                commands.append(pipe.RecvActivation(microbatch))
            if self.is_first_stage or self.is_last_stage:
                commands.append(pipe.LoadMicroBatch(microbatch))
            commands.append(pipe.ForwardPass(microbatch))
            if not self.is_last_stage:
                commands.append(pipe.SendActivation(microbatch))
            yield commands
        for microbatch in reversed(range(self.micro_batches)):
            commands = [] if self.is_last_stage else [pipe.RecvGrad(microbatch)]
            commands.append(pipe.BackwardPass(microbatch))
            if not self.is_first_stage:
                commands.append(pipe.SendGrad(microbatch))
            yield commands
        yield [pipe.ReduceTiedGrads(), pipe.ReduceGrads(), pipe.OptimizerStep()]


class OwnEngine(PipelineEngine):
    """Keeps a loss for every buffer, as a schedule with all forwards first needs."""

    def _train_schedule(self) -> AllForwardsFirst:
        return AllForwardsFirst(engine=self)

    def _exec_schedule(self, pipe_schedule: object) -> None:
        self._losses: dict[int, torch.Tensor] = {}
        super()._exec_schedule(pipe_schedule)

    def _exec_reference_forward(self, buffer_id: int) -> None:
        torch.ones(2).sum()

    def _exec_forward_pass(self, buffer_id: int) -> None:
        super()._exec_forward_pass(buffer_id)
        if self.is_last_stage():
            self._losses[buffer_id] = self.loss

    def _exec_backward_pass(self, buffer_id: int) -> None:
        if self.is_last_stage() and buffer_id in self._losses:
            self.loss = self._losses[buffer_id]
        super()._exec_backward_pass(buffer_id)

    _INSTRUCTION_MAP = PipelineEngine._INSTRUCTION_MAP | {
        ReferenceForward: _exec_reference_forward,
        pipe.ForwardPass: _exec_forward_pass,
        pipe.BackwardPass: _exec_backward_pass,
    }


class SendsTwice(AllForwardsFirst):
    """Preference training: each microbatch's reference activations go first, then the trained model's."""

    def steps(self) -> Iterator[list[object]]:
        for commands in super().steps():
            forward = [one for one in commands if isinstance(one, pipe.ForwardPass)]
            if not forward:
                yield commands
                continue
            buffer = forward[0].buffer_id
            brings = [] if self.is_first_stage else [pipe.RecvActivation(buffer)]
            sends = [] if self.is_last_stage else [pipe.SendActivation(buffer)]
            loads = [one for one in commands if isinstance(one, pipe.LoadMicroBatch)]
            yield [*loads, *brings, ReferenceForward(buffer), *sends, *brings, *forward, *sends]


class PreferenceEngine(OwnEngine):
    """Runs the reference without gradients on what came for it, and hands that on."""

    def _train_schedule(self) -> SendsTwice:
        return SendsTwice(engine=self)

    def _exec_reference_forward(self, buffer_id: int) -> None:
        with torch.no_grad():
            inputs = self.pipe_buffers["inputs"][buffer_id]
            outputs = self.module(inputs[0] if isinstance(inputs, tuple) else inputs)
        self.pipe_buffers["outputs"][buffer_id] = outputs
        self.reference = float(outputs.sum())

    _INSTRUCTION_MAP = OwnEngine._INSTRUCTION_MAP | {ReferenceForward: _exec_reference_forward}


def users_own(
    stages: int, *, perseus: dict[str, Any] | None = None, kind: type[OwnEngine] = OwnEngine
) -> PipelineEngine:
    engine = build(config(MICROBATCHES, perseus=perseus), stages=stages, inner=uneven(stages))
    engine.__class__ = kind
    return engine


# Small engines of DeepSpeed without a pipeline, trained by a loop as users write it.

ZERO_MICROBATCHES = 3
ATTRIBUTES = (
    *("forward", "backward", "_backward_prologue", "_backward_epilogue"),
    *("allreduce_gradients", "_take_model_step", "step"),
)


def zero_engine(
    stage: int,
    *,
    microbatches: int = ZERO_MICROBATCHES,
    perseus: Mapping[str, object] | None = None,
    **zero: object,
) -> Any:  # noqa: ANN401
    """An engine with four layers under some ZeRO stage."""
    torch.manual_seed(7)
    model = nn.Sequential(*[Layer(8, 8) for _ in range(4)])
    content = config(microbatches, perseus=perseus, zero_optimization={"stage": stage, **zero})
    engine, *_ = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=content)
    return engine


class ZeroHost:
    def __init__(self, engine: Any, *, torch_style: bool = False) -> None:  # noqa: ANN401
        self.engine = engine
        self._torch_style = torch_style
        self._random = torch.Generator().manual_seed(3)
        self._error: Exception | None = None

    def adapter(self) -> ZeroAdapter:
        """As `attach` makes it when it has seen one iteration."""
        return ZeroAdapter(self.engine, order_of(self._order()))

    def train(self) -> Sequence[str]:
        losses = []
        for _ in range(self.engine.gradient_accumulation_steps()):
            inputs = torch.randn(2, 8, generator=self._random)
            hidden = self.engine(inputs)
            loss = nn.functional.mse_loss(hidden, torch.sin(inputs).to(hidden.dtype))
            if self._error is not None:
                self.engine.module.register_forward_pre_hook(self._fail)
            if self._torch_style:
                loss.backward()
            else:
                self.engine.backward(loss)
            self.engine.step()
            losses.append(float(loss.detach()).hex())
        return losses

    def modules(self) -> Mapping[int, nn.Module]:
        return {0: self.engine.module}

    def evaluate(self) -> bool:
        self.engine.eval()
        with torch.no_grad():
            self.engine(torch.ones(2, 8))
            self.engine(torch.ones(2, 8))
        self.engine.train()
        with torch.no_grad():
            self.engine(torch.ones(2, 8))
        return True

    def weights(self) -> str:
        with deepspeed.zero.GatheredParameters(list(self.engine.module.parameters())):
            return digest_of(self.engine.module.parameters())

    def fail_next(self, error: Exception) -> None:
        self._error = error

    def attributes(self) -> Mapping[str, object]:
        return {name: thing for name, thing in vars(self.engine).items() if name in ATTRIBUTES}

    def without(self, name: str) -> AbstractContextManager[None]:
        return without(name, self.engine)

    def _fail(self, *_: object) -> None:
        raise self._error

    def _order(self) -> list[Kind]:
        """What the loop of `train` runs, as it is written: stages 2 and 3 reduce every microbatch."""
        last = self.engine.gradient_accumulation_steps() - 1
        kinds: list[Kind] = []
        for microbatch in range(last + 1):
            kinds += [Kind.FORWARD, Kind.BACKWARD]
            kinds += [Kind.REDUCE_GRADS] * (microbatch == last or self.engine.zero_optimization_stage() > 1)
        return [*kinds, Kind.STEP]
