"""The manifest for Kubernetes as it stands: the service in a pod of the DaemonSet, jobs in pods beside it.

Pods are made of namespaces and control groups, with volumes, variables and rights as the manifest names them.
Images are this machine's files with a /run, /dev and /sys/fs/cgroup of their own. Device files and the rules
of version 1's device controller stand for the device plugin.
"""

import contextlib
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import UUID, FakeNvml
from processes import TRAINER, eventually, let_others_pass, no_container

from perseus_ds.errors import DeviceUnavailableError
from perseus_ds.guard.claim import OwnershipLock

yaml = pytest.importorskip("yaml")

CGROUPS = Path("/sys/fs/cgroup")
KINDS = (CGROUPS / "devices", CGROUPS / "unified")
DEVICES = {"null": (1, 3), "zero": (1, 5), "urandom": (1, 9), "nvidia0": (1, 7), "nvidia1": (1, 8)}
"""Numbers of drivers that every kernel has: two stand for GPUs, /dev/full and /dev/random by right."""


def missing() -> str | None:
    """Say why no pod can be made here."""
    if not all((kind / "cgroup.procs").exists() for kind in KINDS):
        return "needs version 1's device controller and version 2 of control groups"
    return no_container() or (None if shutil.which("setpriv") else "needs setpriv")


@contextlib.contextmanager
def control_group(path: str, *, gpus: Sequence[int]) -> Iterator[list[Path]]:
    """A pod's control groups, whose processes may open these GPUs alone; yields where to join."""
    groups = [kind / path.lstrip("/") for kind in KINDS]
    for group in groups:
        group.mkdir()
    for index in {0, 1} - {*gpus}:
        major, minor = DEVICES[f"nvidia{index}"]
        (groups[0] / "devices.deny").write_text(f"c {major}:{minor} rwm")
    try:
        yield [group / "cgroup.procs" for group in groups]
    finally:
        for group in groups:
            group.rmdir()


class Pod:
    """The first container of a pod; its log is what it says."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        with log.open("w") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)

    @property
    def said(self) -> str:
        return self._log.read_text()

    def kill(self) -> None:
        """All of it at once, as the kubelet does in the end."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)


def _files(
    spec: Mapping[str, Any], container: Mapping[str, Any], root: Path, gpus: Sequence[int]
) -> Iterator[str]:
    """Mount an empty /run, /dev and /sys/fs/cgroup, then what volumes bring."""
    host, groups = Path("/run/.host"), Path("/run/.cgroup")
    yield f"mkdir -p {root} && mount -t tmpfs tmpfs /mnt && mkdir /mnt/host /mnt/cgroup"
    yield f"mount --rbind {root} /mnt/host && mount --rbind {CGROUPS} /mnt/cgroup"
    yield f"mount -t tmpfs -o mode=755 tmpfs /run && mkdir {host} {groups}"
    yield f"mount --rbind /mnt/host {host} && mount --rbind /mnt/cgroup {groups} && umount -l /mnt"
    yield f"mount -t tmpfs tmpfs {CGROUPS} && mount -t tmpfs -o mode=755 tmpfs /dev && hostname pod"
    for name, (major, minor) in DEVICES.items():
        if not name.startswith("nvidia") or int(name[-1]) in gpus:
            yield f"mknod -m 666 /dev/{name} c {major} {minor}"
    volumes = {one["name"]: one["hostPath"] for one in spec.get("volumes", ())}
    for mount in container.get("volumeMounts", ()):
        volume = volumes[mount["name"]]
        where, source = mount["mountPath"], f"{host}{volume['path']}"
        if volume["path"] == str(CGROUPS):
            source = str(groups)
        create = "mkdir -p" if volume["type"] == "DirectoryOrCreate" else "test -d"
        yield f"{create} {source} && mkdir -p {where} && mount --rbind {source} {where}"
    yield f"umount -l {host} {groups}"


def _rights(spec: Mapping[str, Any], container: Mapping[str, Any]) -> list[str]:
    rights = container["securityContext"]
    more = spec.get("securityContext", {}).get("supplementalGroups", ())
    user, capabilities = rights["runAsUser"], rights["capabilities"]
    assert capabilities["drop"] == ["ALL"]
    kept = ",".join(["-all", *(f"+{name.lower()}" for name in capabilities.get("add", ()))])
    groups = f"--groups={','.join(map(str, more))}" if more else "--clear-groups"
    words = ["setpriv", f"--reuid={user}", f"--regid={rights.get('runAsGroup', 0)}", groups]
    words += [f"--bounding-set={kept}", "--inh-caps=-all"]
    return [*words, *([] if rights["allowPrivilegeEscalation"] else ["--no-new-privs"])]


pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
]

MANIFEST = Path(__file__).parents[3] / "scripts" / "guardd" / "kubernetes.yaml"
TRAINS = [sys.executable, str(TRAINER), "1", "runs", "automatic"]
"""Stands for the manifest's ``deepspeed train.py``."""


class Cluster:
    """A node with a driver, the service's pod, and jobs."""

    def __init__(self, node: FakeNvml, folder: Path) -> None:
        self.root, self._folder, self._node = folder / "node", folder, node
        driver = {key: node.environment()[key] for key in ("FAKE_NVML_STATE", "LD_LIBRARY_PATH")}
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        self._image = {"PATH": path, "HOME": "/tmp", **driver}  # of an image that has the package
        node.path.chmod(0o666)
        let_others_pass(folder)
        daemon_set, pod = yaml.safe_load_all(MANIFEST.read_text())
        self._daemon_set, self._job = daemon_set["spec"]["template"]["spec"], pod["spec"]
        self._started = 0

    @property
    def socket(self) -> Path:
        return self.root / "run/perseus-guardd/guardd.sock"

    def journals(self) -> list[str]:
        return [path.name for path in (self.root / "run/perseus_ds").glob("GPU-*.json")]

    @contextlib.contextmanager
    def service(self) -> Iterator[Pod]:
        self._started += 1
        pod = self._pod(self._daemon_set, f"service{self._started}")
        try:
            assert eventually(lambda: "listening on" in pod.said, 60.0), pod.said
            yield pod
            pod.process.terminate()  # the way that a pod is asked to end
            pod.process.wait(60)
        finally:
            pod.kill()

    @contextlib.contextmanager
    def job(self, parent: str, name: str, *, gpus: Sequence[int]) -> Iterator[Pod]:
        with control_group(f"{parent}/{name}", gpus=gpus) as groups:
            pod = self._pod(self._job, name, groups=groups, gpus=gpus, command=TRAINS)
            try:
                yield pod
            finally:
                pod.kill()
                assert eventually(lambda: not any(group.read_text() for group in groups))

    def _pod(
        self,
        spec: Mapping[str, Any],
        name: str,
        *,
        groups: Sequence[Path] = (),
        gpus: Sequence[int] = (0, 1),
        command: Sequence[str] | None = None,
    ) -> Pod:
        """Start a pod in these control groups, with the manifest's command unless there is another one."""
        [container] = spec["containers"]
        own = {one["name"]: one["value"] for one in container.get("env", ())}
        words = ["env", "-i", *(f"{key}={value}" for key, value in {**self._image, **own}.items())]
        words += [*_rights(spec, container), *(command or container["command"])]
        inside = "\n".join([*_files(spec, container, self.root, gpus), f"exec {shlex.join(words)}"])
        outside = [*(f"echo $$ > {shlex.quote(str(group))}" for group in groups)]
        pid = [] if spec.get("hostPID") else ["--pid", "--fork", "--kill-child", "--mount-proc"]
        namespaces = ["unshare", "--mount", "--uts", "--ipc", "--net", *pid]
        outside.append(f"exec {shlex.join([*namespaces, 'sh', '-ec', inside])}")
        return Pod(["sh", "-ec", "\n".join(outside)], self._folder / name)


@pytest.fixture
def cluster(node: FakeNvml, tmp_path: Path) -> Cluster:
    return Cluster(node, tmp_path)


@pytest.fixture
def pods() -> Iterator[str]:
    """The parent of all pods' control groups, as the kubelet makes it."""
    name = "kubepods.slice"
    made = [kind / name for kind in KINDS if not (kind / name).exists()]
    for folder in made:
        folder.mkdir()
    yield f"/{name}"
    for folder in made:
        folder.rmdir()


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


def test_a_killed_service_is_followed_by_one_with_its_journal(
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
