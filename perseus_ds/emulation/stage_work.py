"""How much work a simulated GPU gets for one forward and one backward of a stage."""

from __future__ import annotations

from dataclasses import dataclass

from perseus_ds.device.simulated import SimulatedSettings, Work
from perseus_ds.emulation.weight import weight_of_stage
from perseus_ds.errors import ConfigError

_LEAST_SHARE = 0.01  # assumed: a stage of embeddings alone still takes a hundredth of the mean stage


@dataclass(frozen=True, slots=True)
class StageWork:
    """The work of one microbatch on one stage."""

    forward: Work
    backward: Work


def work(
    weight: float, mean_weight: float, settings: SimulatedSettings, *, stage: int | None = None
) -> StageWork:
    """Work in proportion to a stage's weight, unless the user listed ``forward_s`` per stage.

    ``mean_weight`` is the mean of `weight_of_stage` over all stages; who calls gathers it.

    Raises:
        ConfigError: ``forward_s`` has no entry for the stage.
    """
    forward_s = settings.mean_forward_s * max(_LEAST_SHARE, weight / mean_weight if mean_weight > 0 else 1.0)
    if settings.forward_s is not None and stage is not None:
        forward_s = _listed(settings.forward_s, stage)
    forward = Work(forward_s, settings.memory_bound, settings.intensity)
    return StageWork(forward, forward.scaled(settings.backward_over_forward))


def work_of_stage(
    engine: object, settings: SimulatedSettings, *, mean_weight: float | None = None
) -> StageWork:
    """Work of the stage that a pipeline engine runs; without a mean, as if all stages were alike."""
    weight = weight_of_stage(getattr(engine, "module", None))
    return work(weight, weight if mean_weight is None else mean_weight, settings, stage=_stage_of(engine))


def _listed(forward_s: tuple[float, ...], stage: int) -> float:
    if stage >= len(forward_s):
        raise ConfigError(f"simulated.forward_s: {len(forward_s)} entries, but the job has a stage {stage}")
    return forward_s[stage]


def _stage_of(engine: object) -> int | None:
    stage = getattr(engine, "stage_id", None)
    return stage if isinstance(stage, int) else None
