"""A folder's mounts show whether it outlives a container."""

from pathlib import Path

import pytest

from perseus_ds.device.guard.container import (
    in_nodes_pid_namespace,
    journal_is_on_the_node,
    why_unguarded,
)

DOCKER = """\
500 400 0:52 / / rw,relatime - overlay overlay rw,lowerdir=/var/lib/docker
501 500 0:55 / /proc rw,nosuid - proc proc rw
502 500 0:56 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k
503 500 0:57 / /journal rw,relatime - tmpfs tmpfs rw
504 500 0:24 /perseus_ds /run/perseus_ds rw,nosuid - tmpfs tmpfs rw
505 500 259:1 /srv/a\\040b /host rw,relatime - ext4 /dev/nvme0n1p1 rw
"""
KUBERNETES = """\
500 400 0:52 / / rw,relatime - {root} rw
501 500 259:1 /var/lib/kubelet/pods/1f/etc-hosts /etc/hosts rw,relatime - ext4 /dev/nvme0n1p1 rw
502 500 259:1 /var/lib/kubelet/pods/1f/volumes/kubernetes.io~empty-dir/j /journal rw - ext4 /dev/nvme0n1p1 rw
503 500 259:1 /srv/guard /node rw,relatime - ext4 /dev/nvme0n1p1 rw
"""
ZFS, OVERLAY = KUBERNETES.format(root="zfs pool/k8s/12"), KUBERNETES.format(root="overlay overlay")
BTRFS = """\
500 400 0:52 /@/var/lib/docker/btrfs/subvolumes/ab / rw,relatime - btrfs /dev/nvme0n1p1 rw
501 500 259:1 /var/lib/docker/volumes/guards/_data /named rw,relatime - ext4 /dev/nvme0n1p1 rw
502 500 259:1 /var/lib/docker/volumes/{}/_data /nameless rw,relatime - ext4 /dev/nvme0n1p1 rw
""".format("0f" * 32)
PLAIN = "21 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n22 21 0:20 / /tmp rw - tmpfs tmpfs rw\n"


@pytest.mark.parametrize(
    ("mounts", "folder", "outlives"),
    [
        (DOCKER, "/run/perseus_ds", True),
        (DOCKER, "/host/guard", True),
        (DOCKER, "/journal", False),
        (DOCKER, "/tmp/guard", False),
        (DOCKER, "/hostile", False),
        (OVERLAY, "/journal", False),
        (OVERLAY, "/node", True),
        (ZFS, "/var/guard", False),
        (ZFS, "/journal", False),
        (ZFS, "/node/x", True),
        (BTRFS, "/var/guard", False),
        (BTRFS, "/nameless", False),
        (BTRFS, "/named", True),
        (PLAIN, "/tmp/guard", True),
        (PLAIN, "/var/guard", True),
        ("", "/var/guard", True),
    ],
)
def test_a_folder_counts_where_it_is_not_the_containers_own(
    monkeypatch: pytest.MonkeyPatch, mounts: str, folder: str, *, outlives: bool
) -> None:
    monkeypatch.setenv("PERSEUS_GUARD_DIR", folder)
    assert journal_is_on_the_node(mounts) == outlives


def test_a_folder_that_nobody_named_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERSEUS_GUARD_DIR", raising=False)
    assert not journal_is_on_the_node(DOCKER)


def test_a_named_folder_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSEUS_GUARD_DIR", str(tmp_path))
    if journal_is_on_the_node():
        assert why_unguarded() is None


def test_where_nothing_can_be_seen_nothing_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_proc(path: Path) -> Path:
        raise OSError(2, "No such file", str(path))

    monkeypatch.setattr(Path, "readlink", no_proc)
    monkeypatch.delenv("PERSEUS_GUARD_DIR", raising=False)
    assert not in_nodes_pid_namespace()
    assert "killed together with its job" in str(why_unguarded())


def test_in_the_nodes_own_namespace_a_guard_outlives_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "readlink", lambda _: Path("pid:[4026531836]"))
    monkeypatch.delenv("PERSEUS_GUARD_DIR", raising=False)
    assert in_nodes_pid_namespace()
    assert why_unguarded() is None
    monkeypatch.setattr(Path, "readlink", lambda _: Path("pid:[4026532777]"))
    assert not in_nodes_pid_namespace()
