"""GPUs that killed guards left: all are put back at once, whatever stands in the way of one."""

import time
from collections import Counter
from pathlib import Path

import pytest
from lone_job import INDEX, DeskGpu

from perseus_ds.device.gpu import Gpu
from perseus_ds.errors import DeviceLostError
from perseus_ds.guard import journal
from perseus_ds.guard.claim import OwnershipLock
from perseus_ds.guard.journal import Journal, boot_id
from perseus_ds.guard.repair import Outcome, repair

LOST = tuple(f"GPU-{INDEX}-{place}" for place in range(3))
HEALTHY = f"GPU-{INDEX}-3"


@pytest.fixture(autouse=True)
def _left(folder: Path) -> None:
    for uuid in (*LOST, HEALTHY):
        journal.write(Journal(uuid, "A100", None, "a job that died", 1, boot_id()))


@pytest.mark.slow
def test_lost_gpus_hold_up_no_healthy_one_and_all_are_answered_in_one_patience() -> None:
    began_s, restored_s = time.monotonic(), []

    def open_gpu(_: str, uuid: str) -> Gpu:
        if uuid in LOST:
            raise DeviceLostError(f"{uuid} is lost")
        return DeskGpu(lambda _: restored_s.append(time.monotonic()))

    done = repair(open_gpu=open_gpu)
    assert Counter(one.outcome for one in done) == {Outcome.FAILED: 3, Outcome.RESTORED: 1}
    assert restored_s[0] - began_s < 1.0
    assert time.monotonic() - began_s < 35.0


def test_a_gpu_that_a_living_guard_holds_is_left_alone_whatever_the_words() -> None:
    for uuid in LOST:
        journal.remove(uuid)
    lease = OwnershipLock(HEALTHY, "a living job")
    gpu = DeskGpu()
    [one] = repair(open_gpu=lambda *_: gpu)
    lease.release()
    assert (one.outcome, gpu.calls) == (Outcome.HELD, [])
