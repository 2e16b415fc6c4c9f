"""The first hour on a GPU: what our measuring relies on, checked by reads alone; no clock is changed."""

from first_hour.bench import Bench, TorchBench, torch_bench
from first_hour.report import CheckResult, Report, Verdict
from first_hour.run import first_hour

__all__ = ["Bench", "CheckResult", "Report", "TorchBench", "Verdict", "first_hour", "torch_bench"]
