"""The walk as an animated GIF: the pipeline above, the frontier with a moving point below."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import numpy as np
from matplotlib import font_manager
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from perseus_ds.report import theme
from perseus_ds.report.number import signed
from perseus_ds.report.timeline.power_scale import PowerScale
from perseus_ds.report.walk.walk import Walk
from perseus_ds.run_directory import write_whole

_WIDTH, _LANES_HEIGHT, _CURVE_HEIGHT, _LEFT, _TOP = 960, 300, 190, 70, 64
_STEPS = 255
_LEAST_OUTLINED = 3.0  # pixels
_MS, _MS_LAST = 160, 1600
_INK, _FAINT = theme.INK, theme.FAINT_INK


def write_gif(walk: Walk, path: Path) -> Path:
    """Draw every frame; the one at full speed and the baseline after it stand longer."""
    colours = walk_colours(walk)
    step = power_steps(walk)
    frames = [_frame(walk, number, step[number], colours) for number in range(walk.frames)]
    durations = [_MS] * (walk.frames - 2) + [_MS_LAST, _MS_LAST]
    first, *others = [frame.quantize(128) for frame in frames]
    drawn = io.BytesIO()
    first.save(drawn, "GIF", save_all=True, append_images=others, duration=durations[: len(frames)], loop=0)
    write_whole(path, drawn.getvalue())
    return path


def walk_colours(walk: Walk) -> list[str]:
    """One scale of 256 steps for all frames; the last entry is the colour of waiting."""
    scale = _scale(walk)
    span_w = scale.highest_w - scale.lowest_w
    steps = [scale.colour(scale.lowest_w + step / _STEPS * span_w) for step in range(_STEPS + 1)]
    return [*steps, scale.colour(walk.blocking_power_w)]


def power_steps(walk: Walk) -> NDArray[np.uint8]:
    """Every box's place on that scale.

    Shape: [frames, boxes].
    """
    scale = _scale(walk)
    share = (walk.power_w - scale.lowest_w) / (scale.highest_w - scale.lowest_w)
    return np.rint(_STEPS * np.clip(share, 0.0, 1.0)).astype(np.uint8)


def _scale(walk: Walk) -> PowerScale:
    low, high = min(walk.blocking_power_w, float(walk.power_w.min())), float(walk.power_w.max())
    return PowerScale(0.8 * low, high + 0.02 * (high - low) + 1e-9)


def _frame(walk: Walk, number: int, step: NDArray[np.uint8], colours: list[str]) -> Image.Image:
    image = Image.new("RGB", (_WIDTH, _TOP + _LANES_HEIGHT + _CURVE_HEIGHT), "white")
    draw = ImageDraw.Draw(image)
    saved = 100.0 * (1.0 - walk.energy_j[number] / walk.energy_j[-1])
    longer = 100.0 * (walk.time_s[number] / walk.time_s[-1] - 1.0)
    draw.text((_LEFT, 12), "From the slowest plan to full speed", _INK, _font(20))
    words = f"{walk.time_s[number]:.3f} s ({signed(longer, decimals=1)} % time), {saved:.1f} % saved"
    draw.text((_LEFT, 38), f"{walk.names[number]}: {words}", _FAINT, _font(14))
    _lanes(draw, walk, number, step.tolist(), colours)
    _curve(draw, walk, number)
    return image


def _lanes(draw: ImageDraw.ImageDraw, walk: Walk, number: int, step: list[int], colours: list[str]) -> None:
    per_second = (_WIDTH - _LEFT - 20) / float(walk.time_s.max())
    tall = (_LANES_HEIGHT - 20) / walk.lanes
    end = _LEFT + walk.time_s[number] * per_second
    for lane in range(walk.lanes):
        floor = _TOP + (lane + 0.95) * tall
        draw.rectangle((_LEFT, floor - 0.2 * tall, end, floor), colours[-1])
        draw.text((8, floor - 0.7 * tall), walk.lane_names[lane], _FAINT, _font(11))
    lefts = (_LEFT + walk.start_s[number] * per_second).tolist()
    rights = (_LEFT + (walk.start_s[number] + walk.duration_s[number]) * per_second).tolist()
    boxes = zip(walk.lane.tolist(), walk.backward.tolist(), lefts, rights, step, strict=True)
    for lane, backward, left, right, power in boxes:
        floor = _TOP + (lane + 0.95) * tall
        high = (0.86 if backward else 0.62) * tall
        outline = "white" if right - left > _LEAST_OUTLINED else None
        draw.rectangle((left, floor - high, right, floor), colours[power], outline)
    draw.line((end, _TOP, end, _TOP + _LANES_HEIGHT - 16), _INK, 2)


def _curve(draw: ImageDraw.ImageDraw, walk: Walk, number: int) -> None:
    top, floor = _TOP + _LANES_HEIGHT + 12, _TOP + _LANES_HEIGHT + _CURVE_HEIGHT - 34
    time_s, energy_j = walk.time_s, walk.energy_j
    xs = _LEFT + (time_s - time_s.min()) / max(np.ptp(time_s), 1e-9) * (_WIDTH - _LEFT - 60)
    ys = floor - (energy_j - energy_j.min()) / max(np.ptp(energy_j), 1e-9) * (floor - top)
    draw.line([(_LEFT - 6, top), (_LEFT - 6, floor + 6), (_WIDTH - 30, floor + 6)], _FAINT)
    draw.line(list(zip(xs[:-1].tolist(), ys[:-1].tolist(), strict=True)), theme.PERSEUS, 2)
    draw.rectangle((xs[-1] - 5, ys[-1] - 5, xs[-1] + 5, ys[-1] + 5), theme.BASELINE)
    draw.text((xs[-1] + 10, ys[-1] - 4), "all clocks at maximum", _FAINT, _font(12))
    draw.ellipse((xs[number] - 7, ys[number] - 7, xs[number] + 7, ys[number] + 7), theme.PERSEUS, "white")
    draw.text((_WIDTH - 190, floor + 10), "iteration time", _FAINT, _font(12))
    draw.text((8, top), "energy", _FAINT, _font(12))


@cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(font_manager.findfont("DejaVu Sans"), size)
