// The fixed parts of the page: style, structure and the script that draws the data. Plain HTML, no library.
#pragma once

namespace sightline::checker {

inline constexpr const char* kPageHead = R"page(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>Sightline check</title>
<style>
:root { --ink: #1c2430; --soft: #5b6675; --line: #d7dde5; --paper: #ffffff; --good: #1d7a4f; --bad: #b3261e;
        --both: #3b6fb5; --extra: #d1495b; --missing: #edae49; --none: #f1f4f8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6eaf0; --soft: #9aa6b5; --line: #333c48; --paper: #12161c; --good: #5cc796; --bad: #ff8a80;
          --both: #6ea0e6; --extra: #ff7a8c; --missing: #f4c56a; --none: #1f262f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem; color: var(--ink); background: var(--paper);
       font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.35rem; line-height: 1.3; margin: 0 0 .25rem; }
h2 { font-size: 1rem; margin: 2rem 0 .5rem; border-bottom: 1px solid var(--line); }
.verdict { font-weight: 700; } .good { color: var(--good); } .bad { color: var(--bad); }
.soft { color: var(--soft); } code, pre { font: .875rem/1.45 ui-monospace, monospace; }
pre { background: var(--none); padding: .75rem; overflow-x: auto; border-radius: 4px; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .25rem .75rem .25rem 0;
  vertical-align: top; border-bottom: 1px solid var(--line); } td.n { text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.fault { border-left: 4px solid var(--bad); padding: .25rem 0 .25rem 1rem; margin: 1rem 0; }
.good-fault { border-color: var(--good); }
canvas { width: 100%; height: 22rem; border: 1px solid var(--line); touch-action: none; cursor: crosshair;
  display: block; }
.key span { display: inline-block; width: .8em; height: .8em; margin: 0 .35em 0 1em; vertical-align: baseline; }
.bars { display: flex; align-items: flex-end; height: 6rem; gap: 1px; border-bottom: 1px solid var(--line); }
.bars i { flex: 1; min-width: 1px; background: var(--both); } .bars i.over { background: var(--extra); }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem; } .pair canvas { height: auto; aspect-ratio: 1;
  cursor: default; image-rendering: pixelated; } svg { width: 100%; height: 12rem; border: 1px solid var(--line); }
.bar { display: inline-block; height: .6rem; background: var(--both); } #told { min-height: 1.5em; }
</style>
</head>
<body>
<main id="report"></main>
<noscript>This page draws its report with a script; the data is in it as JSON.</noscript>
<script type="application/json" id="data">)page";

inline constexpr const char* kPageTail = R"page(</script>
<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const report = data.report;
const main = document.getElementById("report");
const fine = ["agrees", "rounding", "convention"].includes(report.verdict);

function add(parent, tag, text, cls) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (cls) element.className = cls;
  parent.appendChild(element);
  return element;
}
function number(x) {
  if (x === null) return "not finite";
  return Math.abs(x) >= 1e5 || (x !== 0 && Math.abs(x) < 1e-3) ? x.toExponential(2) : String(+x.toPrecision(5));
}
function table(rows, numeric) {
  const t = add(main, "table");
  for (const row of rows) {
    const tr = add(t, "tr");
    row.forEach((cell, i) => add(tr, "td", cell, i === numeric ? "n" : ""));
  }
}

const [word, ...rest] = report.summary.split(": ");
const title = add(main, "h1");
add(title, "span", word, "verdict " + (fine ? "good" : "bad"));
title.append(": " + rest.join(": "));
add(main, "div", data.declared, "soft");
for (const line of data.assumptions) add(main, "div", "assumed: " + line, "soft");

for (const fault of report.faults) {
  const box = add(main, "div", undefined, "fault" + (fine ? " good-fault" : ""));
  const name = add(box, "div");
  add(name, "code", fault.slug + (fault.variant ? "/" + fault.variant : ""));
  name.append("  " + fault.what + (fault.certain ? "  (certain)" : ""));
  for (const [key, value] of Object.entries(fault.parameters)) add(box, "div", key + " = " + number(value));
  if (fault.idiom) add(box, "div", "usual cause: " + fault.idiom, "soft");
  if (fault.fix) add(box, "div", "fix: " + fault.fix);
  add(box, "div", "misfit: " + number(fault.misfit) + " of the rounding bound", "soft");
}
if (report.next_probe) add(main, "p", "Next probe: " + report.next_probe);
if (report.first_difference) {
  const d = report.first_difference;
  const place = d.tensor + (d.index.length ? "[" + d.index.join(", ") + "]" : "");
  add(main, "p", "First difference: " + place + ", expected " + number(d.expected) +
      ", got " + number(d.got));
}

if (report.visible_set) drawMask(report.visible_set);
if (data.inside) drawWeights(data.inside);
if (data.inside && data.inside.angles.length) drawAngles(data.inside);
if (report.row_errors && report.row_errors.length) drawErrors(report.row_errors);
if (report.ranked && report.ranked.length) {
  add(main, "h2", "Hypotheses by misfit");
  add(main, "div", "times the rounding bound, the worst number; at most 1 explains everything", "soft");
  table(report.ranked.map((r) => [r.what, number(r.misfit)]), 1);
}
if (report.evidence.length) {
  add(main, "h2", "Evidence");
  for (const e of report.evidence) add(main, "div", e.what.endsWith(".") ? e.what : number(e.value) + " " + e.what);
}
if (report.blind_spots && report.blind_spots.length) {
  add(main, "h2", "Not seen");
  for (const spot of report.blind_spots) add(main, "div", spot);
}
if (data.reproducer) {
  add(main, "h2", "Again");
  add(main, "pre", data.reproducer);
}

function drawErrors(errors) {
  add(main, "h2", "Error of each query");
  add(main, "div",
      "largest difference from the declared meaning in rounding bounds, logarithmic; red is beyond 1", "soft");
  const bars = add(main, "div", undefined, "bars");
  const top = Math.max(2, ...errors.map((e) => Math.log10(1 + (e === null ? 1e30 : e))));
  errors.forEach((e, i) => {
    const bar = add(bars, "i", undefined, e === null || e > 1 ? "over" : "");
    bar.style.height = Math.max(1, 100 * Math.log10(1 + (e === null ? 1e30 : e)) / top) + "%";
    bar.title = "query " + i + ": " + number(e);
  });
}

function drawWeights(view) {
  add(main, "h2", "Weights of query head " + view.head);
  add(main, "div", "square root of each weight as a shade: queries " + view.query_begin + " to " +
      (view.query_begin + view.num_queries - 1) + ", keys " + view.key_begin + " to " +
      (view.key_begin + view.num_keys - 1), "soft");
  const pair = add(main, "div", undefined, "pair");
  const said = add(main, "div", "Point at a weight.", "soft");
  const sides = [["declared", view.declared], [view.explained_by, view.explained]];
  const ink = getComputedStyle(document.documentElement).getPropertyValue("--both").trim();
  for (const [name, weights] of sides.filter((side) => side[1].length)) {
    const figure = add(pair, "div");
    add(figure, "div", name, "soft");
    const canvas = add(figure, "canvas");
    canvas.width = view.num_keys;
    canvas.height = view.num_queries;
    canvas.style.aspectRatio = view.num_keys + "/" + view.num_queries;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", "weights: " + name);
    const context = canvas.getContext("2d");
    context.fillStyle = ink;
    weights.forEach((w, i) => {
      context.globalAlpha = w === null ? 0 : Math.sqrt(Math.min(1, w));
      context.fillRect(i % view.num_keys, Math.floor(i / view.num_keys), 1, 1);
    });
    canvas.addEventListener("pointermove", (e) => {
      const i = Math.min(view.num_queries - 1, Math.floor(e.offsetY / canvas.clientHeight * view.num_queries));
      const j = Math.min(view.num_keys - 1, Math.floor(e.offsetX / canvas.clientWidth * view.num_keys));
      said.textContent = "query " + (view.query_begin + i) + ", key " + (view.key_begin + j) + ": " +
          sides.filter((side) => side[1].length)
               .map((side) => number(side[1][i * view.num_keys + j]) + " " + side[0]).join(", ");
    });
  }
}

function drawAngles(view) {
  add(main, "h2", "Angle of each rotary pair");
  const key = add(main, "div", "radians from one position to the next, logarithmic, pair 0 on the left", "key soft");
  const sides = [["declared", view.angles, "--both"], [view.explained_by, view.explained_angles, "--extra"]]
      .filter((side) => side[1].length && (side[2] === "--both" || String(side[1]) !== String(view.angles)));
  const logs = sides.flatMap((side) => side[1]).filter((x) => x > 0).map(Math.log10);
  const low = Math.min(...logs), high = Math.max(...logs, low + 1e-9);
  const longest = Math.max(...sides.map((side) => side[1].length));
  const space = "http:" + "//www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "0 0 100 100");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "angle of each rotary pair");
  for (const [name, angles, color] of sides) {
    add(key, "span").style.background = "var(" + color + ")";
    key.append(name + ": " + number(angles[0]) + " to " + number(angles[angles.length - 1]));
    const line = document.createElementNS(space, "polyline");
    line.setAttribute("points", angles.map((x, i) => x > 0 ? (5 + 90 * i / Math.max(1, longest - 1)) + "," +
        (95 - 90 * (Math.log10(x) - low) / (high - low)) : "").join(" "));
    line.setAttribute("style", "fill: none; stroke: var(" + color + "); stroke-width: 2; " +
        "vector-effect: non-scaling-stroke");
    svg.appendChild(line);
  }
  main.appendChild(svg);
}

function drawMask(set) {
  add(main, "h2", "Who sees whom");
  const key = add(main, "div", undefined, "key soft");
  const kinds = [["--both", "declared and seen"], ["--extra", "seen, not declared"],
                 ["--missing", "declared, not seen"], ["--none", "neither"]];
  for (const [color, text] of kinds) {
    add(key, "span").style.background = "var(" + color + ")";
    key.append(text);
  }
  const canvas = add(main, "canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "declared and observed mask, one row a query, one column a key");
  const told = add(main, "div", "Wheel or +/-: zoom. Drag: move. Point at a pair.", "soft");
  told.id = "told";
  const rows = set.declared.length, columns = rows ? set.declared[0].length : 0;
  let cell = 0, left = 0, top = 0;
  const context = canvas.getContext("2d");
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
  function kindOf(i, j) {
    const declared = set.declared[i][j] === "1", observed = set.observed[i][j] === "1";
    return declared ? (observed ? 0 : 2) : (observed ? 1 : 3);
  }
  function draw() {
    const scale = devicePixelRatio, width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = width * scale;
    canvas.height = height * scale;
    context.scale(scale, scale);
    if (!cell) cell = Math.min(width / columns, height / rows);
    const gap = cell > 6 ? 1 : 0;
    for (let i = Math.max(0, Math.floor(-top / cell)); i < rows && top + i * cell < height; ++i) {
      for (let j = Math.max(0, Math.floor(-left / cell)); j < columns && left + j * cell < width; ++j) {
        context.fillStyle = style(kinds[kindOf(i, j)][0]);
        context.fillRect(left + j * cell, top + i * cell, cell - gap, cell - gap);
      }
    }
  }
  function zoom(factor, x, y) {
    const next = Math.min(64, Math.max(1, cell * factor));
    left = x - (x - left) * next / cell;
    top = y - (y - top) * next / cell;
    cell = next;
    draw();
  }
  let drag = null;
  canvas.addEventListener("wheel", (e) => {
    e.preventDefault();
    zoom(e.deltaY < 0 ? 1.25 : 0.8, e.offsetX, e.offsetY);
  });
  canvas.addEventListener("pointerdown", (e) => {
    drag = [e.clientX - left, e.clientY - top];
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointerup", () => { drag = null; });
  canvas.addEventListener("pointermove", (e) => {
    if (drag) { left = e.clientX - drag[0]; top = e.clientY - drag[1]; draw(); return; }
    const i = Math.floor((e.offsetY - top) / cell), j = Math.floor((e.offsetX - left) / cell);
    if (i < 0 || j < 0 || i >= rows || j >= columns) return;
    told.textContent = "query " + i + ", key " + j + ": " + kinds[kindOf(i, j)][1];
  });
  canvas.tabIndex = 0;
  canvas.addEventListener("keydown", (e) => {
    if (e.key === "+") zoom(1.25, canvas.clientWidth / 2, canvas.clientHeight / 2);
    if (e.key === "-") zoom(0.8, canvas.clientWidth / 2, canvas.clientHeight / 2);
  });
  addEventListener("resize", draw);
  draw();
}
document.body.dataset.drawn = "yes";
</script>
</body>
</html>
)page";

}  // namespace sightline::checker
