"""The looks of the page and its one script: what the box under the pointer says."""

STYLE = """
:root { --ink: #1c2430; --faint: #5f6975; --paper: #ffffff; --line: #e3e7ec; --card: #f5f7f9;
  --accent: #0b7a75; --warn: #b45309; color-scheme: light dark; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaee; --faint: #9aa5b1; --paper: #14181d;
  --line: #2b323a; --card: #1c2228; --accent: #3fc1b8; --warn: #f0b35a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1240px; padding: 2rem 1.5rem 4rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .2rem; }
h2 { font-size: 1.1rem; margin: 2.4rem 0 .6rem; }
p { margin: .3rem 0; max-width: 75ch; }
.faint { color: var(--faint); }
.badge { display: inline-block; border: 1px solid var(--warn); color: var(--warn); border-radius: 1em;
  padding: 0 .7em; font-size: .85rem; }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1.4rem 0; }
.card { background: var(--card); border-radius: 8px; padding: .7rem 1rem;
  flex: 1 1 11rem; font-size: .85rem; }
.card b { display: block; white-space: nowrap; font-size: 1.7rem; line-height: 1.25;
  font-variant-numeric: tabular-nums; }
.card.measured b { color: var(--accent); }
.card.predicted { background: none; border: 1px dashed var(--faint); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem 1.2rem .3rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
section > table { display: block; max-width: 100%; overflow-x: auto; }
th { font-weight: 600; } td.n, th.n { text-align: right; }
.picture { background: #fff; border: 1px solid var(--line); border-radius: 8px; padding: .6rem;
  margin: .6rem 0; break-inside: avoid; overflow-x: auto; }
.picture img { display: block; width: 100%; height: auto; margin: 0 auto; }
.picture.narrow img { max-width: 900px; }
svg.timeline { display: block; width: 100%; min-width: 720px; height: auto; color: #1c2430;
  font: 11px system-ui, "DejaVu Sans", sans-serif; }
svg.timeline text:not(.number) { fill: #5f6975; }
svg.timeline text.name { fill: #1c2430; font-weight: 600; font-size: 13px; }
svg.timeline text.number { text-anchor: middle; pointer-events: none; }
svg.timeline rect.work { stroke: #fff; stroke-width: .8; } svg.timeline rect:hover { stroke: #1c2430;
  stroke-width: 1.6; }
svg.timeline .tick { stroke: #5f6975; }
svg.timeline .end { stroke: #1c2430; stroke-width: 1.6; }
.scale { display: flex; flex-wrap: wrap; align-items: center; gap: .2rem .6rem;
  color: #5f6975; font-size: .8rem; padding: .3rem min(4.2rem, 5%); }
.scale i { flex: 0 1 220px; min-width: 90px; height: 10px; border-radius: 3px; }
svg.timeline rect.critical { fill: #1c2430; pointer-events: none; }
.walk { margin: .6rem 0; } .walk canvas { width: 100%; height: 360px; display: block; }
.walk label { display: flex; flex-wrap: wrap; align-items: center; gap: .2rem .8rem; }
.walk input { flex: 1 1 12rem; min-width: 0; }
#tip { position: fixed; display: none; pointer-events: none; background: #1c2430; color: #fff; z-index: 9;
  font-size: .82rem; padding: .3rem .6rem; border-radius: 5px; max-width: 28rem; }
.journal { max-height: 24rem; overflow-y: auto; }
@media print { .journal { max-height: none; overflow: visible; } body { max-width: none; padding: 0; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""

SCRIPT = """
const tip = document.getElementById("tip");
document.addEventListener("mousemove", (move) => {
  const note = move.target.dataset && move.target.dataset.t;
  tip.style.display = note ? "block" : "none";
  if (!note) return;
  tip.textContent = note;
  tip.style.left = Math.min(move.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
  tip.style.top = Math.min(move.clientY + 16, innerHeight - tip.offsetHeight - 8) + "px";
});
"""
