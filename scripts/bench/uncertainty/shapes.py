"""Thirty jobs of different shape, quick in virtual time: what is expected of a plan has to hold for all."""

from __future__ import annotations

from dataclasses import dataclass

A40, PCIE, H100, RTX = "a40", "a100-pcie-80gb", "h100-sxm", "rtx-a4000"


EVERY, AUDIT = 50, 8


@dataclass(frozen=True)
class Shape:
    """One job: its pipeline, its GPUs, what it asks for.

    ``last`` is how much more the last stage computes (it holds the head). ``sizes`` are those of the
    microbatches, in turn; ``clocks`` the most that are profiled.
    """

    stages: int
    microbatches: int
    replicas: int = 1
    last: float = 1.25
    gpu: str = "a100-sxm4-80gb"
    forward_s: float = 0.4
    noise: float = 0.005
    latency_s: float | None = None
    memory_bound: float = 0.05
    intensity: float = 0.85
    waits: str = "never"
    split: str = "auto"
    clocks: int | None = None
    sizes: tuple[int, ...] = ()

    @property
    def ranks(self) -> int:
        """How many GPUs it has."""
        return self.stages * self.replicas

    @property
    def weights(self) -> list[float]:
        """What each stage computes, against the first."""
        return [1.0] * (self.stages - 1) + [self.last]

    def block(self, run_dir: str, seed: int) -> dict[str, object]:
        """Return the job's block: everything as by default but for frequent audits."""
        simulated = {
            "gpu": self.gpu,
            "mean_forward_s": self.forward_s,
            "noise": self.noise,
            "switch_latency_s": self.latency_s,
            "memory_bound": self.memory_bound,
            "intensity": self.intensity,
            "host_step_s": 600.0,
            "seed": seed,
        }
        return {
            "run_dir": run_dir,
            "device": "simulated",
            "profile": {"max_clocks": self.clocks},
            "audit": {"every_iterations": EVERY, "iterations": AUDIT},
            "objective": {"waits": self.waits, "split": self.split},
            "simulated": simulated,
        }


SHAPES = (
    Shape(2, 4),
    Shape(2, 8),
    Shape(4, 4),
    Shape(4, 8),
    Shape(3, 6, last=1.0),
    Shape(3, 6, last=1.5),
    Shape(2, 4, replicas=2),
    Shape(3, 3, replicas=2),
    Shape(2, 6, gpu=A40),
    Shape(4, 6, gpu=A40),
    Shape(2, 6, gpu=PCIE),
    Shape(3, 4, gpu=H100),
    Shape(2, 6, gpu=RTX),
    Shape(2, 6, noise=0.0),
    Shape(3, 6, noise=0.01),
    Shape(3, 6, noise=0.02),
    Shape(2, 6, latency_s=0.1),
    Shape(3, 6, latency_s=0.15),
    Shape(2, 16, forward_s=0.1),
    Shape(3, 12, forward_s=0.15),
    Shape(2, 4, waits="auto"),
    Shape(3, 6, waits="auto"),
    Shape(4, 4, waits="auto", gpu=A40),
    Shape(4, 6, waits="auto"),
    Shape(3, 6, split="never"),
    Shape(2, 6, split="never", clocks=6),
    Shape(2, 6, clocks=24),
    Shape(3, 6, memory_bound=0.3, intensity=0.6),
    Shape(2, 6, sizes=(2, 3, 4)),
    Shape(3, 6, sizes=(3, 4, 4, 5)),
)
