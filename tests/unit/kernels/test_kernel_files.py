import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_ds.device.clock_change import DEFAULT_PAIR, ClockPair
from perseus_ds.errors import IncompleteProfileError, ProfileError
from perseus_ds.kernels.profile import (
    KernelPoint,
    KernelProfile,
    LeftOut,
    MeasuredKernel,
    read_kernel_profile,
    write_kernel_profile,
)
from perseus_ds.kernels.trace import KernelClass, KernelTrace, LaunchSequence, read_trace, write_trace
from perseus_ds.schedule import Kind

pytestmark = pytest.mark.thorough

GEMM = KernelClass("gemm", ((8, 8), (8, 8)), "float16")


words = st.text(st.characters(codec="ascii", min_codepoint=33), min_size=1, max_size=8)
positive = st.floats(1e-9, 1e9)
shapes = st.lists(st.lists(st.integers(0, 9999), min_size=1, max_size=4).map(tuple), max_size=3).map(tuple)
kernels = st.builds(KernelClass, words, shapes, words, st.just("") | words)
clocks = st.none() | st.integers(1, 9999)
pairs = st.lists(st.builds(ClockPair, clocks, clocks), max_size=3, unique=True)


@st.composite
def points(draw: st.DrawFn) -> tuple[KernelPoint, ...]:
    chosen = dict.fromkeys([DEFAULT_PAIR, *draw(pairs)])
    numbers = [*(positive,) * 4, st.integers(1, 99)]
    return tuple(KernelPoint(pair, *map(draw, numbers)) for pair in chosen)


@given(st.dictionaries(kernels, st.tuples(points(), points() | st.just(())), min_size=1, max_size=4))
def test_a_profile_comes_back(
    tmp_path_factory: pytest.TempPathFactory, measured: dict[KernelClass, tuple[tuple[KernelPoint, ...], ...]]
) -> None:
    path = tmp_path_factory.mktemp("profile") / "k.json"
    profile = KernelProfile(tuple(MeasuredKernel(kernel, *both) for kernel, both in measured.items()))
    write_kernel_profile(profile, path)
    assert read_kernel_profile(path) == profile


def test_a_profile_keeps_what_is_not_a_point(tmp_path: Path) -> None:
    profile = KernelProfile(
        (MeasuredKernel(GEMM, (KernelPoint(DEFAULT_PAIR, 1.0, 2.0),)),),
        left_out=(LeftOut(KernelClass("odd"), "no such operator"),),
        why_not_memory="one memory clock only",
        fingerprint={"gpu": "A100"},
    )
    write_kernel_profile(profile, tmp_path / "k.json")
    assert read_kernel_profile(tmp_path / "k.json") == profile


def test_a_trace_comes_back(tmp_path: Path) -> None:
    trace = KernelTrace(
        (GEMM, KernelClass("gelu", ((8, 32),), "float16")),
        (
            LaunchSequence(0, Kind.FORWARD, (0, 1, 0), (1e-3, 1e-4, 1e-3), times=4),
            LaunchSequence(1, Kind.BACKWARD, (1,), deviating=2),
        ),
        overhead_pct=12.5,
        iterations=3,
        fingerprint={"model": "toy"},
    )
    write_trace(trace, tmp_path / "t.json")
    assert read_trace(tmp_path / "t.json") == trace
    assert trace.launches == 13


def test_a_profile_without_the_default_pair_or_with_anything_twice_is_refused() -> None:
    point = KernelPoint(DEFAULT_PAIR, 1.0, 1.0)
    with pytest.raises(IncompleteProfileError, match="default"):
        MeasuredKernel(GEMM, (KernelPoint(ClockPair(5001, None), 1.0, 1.0),))
    with pytest.raises(ProfileError, match="twice"):
        MeasuredKernel(GEMM, (point, point))
    with pytest.raises(ProfileError, match="twice"):
        KernelProfile((MeasuredKernel(GEMM, (point,)),) * 2)


def test_damage_is_named_by_its_key(tmp_path: Path) -> None:
    file = tmp_path / "k.json"
    write_kernel_profile(KernelProfile((MeasuredKernel(GEMM, (KernelPoint(DEFAULT_PAIR, 1.0, 2.0),)),)), file)
    content = json.loads(file.read_text())
    del content["measured"][0]["first"][0]["energy_j"]
    file.write_text(json.dumps(content))
    with pytest.raises(ProfileError, match=r"k\.json: measured\.0\.first\.0\.energy_j"):
        read_kernel_profile(file)


def test_a_trace_without_kernels_is_refused() -> None:
    with pytest.raises(ProfileError, match="forward"):
        LaunchSequence(3, Kind.FORWARD, ())
    with pytest.raises(ProfileError, match="kernels"):
        KernelTrace((), ())
    with pytest.raises(ProfileError, match="class"):
        KernelTrace((GEMM,), (LaunchSequence(0, Kind.FORWARD, (1,)),))
