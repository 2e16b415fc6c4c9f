"""A training script as users write it, for real launchers: a DeepSpeed pipeline of two stages.

    torchrun --nnodes 2 --nproc-per-node 2 launched_job.py ds.json STOP

Every step is a line: rank, step, the exact loss, and P where a plan ran it. It ends once there is a file STOP
on rank 0's disk. Where torchrun or DeepSpeed set no RANK it takes what ``srun`` sets.
"""

import json
import os
import sys
from pathlib import Path

STAGES = 2
MOST = 100_000


def rank_by_slurm() -> None:
    if "SLURM_PROCID" in os.environ:
        theirs = {"RANK": "PROCID", "WORLD_SIZE": "NTASKS", "LOCAL_RANK": "LOCALID"}
        os.environ.update({name: os.environ[f"SLURM_{of}"] for name, of in theirs.items()})


def main() -> None:
    rank_by_slurm()
    import deepspeed  # after the environment is right
    import torch.distributed as dist
    from jobs import agreed
    from ranks import batches, build

    from perseus_ds.runtime.attach import session_of

    settings, stop = (Path(word) for word in sys.argv[-2:])
    dist.init_process_group("gloo", init_method="env://")
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False, verbose=False)
    engine, data = build(json.loads(settings.read_text()), stages=STAGES), batches()
    for step in range(MOST):
        session = session_of(engine)
        planned = session is not None and session.active_plan is not None
        loss = float(engine.train_batch(data)).hex()
        sys.stdout.write(f"{dist.get_rank()} {step} {loss} {'P' if planned else '-'}\n")
        sys.stdout.flush()
        if not agreed(not stop.exists(), already=False):
            break
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
