"""Pods made of namespaces and control groups, with volumes, variables and rights as a manifest names them.

Images are this machine's files with a /run, /dev and /sys/fs/cgroup of their own. Device files and the rules
of version 1's device controller stand for the device plugin.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

CGROUPS = Path("/sys/fs/cgroup")
KINDS = (CGROUPS / "devices", CGROUPS / "unified")
DEVICES = {"null": (1, 3), "zero": (1, 5), "urandom": (1, 9), "nvidia0": (1, 7), "nvidia1": (1, 8)}
"""Numbers of drivers that every kernel has: two stand for GPUs, /dev/full and /dev/random by right."""


def missing() -> str | None:
    """Say why no pod can be made here."""
    if os.geteuid() != 0:
        return "namespaces and control groups of pods need root"
    if not all((kind / "cgroup.procs").exists() for kind in KINDS):
        return "needs version 1's device controller and version 2 of control groups"
    tried = subprocess.run(
        ["unshare", "--pid", "--net", "--fork", "--mount-proc", "setpriv", "--no-new-privs", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    return None if tried.returncode == 0 else f"unshare: {tried.stderr.strip()}"


@contextlib.contextmanager
def slice_of_pods() -> Iterator[str]:
    """The parent of all pods' control groups, as the kubelet makes it; yields its path."""
    name = "kubepods.slice"
    made = [kind / name for kind in KINDS if not (kind / name).exists()]
    for folder in made:
        folder.mkdir()
    try:
        yield f"/{name}"
    finally:
        for folder in made:
            folder.rmdir()


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
    """The first container of a pod; ``root`` is where the node's own /run lies."""

    def __init__(
        self,
        spec: Mapping[str, Any],
        root: Path,
        *,
        log: Path,
        image: Mapping[str, str],
        groups: Sequence[Path] = (),
        gpus: Sequence[int] = (0, 1),
        command: Sequence[str] | None = None,
    ) -> None:
        """``image`` are the variables that image and container runtime bring along."""
        [container] = spec["containers"]
        own = {one["name"]: one["value"] for one in container.get("env", ())}
        words = ["env", "-i", *(f"{key}={value}" for key, value in {**image, **own}.items())]
        words += [*_rights(spec, container), *(command or container["command"])]
        inside = "\n".join([*_files(spec, container, root, gpus), f"exec {shlex.join(words)}"])
        outside = [*(f"echo $$ > {shlex.quote(str(group))}" for group in groups)]
        outside.append(f"exec {shlex.join(['unshare', *_namespaces(spec), 'sh', '-ec', inside])}")
        self._log = log
        with log.open("w") as file:
            self.process = subprocess.Popen(
                ["sh", "-ec", "\n".join(outside)], stdout=file, stderr=file, start_new_session=True
            )

    @property
    def said(self) -> str:
        return self._log.read_text()

    def kill(self) -> None:
        """All of it at once, as the kubelet does in the end."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)

    def stop(self) -> None:
        """The way that a pod is asked to end."""
        self.process.terminate()
        self.process.wait(60)


def _namespaces(spec: Mapping[str, Any]) -> list[str]:
    pid = [] if spec.get("hostPID") else ["--pid", "--fork", "--kill-child", "--mount-proc"]
    return ["--mount", "--uts", "--ipc", "--net", *pid]


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


def image(node: Mapping[str, str]) -> dict[str, str]:
    """Variables of an image that has the package, on a node with this driver."""
    driver = {key: node[key] for key in ("FAKE_NVML_STATE", "LD_LIBRARY_PATH")}
    return {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": "/tmp", **driver}
