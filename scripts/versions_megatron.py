"""The Megatron job of ``scripts/versions``: a whole job in 1F1B, the order observed in the other passes."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts/demo_job"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/contract"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))
import ranks
from adapter_contract import Noting
from jobs import agreed, happened
from megatron_jobs import Job, Shape, adapter_of
from versions_deepspeed import serve

import perseus_ds
from perseus_ds.adapters.megatron import megatron_version
from perseus_ds.schedule import Kind

STEPS = 2000
HEARD = {Kind.FORWARD, Kind.BACKWARD, Kind.REDUCE_GRADS}
SHAPES = [Shape(2, microbatches=8), Shape(2, 2, 8), Shape(2, 2, 8, overlap_p2p=True), Shape(microbatches=4)]


def train(rank: int, config: dict[str, object] | None, steps: int) -> tuple[list[list[str]], str]:
    """Return losses and weights of one rank, exactly, after a whole job or so many steps."""
    del rank
    job, losses = Job(Shape(2)), []
    if config is not None:
        perseus_ds.attach(job.schedules, config=config)
        job.run_pass = job.schedules.get_forward_backward_func()
    measured = False
    while len(losses) < steps and not measured:
        losses.append(job.step())
        measured = config is not None and agreed(happened("measured")(Path(str(config["run_dir"]))), False)
    return losses, job.weights()


def listen(rank: int, shape: Shape, listens: bool) -> tuple[list[list[str]], str, bool]:  # noqa: FBT001
    """Return losses and weights, and whether the instructions came in the derived order."""
    del rank
    job, noting = Job(shape), Noting()
    if not listens:
        return [job.step() for _ in range(3)], job.weights(), True
    adapter = adapter_of(job)
    order = [i.kind for i in adapter.place().order if i.kind in HEARD]
    adapter.install(noting)
    job.run_pass = job.schedules.get_forward_backward_func()
    losses = [job.step() for _ in range(3)]
    return losses, job.weights(), [one.kinds for one in noting.iterations] == [order] * 3


def main(release: str) -> None:
    """Run with and without, compare, and print what happened."""
    if megatron_version() != release:
        sys.exit(f"imported megatron-core {megatron_version()}, wanted {release}")
    for shape in SHAPES:
        with_us, without = (
            [said.value for said in ranks.run_ranks(shape.ranks, listen, shape, listens)]
            for listens in (True, False)
        )
        if with_us != without:
            sys.exit(f"order, losses or weights differ: {shape}")
    served = serve(train, STEPS)
    if served != [said.value for said in ranks.run_ranks(2, train, None, len(served[0][0]))]:
        sys.exit("losses or weights differ")
    print("order, losses, weights identical in 1F1B, interleaved, none; profiled, planned, ran, measured")


if __name__ == "__main__":
    main(sys.argv[1])
