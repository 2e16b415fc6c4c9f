"""The first hour's checks on the strict double: what passes, what fails, what it may take."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_bench import FakeBench
from fake_cuda import FakeCuda
from personality_gpu import Character
from virtual_host import VirtualHost, closing

from perseus_ds.runtime.first_hour import CheckResult, Report, Verdict, first_hour
from perseus_ds.runtime.first_hour.checks import cost_of_marks, counter_against_power

PASSES, FAILS = Verdict.PASSES, Verdict.FAILS


@pytest.fixture
def host() -> Iterator[VirtualHost]:
    with closing(VirtualHost()) as host:
        yield host


def bench_on(host: VirtualHost, character: Character | None = None, *, hip: bool = False) -> FakeBench:
    cuda = FakeCuda(host, devices=2, ppm=35.0, hip=hip)
    cuda.set_device(1)
    return FakeBench(host, cuda, character)


def by_number(report: Report) -> dict[int, CheckResult]:
    return {finding.number: finding for finding in report.findings}


@pytest.mark.thorough
@pytest.mark.parametrize("hip", [False, True])
def test_a_gpu_as_documented_passes_but_for_what_the_documents_warn_of(
    host: VirtualHost, *, hip: bool
) -> None:
    told: list[str] = []
    bench = bench_on(host, hip=hip)
    report = first_hour(bench, {"gpu": "a double"}, progress=told.append)
    found = by_number(report)
    assert {number: one.verdict for number, one in found.items()} == {
        1: PASSES,
        2: PASSES,
        3: PASSES,
        4: PASSES,
        5: FAILS,
        6: PASSES,
        7: PASSES,
        8: PASSES,
        10: PASSES,
    }, report.text
    assert found[7].figures["drift_ppm"] == pytest.approx(-35.0, abs=2.0)
    assert found[5].figures["longest_gap_ms"] > 100.0
    assert found[10].figures["python_p50_ms"] == pytest.approx(1.0 if hip else 5.0, abs=0.5)
    assert hip or found[10].figures["pickle_p50_ms"] > 4.0
    assert found[4].figures["contexts_after"] == 1
    assert found[3].figures["full_uneven_ms"] < 12.0  # the counter is read every 10 ms
    assert report.took_s <= 600.0
    assert len([line for line in told if line.startswith("check ")]) == 9
    assert bench.cuda.counts.broken == 0


def test_a_counter_whose_steps_are_no_even_grid_is_seen(host: VirtualHost) -> None:
    (found,) = first_hour(
        bench_on(host, Character(late_s=0.05)), {}, checks=[(3, counter_against_power)]
    ).findings
    assert found.verdict is PASSES
    assert 25.0 < found.figures["full_uneven_ms"] < 50.0


@pytest.mark.thorough
def test_a_modules_counter_is_said_with_what_jobs_do_about_it(host: VirtualHost) -> None:
    found = by_number(first_hour(bench_on(host, Character(module_w=250.0)), {}))
    assert found[3].verdict is FAILS
    assert found[3].figures["full_ratio"] == pytest.approx(840.0 / 590.0, rel=0.02)
    assert "integrate power" in "\n".join(found[3].lines())


@pytest.mark.thorough
def test_a_driver_whose_reads_are_slow_is_found(host: VirtualHost) -> None:
    found = by_number(first_hour(bench_on(host, Character(call_s=2e-3)), {}))
    assert found[2].verdict is FAILS
    assert found[2].figures["energy_read_p99_ms"] > 2.0


def test_marks_are_not_charged_for_a_launch_queue_that_training_filled(host: VirtualHost) -> None:
    cuda = FakeCuda(host, queue=100)
    (found,) = first_hour(FakeBench(host, cuda), {}, checks=[(8, cost_of_marks)]).findings
    assert found.verdict is PASSES, found.figures
    assert found.figures["mark_us"] < 15.0


def test_dear_marks_are_found(host: VirtualHost) -> None:
    cuda = FakeCuda(host, costs_s={"record": 40e-6})
    (found,) = first_hour(FakeBench(host, cuda), {}, checks=[(8, cost_of_marks)]).findings
    assert found.verdict is FAILS
    assert found.figures["mark_us"] > 35.0


@pytest.mark.thorough
def test_a_broken_capture_is_counted_and_named(host: VirtualHost) -> None:
    bench = bench_on(host)
    bench.broken = "CUDA error: operation failed due to a previous error during capture"
    found = by_number(first_hour(bench, {}))
    assert (found[6].verdict, found[6].figures["broken"]) == (FAILS, 20)
    assert "previous error" in str(found[6].figures["reason"])


def test_a_check_that_cannot_be_made_keeps_no_other_from_it(host: VirtualHost) -> None:
    found = by_number(first_hour(bench_on(host, Character(power_fails=True)), {}))
    assert found[3].verdict is Verdict.NOT_MEASURED
    assert "undefined symbol" in str(found[3].figures["reason"])
    assert found[4].verdict is PASSES


def test_a_budget_of_time_is_kept(host: VirtualHost) -> None:
    report = first_hour(bench_on(host), {}, budget_s=20.0)
    assert [one.verdict for one in report.findings][-1] is Verdict.NOT_MEASURED
    assert report.took_s < 60.0
    assert "out of time" in report.text


def test_the_file_is_for_people_and_the_one_beside_it_for_programs(host: VirtualHost, tmp_path: Path) -> None:
    report = first_hour(bench_on(host), {"gpu": "a double"}, budget_s=1.0)
    beside = report.write(tmp_path / "first-hour.txt")
    assert beside == tmp_path / "first-hour.json"
    assert "9 checks" in (tmp_path / "first-hour.txt").read_text()
    read = json.loads(beside.read_text())
    assert [one["number"] for one in read["findings"]] == [1, 2, 3, 4, 5, 6, 7, 8, 10]
    assert read["machine"] == {"gpu": "a double"}
