"""The first hour's machine on the strict double: its GPU takes power while a kernel runs."""

from __future__ import annotations

from collections.abc import Callable

from fake_cuda import GLOBAL, FakeCuda
from personality_gpu import Character, PersonalityGpu
from virtual_host import VirtualHost


class FakeBench:
    """A bench whose traits a test sets; ``broken`` makes every capture a failure."""

    def __init__(self, host: VirtualHost, cuda: FakeCuda, character: Character | None = None) -> None:
        self.host, self.cuda, self.threads = host, cuda, host
        self._share = 0.0
        self._busy: list[tuple[float, float, float]] = []
        self.gpu = PersonalityGpu(host, character or Character(), self._power_w)
        self.broken = ""

    def launch(self, share: float) -> None:
        if share > 0:
            self._share = share
            self.cuda.launch(0.01 if share >= 1.0 else 0.0, fixed_s=0.0 if share >= 1.0 else 0.01)

    def synchronize(self) -> None:
        self.cuda.synchronize()
        self._share = 0.0

    def allocate(self) -> None:
        self.host.sleep(2e-4)

    def capture(self, meanwhile: Callable[[], None]) -> None:
        if self.broken:
            raise RuntimeError(self.broken)
        with self.cuda.graph(GLOBAL) as graph:
            self.cuda.launch(0.01)
            meanwhile()
        graph.replay()
        self.cuda.synchronize()

    def run_python(self, for_s: float) -> None:
        self.host.python(for_s)

    def keep_lock(self) -> None:
        self.host.spend(0.015)

    def thread_cpu_s(self) -> float:
        counts, name = self.cuda.counts, self.host.thread
        return counts.host_s[name] + counts.spun_s[name]

    def contexts(self) -> int:
        return sum(bool(gpu.context_bytes) for gpu in self.cuda.devices)

    def _power_w(self, now_s: float) -> float:
        del now_s
        return 90.0 + 500.0 * self._share
