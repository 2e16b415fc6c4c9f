"""A whole job in one process that leaves its numbers: what they say, and what may fail."""

import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from lone_job import Loop, NotingGpu, begun, block_of, names_of, served, train
from ranks import free_port
from virtual_host import VirtualHost

from perseus_ds.device.clock_agenda import RequestCounts
from perseus_ds.device.gpu import OperatorSettings
from perseus_ds.device.simulated.gpu import opened_gpus
from perseus_ds.errors import ConfigError, DeviceUnavailableError
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.run_directory.records import read_summary
from perseus_ds.runtime.accounting import RankBooks
from perseus_ds.runtime.clocks import ClockThread
from perseus_ds.runtime.energy_monitor import EnergyWatch
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.metrics import Metric, Publisher, RankMetrics
from perseus_ds.schedule import textbook

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("process_group")]
CounterMetricFamily = pytest.importorskip("prometheus_client.core").CounterMetricFamily
Values = Mapping[str, list[tuple[str, float]]]


def parsed(text: str) -> Values:
    found: dict[str, list[tuple[str, float]]] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, rest = line.partition("{")
            labels, _, value = rest.rpartition("} ")
            found.setdefault(name, []).append((labels, float(value)))
    return found


def value(values: Values, metric: Metric) -> float:
    [(_, only)] = values[metric.title]
    return only


def text_of(run_dir: Path) -> str:
    [file] = (run_dir / "metrics").glob("*.prom")
    return file.read_text()


@pytest.fixture(scope="module")
def done(process_group: None, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A job that measured its saving, looked at while it ran and after its end."""
    run_dir, port = tmp_path_factory.mktemp("job") / "gpt", free_port()
    with served(run_dir, metrics={"enabled": True, "port": port}) as loop:
        train(loop, run_dir, "measured")
        for _ in range(20):
            loop.step()
        until_s = time.monotonic() + 60.0
        while f"\n{Metric.SAVING.title}" not in text_of(run_dir):
            assert time.monotonic() < until_s
            time.sleep(0.05)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            scraped = answer.read().decode()
        running = text_of(run_dir)
        gpu = opened_gpus()[-1]  # held here: it is gone as soon as nobody uses it
    return SimpleNamespace(
        run_dir=run_dir,
        running=parsed(running),
        scraped=parsed(scraped),
        ended=parsed(text_of(run_dir)),
        true_j=gpu.true_now().energy_j,
        uuid=gpu.identify().uuid,
    )


def test_savings_are_those_of_the_summary(done: SimpleNamespace) -> None:
    values, summary = done.running, read_summary(done.run_dir / "summary.json")
    assert value(values, Metric.SAVING) == pytest.approx(summary.saving_pct / 100.0)
    assert value(values, Metric.SAVING_ERROR) == pytest.approx(summary.saving_within_pct / 100.0)
    each_j = summary.baseline.energy_j - summary.perseus.energy_j
    assert value(values, Metric.SAVED) >= 0.9 * each_j * summary.perseus.iterations > 0
    assert value(values, Metric.SAVED_ERROR) < value(values, Metric.SAVED)


def test_labels_join_other_tools_and_clocks_are_in_base_units(done: SimpleNamespace) -> None:
    values, host = done.running, socket.gethostname()
    [(labels, _)] = values[Metric.ENERGY.title]
    assert labels == f'gpu_uuid="{done.uuid}",host="{host}",job="gpt",rank="0",replica="0",stage="0"'
    [(labels, _)] = values[Metric.PLAN.title]
    assert labels == f'host="{host}",job="gpt"'
    assert 200e6 < value(values, Metric.ACHIEVED) <= 1410e6
    assert value(values, Metric.REQUESTS) > 0
    assert value(values, Metric.CONTROL) == 1


def test_the_endpoint_says_what_the_file_says(done: SimpleNamespace) -> None:
    scraped, written = done.scraped, done.running
    assert scraped.keys() ^ written.keys() <= {Metric.REQUESTED.title}, "there while a clock is requested"
    assert value(scraped, Metric.PLAN) == value(written, Metric.PLAN)


def test_after_the_end_only_what_still_holds_is_left(done: SimpleNamespace) -> None:
    values = done.ended
    assert value(values, Metric.ENERGY) == pytest.approx(done.true_j, rel=0.005)  # the counter samples
    assert Metric.SAVED.title in values
    over = {Metric.POWER.title, Metric.ACHIEVED.title, Metric.PLAN.title, Metric.RUNNING.title}
    assert not values.keys() & over
    assert "perseus-metrics" not in {thread.name for thread in threading.enumerate()}


def profiled(run_dir: Path, **metrics: object) -> None:
    """Run a job up to the first window of its profile."""
    with served(run_dir, metrics={"enabled": True, **metrics}) as loop:
        train(loop, run_dir, "profiling")


def test_two_jobs_of_a_node_leave_a_file_each_in_one_folder(tmp_path: Path) -> None:
    folder = tmp_path / "textfiles"
    for number in (1, 2):
        metrics, simulated = {"enabled": True, "folder": str(folder)}, {"seed": number}  # another GPU
        with served(tmp_path / f"run{number}", metrics=metrics, simulated=simulated) as loop:
            loop.step()
    texts = [file.read_text() for file in folder.glob("*.prom")]
    assert sorted('job="run1"' in text for text in texts) == [False, True]


def test_a_taken_port_costs_the_endpoint_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        profiled(tmp_path / "run", port=port)
    said = capsys.readouterr().err
    assert "perseus.metrics.port" in said
    assert str(port) in said
    assert Metric.ENERGY.title in text_of(tmp_path / "run")
    assert "failed" not in names_of(tmp_path / "run")


def test_a_bad_folder_costs_the_metrics_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    profiled(tmp_path / "run", folder=str(tmp_path / "file" / "textfiles"))
    said = [line for line in capsys.readouterr().err.splitlines() if "metrics:" in line]
    assert len(said) == 1


def test_a_missing_package_is_said_before_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"metrics\.enabled") as refused:
        begun(Loop(), block_of(tmp_path / "run", metrics={"enabled": True}))
    assert "perseus_ds[metrics]" in str(refused.value)


def test_without_the_block_nothing_is_left(tmp_path: Path) -> None:
    profiled(tmp_path / "run", enabled=False)
    assert not (tmp_path / "run" / "metrics").exists()
    assert names_of(tmp_path / "run")[0] == "attached"


# The thread that publishes: each of its troubles is one line, and none ends it.

EVERY_S = 15.0


class Troubled:
    """Figures whose turns fail with the given errors in order; the last one repeats for ever."""

    ended = False

    def __init__(self, *errors: Exception | None) -> None:
        self._errors = errors
        self.turns = 0
        self.threads = set[str]()

    def update(self) -> None:
        error = self._errors[min(self.turns, len(self._errors) - 1)]
        self.turns += 1
        self.threads.add(threading.current_thread().name)
        if error is not None:
            raise error

    def collect(self) -> Iterator[object]:
        yield CounterMetricFamily("turns", "How many there were.", value=self.turns)


NUMBERED = [ValueError(str(number)) for number in range(100)]


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        pytest.param([None], [], id="no trouble"),
        pytest.param([RuntimeError("changed")], ["RuntimeError"], id="for ever"),
        pytest.param(NUMBERED, ["ValueError: 0"], id="another each time"),
    ],
)
def test_each_trouble_is_one_line(
    host: VirtualHost, tmp_path: Path, errors: list[Exception | None], said: list[str]
) -> None:
    lines, figures = list[str](), Troubled(*errors)
    publisher = Publisher(figures, tmp_path / "a.prom", say=lines.append, threads=host)
    host.sleep(20.5 * EVERY_S)
    publisher.close()
    assert len(lines) == len(said)
    assert all(text in line for text, line in zip(said, lines, strict=True))
    assert figures.threads == {"perseus-metrics"}, "never the one that trains"
    assert figures.turns == 22, "one in 15 s, and the last"
    assert host.failures == []


# A disk that is full under the metrics: said once, the last whole file stays, and space is used again.


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=65536", "tmpfs", str(folder)]
    made = subprocess.run(mount, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1024))
    return filler


def test_metrics_go_on_when_there_is_room_again(host: VirtualHost, disk: Path) -> None:
    lines, path = list[str](), disk / "metrics" / "host.prom"
    publisher = Publisher(Troubled(None), path, say=lines.append, threads=host)
    host.sleep(2.5 * EVERY_S)
    before = path.read_text()
    assert before.endswith(" 3.0\n")

    filler = fill(disk)
    host.sleep(10.0 * EVERY_S)
    (line,) = lines
    assert str(path) in line
    assert path.read_text() == before, "still whole"
    assert [one.name for one in path.parent.iterdir()] == ["host.prom"], "nothing half written is left"

    filler.unlink()
    host.sleep(2.0 * EVERY_S)
    assert len(lines) == 2
    assert path.read_text().endswith(" 15.0\n")
    publisher.close()
    assert (len(lines), host.failures) == (2, [])


# The power limit that the driver enforces, among a rank's numbers: what it is now, not what it was once.


def test_the_limit_is_that_of_the_last_look(host: VirtualHost, tmp_path: Path) -> None:
    gpu, counts = NotingGpu(), RequestCounts()
    books = RankBooks(EnergyWatch(gpu), sightings=tuple, overrun_share=lambda: 0.0, clock_requests=counts)
    figures = RankMetrics(
        Job(1, 2, 1, 0, textbook("1f1b", stages=2, microbatches=2), {}),
        RunDirectory(tmp_path),
        gpu,
        books,
        ClockThread(gpu, threads=host),
        iteration=lambda: 0,
        active_plan=lambda: None,
        summaries={},
        now_s=host.now_s,
    )
    # what is not known is left out: a driver that does not answer, a GPU that states no limit
    for answer, shown in (
        (OperatorSettings(limit_w=400.0), [400.0]),
        (OperatorSettings(limit_w=300.0), [300.0]),
        (DeviceUnavailableError("the driver does not answer"), []),
        (OperatorSettings(limit_w=None), []),
        (OperatorSettings(limit_w=250.0), [250.0]),
    ):
        gpu.operator_settings = MagicMock(side_effect=repeat(answer))
        host.sleep(EVERY_S)
        figures.update()
        limits = [one for one in figures.collect() if one.name == Metric.POWER_LIMIT.title]
        assert [sample.value for limit in limits for sample in limit.samples] == shown
