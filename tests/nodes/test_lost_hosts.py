"""Links between two hosts that are cut for a while, and ranks and hosts that stop or are gone for good.

Training is as without us, and guards put clocks back.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hosts import FakeNvml, Hosts, beside, eventually, forget_interface, holding, hosts, live, node_at, when
from jobs import STAGES, UNEVEN, agreed, block, lines, names, plain_losses
from ranks import Said, batches, build, config, run_ranks
from replicas import losses_without_us, planned_job

pytestmark = pytest.mark.e2e

AT, AFTER_S, MOST = 8, 10.0, 20_000
FORWARD_S = (0.4, 0.5)
PATIENCE_S = 5.0  # of our exchange
SCALED = {"time": "scaled", "time_scale": 0.05}
"""In scaled time nothing but our own exchange crosses the control network."""
LONG = {"min_window_s": 40.0, "max_clocks": 3, "warmup_iterations": 2, "max_slower_pct": 30.0}
"""Two seconds of the host's for a window: the link breaks before the profile is there."""


@dataclass(frozen=True)
class Gap:
    """Duration of a network's cut, some iterations after an event, and the widths of the job's stages."""

    lasts_s: float
    event: str
    inner: tuple[int, ...]
    net: int


def ride(rank: int, content: dict[str, Any], gap: Gap) -> list[str]:
    """Train until some seconds after the gap."""
    engine, data, seen = build(content, stages=len(gap.inner), inner=gap.inner), batches(), list[str]()
    forget_interface(f"eth{gap.net}" if gap.net else None)
    run_dir, cut_s, over = Path(content["perseus"]["run_dir"]), float("inf"), False
    while not over:
        seen.append(float(engine.train_batch(data)).hex())
        if rank == 0 and cut_s == float("inf") and len(seen) >= AT and gap.event in names(run_dir):
            (run_dir / "cut").touch()
            time.sleep(1.0)  # the cable is out by now, whatever is under way
            cut_s = time.monotonic()
        time.sleep(0.02)  # alone, an iteration takes no time here
        over = agreed(time.monotonic() > cut_s + gap.lasts_s + AFTER_S or len(seen) > MOST)
    return seen


def through(network: Hosts, content: dict[str, Any], gap: Gap) -> tuple[list[Said], list[str]]:
    """Run a job over a network that is cut: what its ranks said, and what happened."""
    outside = network.outside() / "run"
    perseus = content["perseus"] | {"run_dir": str(network.disk / "run")}
    with network.cutting(1, gap.lasts_s, once=outside / "cut", net=gap.net):
        said = network.run(ride, content | {"perseus": perseus}, gap)
    seen = names(outside)
    assert "disabled" not in seen
    assert seen.count("alone") <= 1
    return said, seen


@pytest.mark.slow
@pytest.mark.parametrize("gap_s", [3.0, 60.0])
def test_a_gap_costs_no_more_than_straggler_answers_and_audits(gap_s: float, tmp_path: Path) -> None:
    content = planned_job(tmp_path, ranks=4, forward_s=FORWARD_S)
    with hosts() as network:
        (network.outside() / "run").mkdir()
        plan = (Path(content["perseus"]["run_dir"]) / "plan.json").read_text()
        (network.outside() / "run" / "plan.json").write_text(plan)
        said, _ = through(network, content, Gap(gap_s, "running", (8, 8), 0))
    assert [one.value for one in said] == losses_without_us(content, len(FORWARD_S), 4, len(said[0].value))


@pytest.mark.slow
@pytest.mark.parametrize("gap_s", [3.0, 60.0])
def test_a_profile_that_lost_half_of_the_ranks_leaves_default_clocks(gap_s: float, tmp_path: Path) -> None:
    content = config(perseus=block(tmp_path, simulated=SCALED, profile=LONG))
    with hosts() as network:
        said, seen = through(network, content, Gap(gap_s, "profiling", UNEVEN, 1))
    assert [one.value for one in said] == plain_losses(len(said[0].value))
    if gap_s > PATIENCE_S:
        assert seen[-1] == "alone", "nothing is measured, planned or run from then on"
        assert any("job restarts" in line for line in lines(said[0]))


# Ranks and hosts that stop, or are gone for good, while clocks are held.

HELD, FREE = [1410, 1410, 0, 0], [0, 0, 0, 0]
VICTIM, STOPPED_S = 2, 60.0


def train(rank: int, content: Mapping[str, Any], disk: Path) -> object:
    (disk / f"pid.{rank}").write_text(str(os.getpid()))
    return live(rank, content, lambda _: (disk / "over").exists(), 0)


@pytest.mark.slow
def test_clocks_are_held_again_when_a_stopped_rank_goes_on(tmp_path: Path) -> None:
    """It was stopped for a minute: nothing stays switched off."""
    node, run_dir = node_at(tmp_path), tmp_path / "run"
    run_dir.mkdir()
    again: list[bool] = []

    def holds() -> bool:
        return node.locked_mhz() == [1410] * STAGES and "profiling" in names(run_dir)

    def strike() -> None:
        pid = int((run_dir / f"pid.{VICTIM}").read_text())
        os.kill(pid, signal.SIGSTOP)
        time.sleep(STOPPED_S)
        os.kill(pid, signal.SIGCONT)
        again.append(eventually(lambda: node.locked_mhz() == [1410] * STAGES))
        (run_dir / "over").touch()

    content = config(gradient_clipping=1.0, perseus=holding(run_dir))
    with beside(when(holds, strike)):
        run_ranks(STAGES, train, content, run_dir, environment=node.environment())
    assert again == [True]
    assert "disabled" not in names(run_dir)
    assert node.locked_mhz() == FREE


class Lost:
    """A job over two hosts with GPUs of fake drivers, one of which is lost."""

    def __init__(self, network: Hosts, folder: Path) -> None:
        self.network, self.nodes = network, list[FakeNvml]()
        for number in (0, 1):
            (folder / f"host{number}").mkdir()
            node = node_at(folder / f"host{number}")
            mine = node.environment()
            network.own[number] = {name: mine[name] for name in mine if mine[name] != os.environ.get(name)}
            self.nodes.append(node)

    def holds(self) -> bool:
        held = all(node.locked_mhz() == HELD for node in self.nodes)
        return held and "profiling" in names(self.network.outside() / "run")

    def lives(self, act: Callable[[], None]) -> None:
        perseus = holding(self.network.disk / "run")
        with (
            beside(when(self.holds, act)),
            suppress(AssertionError),  # the harness reports ranks that died: that is the point
        ):
            self.network.run(train, config(gradient_clipping=1.0, perseus=perseus), self.network.disk)

    def send(self, host: int, *blows: signal.Signals) -> None:
        for blow in blows:
            for file in self.network.outside(host).glob("pid.*"):
                with suppress(ProcessLookupError):
                    os.kill(int(file.read_text()), blow)
            time.sleep(0.2 * (blow is signal.SIGTERM))

    def frees(self, host: int) -> bool:
        return eventually(lambda: self.nodes[host].locked_mhz() == FREE)

    def guards(self) -> list[dict[int, list[str]]]:
        """Processes that are left, after some patience."""
        eventually(lambda: not any(node.processes() for node in self.nodes))
        return [node.processes() for node in self.nodes]


@pytest.mark.slow
def test_a_host_that_reboots_serves_the_next_job(tmp_path: Path) -> None:
    """Its guards die with their trainers: their journals are of an earlier boot, its clocks default."""

    def journals(host: int) -> list[Path]:
        return list((tmp_path / f"host{host}" / "guard").glob("*.json"))

    with hosts(own_users=False) as network:
        lost = Lost(network, tmp_path)
        node, freed = lost.nodes[1], list[bool]()

        def crash() -> None:
            for pid in node.processes():
                os.kill(pid, signal.SIGKILL)
            lost.send(1, signal.SIGKILL)
            eventually(lambda: not node.processes())
            node.state.gpu[0].locked_mhz = node.state.gpu[1].locked_mhz = 0  # a GPU's own at boot
            lost.send(0, signal.SIGKILL)
            freed.append(lost.frees(0))

        lost.lives(crash)
        stale = journals(1)
        network.reboot(1)
        (network.outside() / "run" / "events.jsonl").unlink()
        lost.lives((network.outside() / "over").touch)
        held, left = (network.outside() / "over").exists(), lost.guards()
    assert stale
    assert freed == [True]
    assert held
    assert [node.locked_mhz() for node in lost.nodes] == [FREE, FREE]
    assert left == [{}, {}]
    assert journals(0) == journals(1) == []


def test_every_hosts_clocks_come_back_and_no_guard_is_left(tmp_path: Path) -> None:
    """The cable goes first, so that nobody learns of the end; later the launcher ends the others."""
    with hosts(own_users=False) as network:
        lost = Lost(network, tmp_path)
        freed: list[bool] = []

        def strike() -> None:
            lost.network.link(1, up=False)
            lost.send(1, signal.SIGKILL)
            freed.append(lost.frees(1))
            lost.send(0, signal.SIGTERM, signal.SIGKILL)
            freed.append(lost.frees(0))

        lost.lives(strike)
        left = lost.guards()
    assert freed == [True, True]
    assert [node.locked_mhz() for node in lost.nodes] == [FREE, FREE]
    assert left == [{}, {}]
