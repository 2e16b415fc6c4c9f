"""Small engines of DeepSpeed without a pipeline, trained by a loop as users write it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import deepspeed
import torch
from ranks import Layer, config
from torch import nn

from perseus_ds.adapters.deepspeed_zero import ZeroAdapter, order_of
from perseus_ds.schedule import Kind

MICROBATCHES = 3
ATTRIBUTES = (
    "forward",
    "backward",
    "_backward_prologue",
    "_backward_epilogue",
    "allreduce_gradients",
    "_take_model_step",
    "step",
)


def zero_engine(
    stage: int,
    *,
    microbatches: int = MICROBATCHES,
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
    """One engine, its data and its loop."""

    def __init__(self, engine: Any, *, torch_style: bool = False) -> None:  # noqa: ANN401
        self.engine = engine
        self._torch_style = torch_style
        self._random = torch.Generator().manual_seed(3)
        self._error: Exception | None = None

    def adapter(self) -> ZeroAdapter:
        """As the door makes it when it has seen one iteration."""
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
        gathered = deepspeed.zero.GatheredParameters(list(self.engine.module.parameters()))
        with gathered:
            data = [p.detach().float().numpy().tobytes() for p in self.engine.module.parameters()]
        return hashlib.sha256(b"".join(data)).hexdigest()

    def fail_next(self, error: Exception) -> None:
        self._error = error

    def attributes(self) -> Mapping[str, object]:
        return {name: thing for name, thing in vars(self.engine).items() if name in ATTRIBUTES}

    @contextmanager
    def without(self, name: str) -> Iterator[None]:
        holders = [one for one in (self.engine, *type(self.engine).__mro__) if name in vars(one)]
        kept = [vars(holder)[name] for holder in holders]
        for holder in holders:
            delattr(holder, name)
        try:
            yield
        finally:
            for holder, thing in zip(holders, kept, strict=True):
                setattr(holder, name, thing)

    def _fail(self, *_: object) -> None:
        assert self._error is not None
        raise self._error

    def _order(self) -> list[Kind]:
        """What the loop of `train` runs, as it is written: stages 2 and 3 reduce every microbatch."""
        last = self.engine.gradient_accumulation_steps() - 1
        kinds: list[Kind] = []
        for microbatch in range(last + 1):
            kinds += [Kind.FORWARD, Kind.BACKWARD]
            kinds += [Kind.REDUCE_GRADS] * (microbatch == last or self.engine.zero_optimization_stage() > 1)
        return [*kinds, Kind.STEP]
