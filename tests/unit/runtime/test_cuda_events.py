"""The real seam on a machine without a GPU: torch has the names, and its classes get theirs back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
import torch

from perseus_ds.runtime.cuda_events import RELAXED, Captures, TorchCuda, relax_capture_mode
from perseus_ds.runtime.threads import HostThreads


def test_torchs_class_of_graphs_is_watched_and_given_back() -> None:
    kind = torch.cuda.CUDAGraph
    own = kind.capture_begin, kind.capture_end
    cuda = cast("TorchCuda", SimpleNamespace(graph_type=kind))
    first, second = Captures(cuda, HostThreads()), Captures(cuda, HostThreads())
    assert kind.capture_begin is not own[0]
    for captures in (second, first):
        captures.remove()
        captures.remove()
    assert (kind.capture_begin, kind.capture_end) == own


def test_a_capture_that_does_not_begin_is_not_under_way() -> None:
    class Graph:
        def capture_begin(self) -> None:
            raise RuntimeError("out of memory")

        def capture_end(self) -> None:
            raise RuntimeError("broken")

    captures = Captures(cast("TorchCuda", SimpleNamespace(graph_type=Graph)), HostThreads())
    for act in (Graph().capture_begin, Graph().capture_end):
        with pytest.raises(RuntimeError):
            act()
        assert captures.under_way == 0
    assert captures.begun == 1


def test_without_a_runtime_library_no_mode_is_exchanged_and_nothing_raises() -> None:
    cuda = TorchCuda()
    with relax_capture_mode(cuda):
        assert cuda.exchange_capture_mode(RELAXED) == -1


@pytest.mark.parametrize("name", ["set_device", "current_device", "is_current_stream_capturing", "Event"])
def test_torch_has_every_name_that_we_call(name: str) -> None:
    assert callable(getattr(torch.cuda, name))
