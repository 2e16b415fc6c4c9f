"""However a job ends, no clock stays locked: real processes, real signals, the clocks seen from outside."""

import signal
from collections.abc import Callable
from functools import partial

import pytest
from fake_nvml import UUID, FakeNvml
from processes import Job, alive, eventually, free

from perseus_ds.device.gpu import DeviceRequest
from perseus_ds.device.nvml import NvmlGpu
from perseus_ds.guard.repair import Outcome, repair

pytestmark = pytest.mark.e2e
ENDING = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@pytest.mark.parametrize("how", ["raises", "returns"])
def test_a_job_that_ends_by_itself(node: FakeNvml, how: str) -> None:
    job = Job(how)
    job.wait()
    assert eventually(lambda: not alive(job.guard) and free(node))


BLOWS = {
    **{number.name: ("runs", partial(Job.kill_trainer, number=number)) for number in ENDING},
    "its forked worker lives on": ("forks", Job.kill_trainer),
    "Ctrl-C reaches the job and not the guard": ("runs", Job.ctrl_c),
}


@pytest.mark.parametrize(("how", "blow"), BLOWS.values(), ids=BLOWS)
def test_a_trainer_that_is_killed(node: FakeNvml, how: str, blow: Callable[[Job], None]) -> None:
    job = Job(how)
    assert eventually(lambda: not free(node))
    blow(job)
    assert eventually(lambda: free(node) and not alive(job.guard))
    job.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_guard_that_is_asked_to_end_puts_the_clock_back(node: FakeNvml, number: signal.Signals) -> None:
    job = Job()
    assert eventually(lambda: not free(node))
    job.kill_guard(number)
    assert eventually(lambda: not alive(job.guard))
    assert eventually(lambda: free(node))
    job.kill_trainer()
    job.wait()
    assert free(node)


def test_a_stopped_trainer_holds_up_nobody(node: FakeNvml) -> None:
    job = Job()
    assert eventually(lambda: not free(node))
    job.kill_trainer(signal.SIGSTOP)
    assert repair()[0].outcome is Outcome.HELD
    job.kill_trainer()
    job.wait()
    assert eventually(lambda: free(node))


def test_both_killed_the_next_start_repairs(node: FakeNvml) -> None:
    job = Job()
    assert eventually(lambda: not free(node))
    job.kill_both()
    job.wait()
    assert eventually(lambda: not alive(job.guard))
    assert not free(node)
    assert [(fixed.uuid, fixed.outcome) for fixed in repair()] == [(UUID.format(0), Outcome.RESTORED)]
    assert free(node)
    assert repair() == ()


def test_the_lock_that_an_operator_states_comes_back_even_after_both_were_killed(
    node: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATED_MHZ", "900")
    with NvmlGpu(DeviceRequest("nvml")) as operator:
        operator.lock_clock(900)
    for kill in (Job.kill_trainer, Job.kill_both):
        job = Job()
        assert eventually(lambda: node.locked_mhz() != [900, 0])
        kill(job)
        job.wait()
        assert eventually(lambda job=job: not alive(job.guard))
        repair()
        assert node.locked_mhz() == [900, 0]
