"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);

// The load. A formula is a tree: a number, a name, or an operator and its operands. Nothing of it is
// executed as a script, so that the page works under a strict policy of a server.
const operators = { "+": (x, y) => x + y, "-": (x, y) => x - y, "*": (x, y) => x * y, "/": (x, y) => x / y, min: Math.min };

function evaluate(tree, known) {
  if (typeof tree === "number") return tree;
  if (typeof tree === "string") return known[tree];
  return operators[tree[0]](...tree.slice(1).map((part) => evaluate(part, known)));
}

function answer(load, inputs, measured) {
  const known = { measured_messages_per_second: Infinity, measured_deliveries_per_second: Infinity, overhead_bytes: 0, ...measured, ...inputs };
  for (const [name, tree] of load.formulas) known[name] = evaluate(tree, known);
  return known;
}

function figure(v) {
  if (!Number.isFinite(v)) return "-";
  return v >= 100 ? Math.round(v).toLocaleString("en-US") : String(Number(v.toPrecision(3)));
}

function full(a) {
  if (!(a.disk_needed_gb > a.disk_gb)) return "never: retention bounds it";
  const date = new Date(Date.now() + a.days_until_full * 864e5);
  const day = date.getFullYear() < 2200 ? ", " + date.toLocaleDateString(undefined, { year: "numeric", month: "short", day: "numeric" }) : "";
  return "in " + figure(a.days_until_full) + " days" + day;
}

function showLoad(load, box) {
  const inputs = {};
  for (const name of load.inputs) {
    const field = box.querySelector("form").elements[name];
    if (field.value === "" || !field.validity.valid) return; // half typed
    inputs[name] = Number(field.value);
  }
  const lines = box.querySelectorAll("tbody tr");
  load.rows.forEach((row, i) => {
    const a = answer(load, inputs, row.measured);
    const least = row.bytes_known ? "" : "≥ ";
    const money = (v) => v > 0 && Number.isFinite(v) ? figure(v) : "-";
    const text = {
      verdict: a.headroom >= 1 ? "carries it" : "too slow", headroom: Number.isFinite(a.headroom) ? (row.at_least ? "≥ " : "") + figure(a.headroom) + " ×" : "-",
      gb_per_day: least + figure(a.gb_per_day), disk_needed_gb: least + figure(a.disk_needed_gb), days_until_full: full(a),
      cost_per_year: money(a.cost_per_year), cost_per_million: money(a.cost_per_million),
    };
    for (const cell of lines[i].querySelectorAll("[data-is]")) cell.textContent = text[cell.dataset.is];
    const verdict = lines[i].querySelector("[data-is=verdict]");
    verdict.classList.toggle("good", a.headroom >= 1);
    verdict.classList.toggle("slow", !(a.headroom >= 1));
    if (i === 0) {
      const deliveries = load.receives ? ` and ${figure(a.peak_deliveries_per_second)} deliveries/s` : "";
      box.querySelector(".needed").textContent = `${figure(a.messages_per_day)} ${load.message}s a day; at the peak ${figure(a.peak_messages_per_second)} ${load.message}s/s${deliveries}.`;
    }
  });
}

for (const load of data.loads) {
  const box = document.getElementById(load.id), form = box.querySelector("form");
  for (const field of form.elements) field.readOnly = false;
  form.addEventListener("input", () => showLoad(load, box));
  form.addEventListener("submit", (event) => event.preventDefault());
  showLoad(load, box);
}

// The charts.
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const dashes = [[], [7, 3], [2, 2], [10, 3, 2, 3], [12, 4], [4, 4], [8, 2, 2, 2, 2, 2], [1, 3]];
const drawn = new Map(); // of figures: what draws them

const widest = 500; // below it, every other label of an axis has no room

function axis(a, crowded, extra) {
  const label = new Map(a.ticks.map((t) => [t.at, t.label]));
  const soft = colour("--soft");
  return {
    stroke: soft, label: a.label, labelFont: "12px system-ui, sans-serif", font: "12px system-ui, sans-serif", labelSize: 18, labelGap: 0,
    grid: { stroke: colour("--rule"), width: 1 }, ticks: { show: false },
    splits: (u, i, min, max) => {
      const inside = a.ticks.map((t) => t.at).filter((at) => at >= min * (1 - 1e-9) && at <= max * (1 + 1e-9));
      return inside.length > 1 || a.log ? inside : [0, 1, 2, 3, 4].map((n) => min + (max - min) * n / 4); // looked into
    },
    filter: (u, splits) => splits.map((at, i) => crowded && splits.length > 5 && i % 2 ? null : at),
    values: (u, splits) => splits.map((at) => at === null ? "" : label.get(at) ?? String(Number(at.toPrecision(4)))),
    ...extra,
  };
}

function scale(a, zooms) {
  const range = zooms ? (u, min, max) => [Math.max(min ?? a.min, a.min), Math.min(max ?? a.max, a.max)] : [a.min, a.max];
  return { time: false, distr: a.log ? 3 : 1, range };
}

function bands(c) {
  return (u) => {
    const { ctx, bbox } = u;
    const px = (at) => Math.min(Math.max(u.valToPos(at, "x", true), bbox.left), bbox.left + bbox.width);
    ctx.save();
    ctx.fillStyle = colour("--band");
    for (const b of c.bands ?? []) ctx.fillRect(px(b.from), bbox.top, px(b.to) - px(b.from), bbox.height);
    ctx.restore();
  };
}

function marks(c) {
  return (u) => {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.font = `600 ${12 * devicePixelRatio}px system-ui, sans-serif`;
    for (const m of c.marks ?? []) {
      if (m.at < u.scales.x.min || m.at > u.scales.x.max) continue;
      ctx.strokeStyle = ctx.fillStyle = colour(m.label ? "--ink" : "--soft");
      const x = u.valToPos(m.at, "x", true);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      if (!m.label) continue;
      const room = bbox.left + bbox.width - x - 6 * devicePixelRatio;
      const left = ctx.measureText(m.label).width > room;
      ctx.textAlign = left ? "right" : "left";
      // Latencies are high to the right of a knee and low to its left.
      ctx.fillText(m.label, x + (left ? -5 : 5) * devicePixelRatio, left ? bbox.top + 12 * devicePixelRatio : bbox.top + bbox.height - 6 * devicePixelRatio);
    }
    ctx.restore();
  };
}

// readings shows in the legend what is under the cursor.
function readings(c, items) {
  return (u) => {
    const i = u.cursor.idx;
    items.forEach((item, n) => {
      const v = i === null || i === undefined ? null : c.series[n].values[i];
      item.textContent = v === null ? "" : `${figure(v)} ${c.y.label}`;
    });
  };
}

function draw(figureBox, c) {
  if (typeof uPlot !== "function") return; // the still picture stays
  const box = figureBox.querySelector(".live");
  const width = Math.floor(box.clientWidth);
  if (!width) return;
  drawn.get(figureBox)?.destroy();
  const hidden = [...figureBox.querySelectorAll(".legend button")].map((b) => b.getAttribute("aria-pressed") === "false");
  const plot = new uPlot({
    width, height: 260, legend: { show: false }, cursor: { sync: c.sync ? { key: c.sync } : undefined, drag: { x: true, y: false } },
    scales: { x: scale(c.x, true), y: scale(c.y, false) },
    axes: [axis(c.x, width < widest, { size: 28 }), axis(c.y, false, { size: 50 })],
    series: [{}, ...c.series.map((s, i) => ({
      show: !hidden[i], stroke: colour("--s" + s.style % 8), width: 2, dash: dashes[s.style % 8], spanGaps: false,
      points: { show: c.points || s.values.filter((v) => v !== null).length < 3, size: 7, fill: colour("--s" + s.style % 8) },
    }))],
    hooks: { drawClear: [bands(c)], draw: [marks(c)], setCursor: [readings(c, figureBox.querySelectorAll(".legend .now"))] },
  }, [c.xs, ...c.series.map((s) => c.y.log ? s.values.map((v) => v > 0 ? v : null) : s.values)], box);
  drawn.set(figureBox, plot);
  figureBox.classList.add("drawn");
}

// buttons turn the legend's entries into switches.
function buttons(figureBox) {
  figureBox.querySelectorAll(".legend li").forEach((li, i) => {
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    button.append(...li.childNodes);
    const now = document.createElement("span");
    now.className = "now";
    li.append(button, now);
    button.addEventListener("click", () => {
      const show = button.getAttribute("aria-pressed") === "false";
      button.setAttribute("aria-pressed", String(show));
      drawn.get(figureBox)?.setSeries(i + 1, { show });
    });
  });
}

const charts = new Map(data.charts.map((c) => [document.getElementById(c.id), c]));
const sized = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const plot = drawn.get(target), width = Math.floor(target.querySelector(".live").clientWidth);
    if (width && plot?.width !== width) draw(target, charts.get(target));
  }
});
for (const figureBox of charts.keys()) {
  buttons(figureBox);
  sized.observe(figureBox); // draws what is to be seen, and what is opened later
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const figureBox of drawn.keys()) draw(figureBox, charts.get(figureBox));
});
})();
