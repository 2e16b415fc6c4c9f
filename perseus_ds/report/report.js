"use strict";
/* The figures of the page, drawn as SVG at the width that there is, from the page's own numbers.
   A figure is a function from its width to {height, svg, count, find, place, text, step}: `find` maps a point to an
   item's number (or -1), `place` gives its box, `text` what is said of it, `step` its neighbour in a direction. */
(async () => {
  const element = document.getElementById("data");
  if (!element) return;
  const data = JSON.parse(element.textContent);
  const KINDS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f4: Float32Array };
  const arrays = async (value) => {
    if (Array.isArray(value)) return Promise.all(value.map(arrays));
    if (!value || typeof value !== "object") return value;
    if ("packed" in value) {
      const bytes = Uint8Array.from(atob(value.packed), (c) => c.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
      return new KINDS[value.as](await new Response(stream).arrayBuffer());
    }
    const entries = Object.entries(value).map(async ([key, part]) => [key, await arrays(part)]);
    return Object.fromEntries(await Promise.all(entries));
  };
  const found = await arrays(data);
  const escape = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
  const fixed = (x) => Math.round(10 * x) / 10;
  const short = (x, digits = 4) => (x === 0 ? "0" : x.toLocaleString("en", {
    maximumFractionDigits: Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(x)))), useGrouping: Math.abs(x) >= 1e5 }));
  const signed = (x, digits) => (x >= -0.5 * 10 ** -digits ? "+" : "\u2212") + Math.abs(x).toFixed(digits);
  const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
  const label = (x, y, text, more = "") => `<text x="${fixed(x)}" y="${fixed(y)}" ${more}>${escape(text)}</text>`;
  const line = (points) => points.map(([x, y], n) => `${n ? "L" : "M"}${fixed(x)} ${fixed(y)}`).join("");
  const redraws = [];
  const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1],
    PageUp: [-10, 0], PageDown: [10, 0], Home: [-Infinity, 0], End: [Infinity, 0] };

  function plot(id, draw, choose) {
    const box = document.getElementById(id);
    if (!box) return () => {};
    const canvas = document.createElement("div"), tip = document.createElement("div");
    tip.className = "tip"; tip.setAttribute("role", "status");
    box.append(canvas, tip);
    let drawn = null, at = -1, width = 0;
    const show = (item) => {
      at = item;
      const cursor = canvas.querySelector(".cursor");
      if (item < 0) { cursor.setAttribute("d", ""); tip.style.visibility = "hidden"; return; }
      const [x, y, w, h] = drawn.place(item), ratio = box.clientWidth / width;
      cursor.setAttribute("d", `M${fixed(x - 1)} ${fixed(y - 1)}h${fixed(w + 2)}v${fixed(h + 2)}h${fixed(-w - 2)}z`);
      tip.textContent = drawn.text(item); tip.style.visibility = "visible";
      const below = (y + h) * ratio + 10, above = y * ratio - tip.offsetHeight - 10;
      tip.style.left = clamp((x + w / 2) * ratio - tip.offsetWidth / 2, 0, box.clientWidth - tip.offsetWidth) + "px";
      tip.style.top = (above > 0 ? above : below) + "px";
    };
    const redraw = () => {
      width = Math.max(280, Math.floor(box.clientWidth));
      drawn = draw(width);
      canvas.innerHTML = `<svg viewBox="0 0 ${width} ${fixed(drawn.height)}" aria-hidden="true">${drawn.svg}<path class="cursor"/></svg>`;
      if (at >= drawn.count || document.activeElement !== box) at = -1;
      show(at);
    };
    const under = (event) => {
      const frame = canvas.getBoundingClientRect(), ratio = width / frame.width;
      return drawn.find((event.clientX - frame.left) * ratio, (event.clientY - frame.top) * ratio);
    };
    box.addEventListener("pointermove", (event) => show(under(event)));
    box.addEventListener("click", (event) => { const item = under(event); show(item); if (choose && item >= 0) choose(item); });
    for (const name of ["pointerleave", "blur"]) box.addEventListener(name, () => show(-1));
    box.addEventListener("keydown", (event) => {
      if (event.key === "Escape") return show(-1);
      if ((event.key === "Enter" || event.key === " ") && choose && at >= 0) { event.preventDefault(); return choose(at); }
      const move = MOVES[event.key];
      if (!move) return;
      event.preventDefault();
      show(at < 0 ? drawn.first || 0 : clamp(drawn.step(at, ...move), 0, drawn.count - 1));
      if (choose && drawn.follows) choose(at);
    });
    redraws.push(redraw);
    redraw();
    return redraw;
  }

  /* ---- axes ---- */
  function ticks(low, high, most) {
    const rough = (high - low) / Math.max(1, most) || 1, ten = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * ten).find((s) => s >= rough) || 10 * ten;
    const marks = [];
    for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; n++) marks.push(+(n * step).toPrecision(12));
    return marks;
  }
  function axes(frame, [x0, x1], [y0, y1], nameX, nameY) {
    const { left, top, right, bottom } = frame;
    const X = (x) => left + (right - left) * (x - x0) / (x1 - x0 || 1), Y = (y) => bottom - (bottom - top) * (y - y0) / (y1 - y0 || 1);
    let svg = "";
    for (const y of ticks(y0, y1, (bottom - top) / 26))
      svg += `<path class="grid" d="M${left} ${fixed(Y(y))}H${fixed(right)}"/>` + label(left - 6, Y(y) + 4, short(y), 'class="t" text-anchor="end"');
    for (const x of ticks(x0, x1, (right - left) / 62))
      svg += `<path class="axis" d="M${fixed(X(x))} ${bottom}v4"/>` + label(X(x), bottom + 17, short(x), 'class="t" text-anchor="middle"');
    svg += `<path class="axis" d="M${left} ${bottom}H${fixed(right)}"/>`;
    if (nameX) svg += label(right, bottom + 34, nameX, 'class="t" text-anchor="end"');
    if (nameY) svg += label(0, top - 10, nameY, 'class="t"');
    return { svg, X, Y };
  }
  const span = (values, room = 0.06) => {
    let low = Infinity, high = -Infinity;
    for (const v of values) { if (v < low) low = v; if (v > high) high = v; }
    const more = (high - low) * room || Math.abs(high) * 0.02 || 1;
    return [low - more, high + more];
  };
  const nearest = (places, x, y, reach = 40) => {
    let best = -1, least = reach * reach;
    places.forEach(([px, py], n) => { const d = (px - x) ** 2 + (py - y) ** 2; if (d < least) { least = d; best = n; } });
    return best;
  };
  const dot = ([x, y]) => [x - 6, y - 6, 12, 12];

  /* ---- one iteration, before and after ---- */
  const LOW = 0.2, tallness = (kind) => ({ F: 0.62, B: 0.86, I: 0.78, W: 0.5, FB: 0.86 }[kind.letter] || 0.34);
  const computationWords = (panel, n) => {
    const parts = [`stage ${panel.stage[n]}, ${found.timeline.kinds[panel.kind[n]].words} of microbatch ${panel.microbatch[n]}`];
    if (panel.mhz[n]) parts.push(`${panel.mhz[n]} MHz`);
    if (panel.power[n]) parts.push(`${short(panel.power[n], 3)} W, ${short(panel.power[n] * panel.duration[n], 3)} J`);
    parts.push(`${short(1e3 * panel.duration[n])} ms from ${short(panel.start[n])} s`);
    if (panel.critical[n]) parts.push("on the critical path");
    return parts.join(", ");
  };
  function timeline(width) {
    const { panels, low, high, kinds } = found.timeline;
    const left = 62, room = width - left - 4, end = Math.max(...panels.map((p) => p.end));
    const lane = clamp(300 / panels[0].lanes.length, 14, 32), per = room / end;
    const bin = (watts) => clamp(Math.floor(10 * (watts - low) / (high - low || 1)), 0, 9);
    const rows = [];
    let svg = "", y = 0, offset = 0;
    for (const panel of panels) {
      let critical = "";
      svg += label(left, y + 14, panel.name, 'class="b"') + label(left, y + 31, `${short(panel.end)} s, ${short(panel.joules, 5)} J`, 'class="t"');
      y += 40;
      const paths = Array.from({ length: 10 }, () => ""), numbers = [], first = rows.length;
      panel.lanes.forEach((name, n) => { svg += label(left - 8, y + (n + 0.75) * lane, name, 'class="t" text-anchor="end"');
        paths[bin(panel.waiting_w)] += `M${left} ${fixed(y + (n + 0.95) * lane)}h${fixed(panel.end * per)}v${fixed(-LOW * lane)}H${left}z`;
        rows.push({ panel, y: y + n * lane, items: [], offset }); });
      for (let n = 0; n < panel.start.length; n++) {
        const kind = kinds[panel.kind[n]], floor = y + (panel.lane[n] + 0.95) * lane, tall = tallness(kind) * lane;
        const x = left + panel.start[n] * per, w = panel.duration[n] * per, b = bin(panel.power[n] || panel.waiting_w);
        rows[first + panel.lane[n]].items.push(n);
        paths[b] += `M${fixed(x)} ${fixed(floor)}h${fixed(w)}v${fixed(-tall)}h${fixed(-w)}z`;
        if (panel.critical[n]) critical += `M${fixed(x)} ${fixed(floor)}h${fixed(w)}v2h${fixed(-w)}z`;
        if (kind.computes && w > 7.5 * String(panel.microbatch[n]).length + 3 && lane > 18)
          numbers.push(label(x + w / 2, floor - tall / 2 + 4, panel.microbatch[n], `text-anchor="middle" style="fill:var(--q${b});font-size:11px"`));
      }
      paths.forEach((d, b) => { if (d) svg += `<path class="${room / panel.start.length * panel.lanes.length > 7 ? "box" : ""}" d="${d}" style="fill:var(--p${b})"/>`; });
      svg += `<path class="crit" d="${critical}"/>` + numbers.join("");
      y += panel.lanes.length * lane;
      svg += `<path class="end" d="M${fixed(left + panel.end * per)} ${fixed(y - panel.lanes.length * lane)}V${fixed(y + 3)}"/>`;
      y += 14; offset += panel.start.length;
    }
    for (const t of ticks(0, end, room / 80)) svg += `<path class="axis" d="M${fixed(left + t * per)} ${fixed(y - 6)}v5"/>` + label(left + t * per, y + 12, short(t) + (t ? "" : " s"), 'class="t" text-anchor="middle"');
    const count = offset, of = (item) => { let n = item; for (const panel of panels) { if (n < panel.start.length) return [panel, n]; n -= panel.start.length; } };
    const rowOf = (item) => { const [panel, n] = of(item); return rows.find((row) => row.panel === panel && row.items.includes(n)); };
    const inRow = (row, t) => { for (const n of row.items) if (t >= row.panel.start[n] && t <= row.panel.start[n] + row.panel.duration[n]) return n; return -1; };
    return { height: y + 18, svg, count, first: 0,
      find: (x, py) => { const row = rows.find((r) => py >= r.y && py < r.y + lane); if (!row) return -1; const n = inRow(row, (x - left) / per); return n < 0 ? -1 : row.offset + n; },
      place: (item) => { const [panel, n] = of(item), row = rowOf(item), tall = tallness(kinds[panel.kind[n]]) * lane;
        return [left + panel.start[n] * per, row.y + 0.95 * lane - tall, panel.duration[n] * per, tall]; },
      text: (item) => computationWords(...of(item)),
      step: (item, dx, dy) => { const [panel, n] = of(item), row = rowOf(item);
        if (dx) return row.offset + row.items[clamp(row.items.indexOf(n) + dx, 0, row.items.length - 1)];
        const other = rows[clamp(rows.indexOf(row) + dy, 0, rows.length - 1)], middle = panel.start[n] + panel.duration[n] / 2;
        const close = other.items.reduce((a, b) => (Math.abs(other.panel.start[b] - middle) < Math.abs(other.panel.start[a] - middle) ? b : a), other.items[0]);
        return other.offset + close; } };
  }

  /* ---- the frontier; what is chosen here is what the clocks and the profile show ---- */
  let chosen = found.frontier ? found.frontier.chosen : 0;
  function frontier(width) {
    const f = found.frontier, marks = [f.baseline, ...f.measured];
    const frame = { left: 62, top: 30, right: width - 14, bottom: Math.max(270, Math.min(420, width * 0.5)) };
    const { svg: base, X, Y } = axes(frame, span([...f.time, ...marks.map((m) => m[0])]), span([...f.energy, ...f.bound, ...marks.map((m) => m[1])], 0.1), "iteration time, s", "energy of one pipeline per iteration, J");
    const places = f.time.map((t, n) => [X(t), Y(f.energy[n])]);
    let svg = base + `<path class="bound" d="${line(f.time.map((t, n) => [X(t), Y(f.bound[n])]))}"/><path class="after" d="${line(places)}"/>`;
    if (places.length < 160) svg += places.map(([x, y]) => `<circle class="dot-after" cx="${fixed(x)}" cy="${fixed(y)}" r="2.6"/>`).join("");
    const [bx, by] = [X(f.baseline[0]), Y(f.baseline[1])];
    svg += `<rect class="dot-before" x="${fixed(bx - 5)}" y="${fixed(by - 5)}" width="10" height="10"/>` + label(bx + 10, by + 4, "all clocks at maximum");
    for (const [n, m] of f.measured.entries()) svg += n ? `<circle class="ring" cx="${fixed(X(m[0]))}" cy="${fixed(Y(m[1]))}" r="7"/>` : `<path class="ring" d="M${fixed(X(m[0]) - 7)} ${fixed(Y(m[1]) - 7)}h14v14h-14z"/>`;
    const [cx, cy] = places[chosen];
    svg += `<path class="grid" d="M${fixed(cx)} ${frame.bottom}V${fixed(cy)}"/><circle class="dot-after" cx="${fixed(cx)}" cy="${fixed(cy)}" r="7"/>`;
    return { height: frame.bottom + 40, svg, count: places.length, first: chosen, follows: true,
      find: (x) => { let best = 0; places.forEach(([px], n) => { if (Math.abs(px - x) < Math.abs(places[best][0] - x)) best = n; }); return best; },
      place: (n) => dot(places[n]), text: (n) => planWords(n), step: (n, dx, dy) => n + dx - dy };
  }
  const planWords = (n) => { const f = found.frontier, [t, e] = f.baseline;
    return `${f.plan[n] ? `plan ${f.plan[n]} of ${f.plans}` : `the fastest of ${f.plans} plans`}: ${short(f.time[n], 5)} s (${signed(100 * (f.time[n] / t - 1), 2)} %), saves ${(100 * (1 - f.energy[n] / e)).toFixed(2)} %, `
      + `at most ${Math.max(0, 100 * (f.energy[n] / f.bound[n] - 1)).toFixed(3)} % above the proved bound`; };

  /* ---- clocks of the chosen plan ---- */
  let clocksOf = null;
  function clocksAt(n) { return clocksOf.subarray(n * clocksOf.row, (n + 1) * clocksOf.row); }
  function clocks(width) {
    const c = found.clocks, cells = clocksAt(chosen), left = 62, per = (width - left - 4) / c.microbatches;
    const tall = clamp(260 / c.rows.length, 12, 26), bin = (mhz) => clamp(Math.floor(10 * (mhz - c.low) / (c.high - c.low || 1)), 0, 9);
    let svg = "", y = 0, kind = "";
    const tops = [];
    c.rows.forEach(([words, name], row) => {
      if (words !== kind) { kind = words; y += row ? 12 : 0; svg += label(left, y + 13, words, 'class="b"'); y += 20; }
      tops.push(y);
      svg += label(left - 8, y + tall / 2 + 4, name, 'class="t" text-anchor="end"');
      for (let m = 0; m < c.microbatches;) {
        const mhz = cells[row * c.microbatches + m]; let to = m + 1;
        while (to < c.microbatches && cells[row * c.microbatches + to] === mhz) to++;
        if (mhz) {
          svg += `<rect class="box" x="${fixed(left + m * per)}" y="${fixed(y)}" width="${fixed((to - m) * per)}" height="${fixed(tall)}" style="fill:var(--p${bin(mhz)})"/>`;
          if ((to - m) * per > 34 && tall > 13) svg += label(left + (m + to) / 2 * per, y + tall / 2 + 4, mhz, `text-anchor="middle" style="fill:var(--q${bin(mhz)});font-size:11px"`);
        }
        m = to;
      }
      y += tall;
    });
    const every = Math.max(1, Math.ceil(c.microbatches / ((width - left) / 36)));
    for (let m = 0; m < c.microbatches; m += every) svg += label(left + (m + 0.5) * per, y + 15, m, 'class="t" text-anchor="middle"');
    svg += label(left + c.microbatches * per, y + 32, "microbatch", 'class="t" text-anchor="end"');
    const of = (item) => [Math.floor(item / c.microbatches), item % c.microbatches];
    return { height: y + 36, svg, count: cells.length, first: 0,
      find: (x, py) => { const row = tops.findIndex((top) => py >= top && py < top + tall), m = Math.floor((x - left) / per); return row < 0 || m < 0 || m >= c.microbatches ? -1 : row * c.microbatches + m; },
      place: (item) => { const [row, m] = of(item); return [left + m * per, tops[row], per, tall]; },
      text: (item) => { const [row, m] = of(item), mhz = cells[item]; return `${c.rows[row][1]}, ${c.rows[row][0]} of microbatch ${m}: ${mhz ? mhz + " MHz" : "does not run here"}`; },
      step: (item, dx, dy) => { const [row, m] = of(item); return clamp(row + dy, 0, c.rows.length - 1) * c.microbatches + clamp(m + dx, 0, c.microbatches - 1); } };
  }

  /* ---- the profile ---- */
  function profile(width) {
    const p = found.profile, across = Math.max(1, Math.min(4, Math.floor(width / 260))), wide = width / across, high = 210;
    let svg = "";
    const places = [], said = [];
    p.stages.forEach((stage, n) => {
      const x0 = (n % across) * wide, y0 = Math.floor(n / across) * high;
      const all = stage.kinds.flatMap((k) => k.points);
      const frame = { left: x0 + 52, top: y0 + 34, right: x0 + wide - 14, bottom: y0 + high - 36 };
      const { svg: base, X, Y } = axes(frame, span(all.map((q) => q[1])), span(all.map((q) => q[2])), "", "");
      svg += label(x0 + 52, y0 + 20, `stage ${stage.stage}`, 'class="b"') + base;
      if (!n) svg += label(x0 + wide - 14, y0 + 20, "J against s", 'class="t" text-anchor="end"');
      stage.kinds.forEach((kind, k) => {
        const used = usedAt(stage.stage, kind.words), side = k % 2 ? "before" : "after";
        svg += `<path class="${side}" d="${line(kind.points.map((q) => [X(q[1]), Y(q[2])]))}"/>`;
        for (const [mhz, t, e, ts, es] of kind.points) {
          svg += `<path class="err" d="M${fixed(X(t - ts))} ${fixed(Y(e))}H${fixed(X(t + ts))}M${fixed(X(t))} ${fixed(Y(e - es))}V${fixed(Y(e + es))}"/><circle class="dot-${side}" cx="${fixed(X(t))}" cy="${fixed(Y(e))}" r="2.2"/>`;
          if (used.has(mhz)) svg += `<circle class="ring" cx="${fixed(X(t))}" cy="${fixed(Y(e))}" r="5"/>`;
          places.push([X(t), Y(e)]);
          said.push(`stage ${stage.stage}, ${kind.words} at ${mhz} MHz: ${short(1e3 * t)} \u00b1 ${short(1e3 * ts, 2)} ms, ${short(e)} \u00b1 ${short(es, 2)} J${used.has(mhz) ? "; the plan uses it" : ""}`);
        }
      });
    });
    return { height: Math.ceil(p.stages.length / across) * high, svg, count: places.length, first: 0, find: (x, y) => nearest(places, x, y, 26),
      place: (n) => dot(places[n]), text: (n) => said[n], step: (n, dx, dy) => n + (dx || 0) + (dy || 0) };
  }
  function usedAt(stage, words) {
    if (!clocksOf) return new Set();
    const c = found.clocks, row = c.rows.findIndex(([kind, , its]) => kind === words && its === stage);
    return row < 0 ? new Set() : new Set(clocksAt(chosen).subarray(row * c.microbatches, (row + 1) * c.microbatches));
  }

  if (found.clocks) { /* rows of differences: the first plan, then what each changes of the one before */
    const { differences, microbatches, rows } = found.clocks, row = rows.length * microbatches;
    clocksOf = new Uint16Array(differences.length); clocksOf.row = row;
    for (let n = 0; n < differences.length; n++) clocksOf[n] = differences[n] + (n >= row ? clocksOf[n - row] : 0);
  }
  const only = document.getElementById(new URLSearchParams(location.hash.slice(1)).get("only"));
  if (only) document.body.replaceChildren(only.closest("figure")); /* one figure alone, for a picture of it */
  const dependants = [];
  const choose = (n) => {
    chosen = n;
    dependants.forEach((redraw) => redraw());
    const words = document.getElementById("chosen-plan");
    if (words) words.textContent = planWords(n) + (n === found.frontier.chosen ? ". The job runs this plan." : ".");
  };
  if (found.timeline) plot("timeline", timeline);
  if (found.frontier) dependants.push(plot("frontier", frontier, choose));
  if (found.clocks) dependants.push(plot("clocks", clocks));
  if (found.profile) dependants.push(plot("profile", profile));
  if (found.frontier) choose(chosen);
  let pending = 0, wide = innerWidth;
  addEventListener("resize", () => { if (innerWidth === wide) return; wide = innerWidth; cancelAnimationFrame(pending); pending = requestAnimationFrame(() => redraws.forEach((redraw) => redraw())); });
  addEventListener("beforeprint", () => redraws.forEach((redraw) => redraw()));
  document.body.dataset.drawn = "yes";
})();
