"""The timelines as inline SVG: the same boxes as the picture, each telling its numbers under the pointer."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from perseus_ds.report import theme
from perseus_ds.report.number import short
from perseus_ds.report.timeline.lanes import (
    STRIPE_HEIGHT,
    WAITING_HEIGHT,
    Lane,
    energy_j,
    height,
    lanes,
    panel_name,
)
from perseus_ds.report.timeline.power_scale import PowerScale, power_scale
from perseus_ds.run_directory import RecordedIteration, Span
from perseus_ds.schedule import Instruction

_LEFT, _WIDTH, _LANE, _HEAD, _FOOT, _AXIS = 70, 1130, 34, 26, 14, 22
_DIGIT = 6.5
_LEAST_TICKS = 5
_UNDERLINE = 0.09


@dataclass(frozen=True, slots=True)
class _Scale:
    """How seconds become user units and watts become colours."""

    per_second: float
    power: PowerScale
    blocking_w: float

    def box(self, start_s: float, duration_s: float, floor: float, tall: float) -> str:
        """Return the geometry of a box that stands on ``floor``."""
        x, width = _LEFT + start_s * self.per_second, duration_s * self.per_second
        top, tall = floor - tall * _LANE, tall * _LANE
        return f'x="{x:.2f}" y="{top:.1f}" width="{width:.2f}" height="{tall:.1f}"'


def timelines_svg(
    timelines: Sequence[RecordedIteration], *, critical: Mapping[str, Collection[Instruction]] | None = None
) -> str:
    """Draw one panel per timeline, all to one time scale and one power scale.

    ``critical`` is each one's longest path, by its name: a dark foot under its boxes.
    """
    end_s, power = max(timeline.iteration_time_s for timeline in timelines), power_scale(timelines)
    parts, top = [], 0.0
    for timeline in timelines:
        scale = _Scale(_WIDTH / end_s, power, timeline.blocking_power_w)
        on_path = frozenset((critical or {}).get(timeline.name, ()))
        panel, tall = _panel(timeline, scale, top, on_path)
        parts.append(panel)
        top += tall
    parts.append(_axis(end_s, top))
    top += _AXIS
    size = f'viewBox="0 0 {_LEFT + _WIDTH + 10} {top:.0f}"'
    return f'<svg class="timeline" {size} role="img" aria-label="timelines">{"".join(parts)}</svg>'


def _panel(
    timeline: RecordedIteration, scale: _Scale, top: float, on_path: frozenset[Instruction]
) -> tuple[str, float]:
    rows = lanes(timeline)
    floor = top + _HEAD + _LANE * len(rows)
    end = _LEFT + timeline.iteration_time_s * scale.per_second
    summary = f"{short(timeline.iteration_time_s)} s, {short(energy_j(timeline))} J"
    parts = [
        f'<text x="{_LEFT}" y="{top + 17:.0f}" class="name">{escape(panel_name(timeline))}</text>',
        f'<text x="{end:.1f}" y="{top + 17:.0f}" text-anchor="end">{summary}</text>',
    ]
    for index, lane in enumerate(rows):
        base = top + _HEAD + _LANE * (index + 0.95)
        parts.extend(_lane(lane, scale, base))
        for span in lane.spans:
            if span.instruction in on_path:
                box = scale.box(span.start_s, span.duration_s, base + _UNDERLINE * _LANE, _UNDERLINE)
                parts.append(f'<rect {box} class="critical"/>')
    parts.append(f'<path d="M{end:.1f} {top + _HEAD:.0f}V{floor:.0f}" class="end"/>')
    return "".join(parts), floor + _FOOT - top


def _axis(end_s: float, top: float) -> str:
    """Draw round times below the panels."""
    step_s = 10.0 ** math.floor(math.log10(end_s))
    while end_s / step_s < _LEAST_TICKS:
        step_s /= 2.0
    parts = []
    for tick in range(int(end_s / step_s) + 1):
        x = _LEFT + _WIDTH * tick * step_s / end_s
        parts.append(f'<path d="M{x:.1f} {top - 6:.0f}v5" class="tick"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{top + 11:.0f}" text-anchor="middle">{tick * step_s:.4g} s</text>'
        )
    return "".join(parts)


def _lane(lane: Lane, scale: _Scale, floor: float) -> Iterator[str]:
    yield f'<text x="{_LEFT - 8}" y="{floor - 8:.1f}" text-anchor="end">{lane.name}</text>'
    waiting = scale.power.colour(scale.blocking_w)
    for gap in lane.gaps:
        note = f"{lane.name} waits {_ms(gap.duration_s)} at {scale.blocking_w:.0f} W"
        box = scale.box(gap.start_s, gap.duration_s, floor, WAITING_HEIGHT)
        yield f'<rect {box} fill="{waiting}" data-t="{note}"/>'
    for span in lane.spans:
        yield _span(span, scale, floor)
        if len(lane.stages) > 1 and span.instruction.kind.is_computation:
            box = scale.box(span.start_s, span.duration_s, floor, STRIPE_HEIGHT)
            yield f'<rect {box} fill="{theme.CHUNKS[lane.chunk_of(span) % len(theme.CHUNKS)]}"/>'


def _span(span: Span, scale: _Scale, floor: float) -> str:
    kind, power_w = span.instruction.kind, scale.blocking_w if span.power_w is None else span.power_w
    box = scale.box(span.start_s, span.duration_s, floor, height(kind))
    rect = f'<rect {box} class="work" fill="{scale.power.colour(power_w)}" data-t="{escape(_note(span))}"/>'
    text = str(span.instruction.microbatch)
    width = span.duration_s * scale.per_second
    if not kind.is_computation or width < _DIGIT * len(text) + 3:
        return rect
    middle_x = _LEFT + span.start_s * scale.per_second + width / 2
    middle_y = floor - height(kind) * _LANE / 2 + 4
    ink = scale.power.ink(power_w)
    return f'{rect}<text x="{middle_x:.1f}" y="{middle_y:.1f}" class="number" fill="{ink}">{text}</text>'


def _note(span: Span) -> str:
    words = [f"{span.instruction}: {span.instruction.kind.words} of microbatch {span.instruction.microbatch}"]
    if span.clock_mhz is not None:
        words.append(f"{span.clock_mhz} MHz")
    if span.power_w is not None:
        words.append(f"{span.power_w:.0f} W, {span.power_w * span.duration_s:.3g} J")
    return ", ".join([*words, f"{_ms(span.duration_s)} from {span.start_s:.4g} s"])


def _ms(duration_s: float) -> str:
    return f"{1e3 * duration_s:.4g} ms"
