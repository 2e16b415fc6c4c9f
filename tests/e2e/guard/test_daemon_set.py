"""The manifest for Kubernetes as it stands: the service in a pod of the DaemonSet, jobs in pods beside it."""

from __future__ import annotations

import contextlib
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import UUID, FakeNvml
from pods import Pod, control_group, image, missing, slice_of_pods
from processes import eventually

from perseus_ds.errors import DeviceUnavailableError
from perseus_ds.guard.claim import OwnershipLock

yaml = pytest.importorskip("yaml")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
]

MANIFEST = Path(__file__).parents[3] / "scripts" / "guardd" / "kubernetes.yaml"
TRAINER = [sys.executable, str(Path(__file__).with_name("trainer.py")), "1", "runs", "automatic"]
"""Stands for the manifest's ``deepspeed train.py``."""


def specs() -> tuple[dict[str, Any], dict[str, Any]]:
    """The DaemonSet's service of a node, and the pod that trains."""
    daemon_set, pod = yaml.safe_load_all(MANIFEST.read_text())
    return daemon_set["spec"]["template"]["spec"], pod["spec"]


class Cluster:
    """A node with a driver, the service's pod, and jobs."""

    def __init__(self, node: FakeNvml, folder: Path) -> None:
        self.root, self._folder, self._node = folder / "node", folder, node
        self._image = image(node.environment())
        node.path.chmod(0o666)
        temporary = Path(tempfile.gettempdir())
        for above in (folder, *folder.parents):
            if temporary in above.parents:  # pytest's own, which a job's user has to pass
                above.chmod(0o755)
        self._daemon_set, self._job = specs()
        self._started = 0

    @property
    def socket(self) -> Path:
        return self.root / "run/perseus-guardd/guardd.sock"

    def journals(self) -> list[str]:
        return [path.name for path in (self.root / "run/perseus_ds").glob("GPU-*.json")]

    @contextlib.contextmanager
    def service(self) -> Iterator[Pod]:
        self._started += 1
        pod = Pod(
            self._daemon_set, self.root, log=self._folder / f"service{self._started}", image=self._image
        )
        try:
            assert eventually(lambda: "listening on" in pod.said, 60.0), pod.said
            yield pod
            pod.stop()
        finally:
            pod.kill()

    @contextlib.contextmanager
    def job(self, parent: str, name: str, *, gpus: tuple[int, ...]) -> Iterator[Pod]:
        with control_group(f"{parent}/{name}", gpus=gpus) as groups:
            pod = Pod(
                self._job,
                self.root,
                log=self._folder / name,
                image=self._image,
                groups=groups,
                gpus=gpus,
                command=TRAINER,
            )
            try:
                yield pod
            finally:
                pod.kill()
                assert eventually(lambda: not any(group.read_text() for group in groups))


@pytest.fixture
def cluster(node: FakeNvml, tmp_path: Path) -> Cluster:
    return Cluster(node, tmp_path)


@pytest.fixture
def pods() -> Iterator[str]:
    with slice_of_pods() as parent:
        yield parent


def test_a_pod_sets_clocks_of_the_gpus_that_it_was_given(
    cluster: Cluster, node: FakeNvml, pods: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSEUS_GUARD_DIR", str(cluster.root / "run/perseus_ds"))
    with cluster.service():
        found = cluster.socket.stat()
        assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o660, 1000)
        with cluster.job(pods, "train-gpt", gpus=(0,)) as job:
            assert eventually(lambda: node.locked_mhz()[0] > 0, 60.0), job.said
            assert len(cluster.journals()) == 1
            with pytest.raises(DeviceUnavailableError):
                OwnershipLock(UUID.format(0), "a guard of the node, beside the pods")
            with cluster.job(pods, "elsewhere", gpus=(1,)) as other:
                assert eventually(lambda: "\n" in other.said, 60.0)
                assert UUID.format(0) in other.said
            assert job.process.poll() is None
            assert min(mhz for mhz in node.locked_mhz() if mhz) >= 600, "the manifest's floor"
        assert eventually(lambda: node.locked_mhz() == [0, 0])
        assert eventually(lambda: cluster.journals() == [])
        with cluster.job("", "perseus-no-pod", gpus=(0,)) as stranger:
            assert eventually(lambda: "\n" in stranger.said, 60.0)
            assert "may not" in stranger.said


def test_a_killed_service_is_followed_by_one_that_finds_its_journal(
    cluster: Cluster, node: FakeNvml, pods: str
) -> None:
    with cluster.service() as first, cluster.job(pods, "train-gpt", gpus=(0,)) as job:
        assert eventually(lambda: node.locked_mhz()[0] > 0, 60.0), job.said
        first.kill()
        assert len(cluster.journals()) == 1
        with cluster.service() as second:
            assert UUID.format(0) in second.said
            assert eventually(lambda: f"{UUID.format(0)} is taken" in second.said, 60.0)
            assert eventually(lambda: node.locked_mhz()[0] > 0)
            job.kill()
            assert eventually(lambda: node.locked_mhz() == [0, 0])
    assert cluster.journals() == []
