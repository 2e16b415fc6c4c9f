"""The walk in the page: a canvas and a slider, drawn by a few lines of script from packed numbers."""

from __future__ import annotations

import base64
import json

import numpy as np
from numpy.typing import NDArray

from perseus_ds.report.walk.gif import power_steps, walk_colours
from perseus_ds.report.walk.walk import Walk

_FINE = 65_535


def walk_html(walk: Walk) -> str:
    """Return slider, canvas, data and script.

    Size: five bytes per box and frame, a third more in base64.
    """
    longest_s = float(walk.time_s.max())
    colours = walk_colours(walk)
    data = {
        "lanes": walk.lane_names,
        "lane": _packed(walk.lane),
        "backward": _packed(walk.backward),
        "start": _packed(_fine(walk.start_s / longest_s)),
        "duration": _packed(_fine(walk.duration_s / longest_s)),
        "power": _packed(power_steps(walk)),
        "colours": colours[:-1],
        "waiting": colours[-1],
        "time": [round(float(t), 6) for t in walk.time_s],
        "energy": [round(float(e), 3) for e in walk.energy_j],
        "names": list(walk.names),
    }
    last = walk.frames - 1
    return (
        f'<div class="walk"><label>T* <input type="range" id="walk-at" min="0" max="{last}"'
        f' value="{max(0, last - 1)}" aria-label="plan"> full speed, then default clocks</label>'
        '<p id="walk-words" class="faint"></p><div class="picture"><canvas id="walk" height="360" role="img"'
        ' aria-label="the pipeline at the chosen plan"></canvas></div></div>\n'
        f'<script type="application/json" id="walk-data">{json.dumps(data, separators=(",", ":"))}</script>\n'
        f"<script>{_SCRIPT}</script>"
    )


def _fine(share: NDArray[np.float64]) -> NDArray[np.uint16]:
    return np.rint(_FINE * np.clip(share, 0.0, 1.0)).astype("<u2")


def _packed(values: NDArray[np.uint8] | NDArray[np.uint16]) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


_SCRIPT = """
(() => {
  const walk = JSON.parse(document.getElementById("walk-data").textContent);
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const lane = bytes(walk.lane), backward = bytes(walk.backward), power = bytes(walk.power);
  const start = new Uint16Array(bytes(walk.start).buffer);
  const duration = new Uint16Array(bytes(walk.duration).buffer);
  const canvas = document.getElementById("walk"), at = document.getElementById("walk-at");
  const words = document.getElementById("walk-words"), boxes = lane.length;
  const longest = Math.max(...walk.time), baseline = walk.time.length - 1;
  function show() {
    const frame = +at.value, ratio = devicePixelRatio || 1;
    canvas.width = canvas.clientWidth * ratio; canvas.height = 360 * ratio;
    const pen = canvas.getContext("2d"); pen.scale(ratio, ratio);
    const left = 60, width = canvas.clientWidth - left - 10, tall = 350 / walk.lanes.length;
    const dark = "#1c2430";
    pen.font = "11px system-ui, sans-serif";
    const end = left + width * walk.time[frame] / longest;
    for (let row = 0; row < walk.lanes.length; row++) {
      const floor = (row + 0.96) * tall;
      pen.fillStyle = walk.waiting; pen.fillRect(left, floor - 0.2 * tall, end - left, 0.2 * tall);
      pen.fillStyle = dark; pen.fillText(walk.lanes[row], 4, floor - 0.3 * tall);
    }
    for (let box = 0; box < boxes; box++) {
      const place = frame * boxes + box, floor = (lane[box] + 0.96) * tall;
      const high = (backward[box] ? 0.86 : 0.62) * tall;
      const x = left + width * start[place] / 65535, wide = width * duration[place] / 65535;
      pen.fillStyle = walk.colours[power[place]];
      pen.fillRect(x, floor - high, Math.max(0.6, wide - (wide > 3 ? 0.8 : 0)), high);
    }
    pen.fillStyle = dark; pen.fillRect(end, 0, 1.6, 352);
    const saved = 100 * (1 - walk.energy[frame] / walk.energy[baseline]);
    const longer = 100 * (walk.time[frame] / walk.time[baseline] - 1);
    words.textContent = walk.names[frame] + ": " + walk.time[frame].toPrecision(4) + " s ("
      + (longer >= 0 ? "+" : "") + longer.toFixed(1) + " % time), " + saved.toFixed(1) + " % energy saved";
  }
  at.addEventListener("input", show); addEventListener("resize", show); show();
})();
"""
