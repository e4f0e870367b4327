"""Style sheet and script of a report's page, which reads without either."""

STYLE = """
:root { color-scheme: light dark; --paper: light-dark(#fff, #121212); --line: #8884;
  --soft: light-dark(#f4f5f6, #1d1e20); --link: light-dark(#0060a0, #7cc4ff);
  --quiet: light-dark(#595959, #a8a8a8); --warn: light-dark(#b34700, #ff9a57);
  --more: light-dark(#0005, #fff5); }
html { scroll-padding-top: 3.2rem; }
body { background: var(--paper); font: 16px/1.5 system-ui, sans-serif; max-width: 64rem;
  margin: 0 auto; padding: 0 1rem 4rem; }
h1, h2, h3 { line-height: 1.2; overflow-wrap: anywhere; }
h1 { margin-bottom: .3rem; }
h2 { border-bottom: 1px solid var(--line); padding-bottom: .2rem; margin-top: 3rem; }
header h2 { border: 0; font-size: 1.1rem; margin: 1rem 0 0; }
h3 { margin: 1.8rem 0 .4rem; }
a { color: var(--link); }
p, li, dd, figcaption { max-width: 46rem; overflow-wrap: anywhere; }
nav { position: sticky; top: 0; z-index: 2; background: var(--paper); padding: .5rem 0;
  border-bottom: 1px solid var(--line); overflow-x: auto; white-space: nowrap; }
nav a { margin-right: 1rem; text-decoration: none; }
.skip { position: absolute; left: -100vw; }
.skip:focus { position: static; }
.what { font-size: 1.1rem; color: var(--quiet); margin-top: 0; }
.lead { display: grid; grid-template-columns: max-content 1fr; gap: .6rem 1.2rem; margin: 1.2rem 0;
  padding: 1rem; background: var(--soft); border-radius: 6px; }
.lead dt { font-weight: 600; }
.lead dd { margin: 0; min-width: 0; }
.lead p { margin: 0 0 .4rem; }
.lead p:last-child { margin: 0; }
.words { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1.2rem; }
.words dt { font-weight: 600; }
.words dd { margin: 0; }
.warning { color: var(--warn); }
.notes, summary { font-size: .85rem; color: var(--quiet); }
.tag { display: inline-block; font-size: .8rem; font-weight: 600; padding: .1rem .5rem;
  border: 1px solid currentColor; border-radius: 1rem; vertical-align: .1rem; }
figure { margin: 2rem 0; }
figcaption { margin-bottom: .4rem; }
.picture { background: #fff; border-radius: 4px; }
.panels { display: flex; flex-wrap: wrap; justify-content: center; max-width: var(--most); }
.legend { flex: 0 0 100%; text-align: center; }
.picture svg { width: calc(var(--w) / var(--of) * 99.9%); height: auto; overflow: visible;
  font-family: 'DejaVu Sans', sans-serif; }
.picture svg * { stroke-linejoin: round; stroke-linecap: butt; }
.picture:focus-visible, .wide:focus-visible { outline: 2px solid var(--link); }
.at { fill: none; stroke: #000; stroke-width: 1.2; pointer-events: none; }
#tip { position: fixed; z-index: 3; left: 0; top: 0; max-width: min(20rem, 90vw); display: none;
  padding: .3rem .6rem; background: light-dark(#222, #eee); color: light-dark(#fff, #111);
  font-size: .85rem; border-radius: 4px; pointer-events: none; white-space: pre-line; }
.wide { overflow-x: auto; max-width: 100%;  /* a shadow where there is more to the side */
  background: linear-gradient(90deg, var(--paper) 40%, transparent) 0 0 / 2.5rem 100% local,
    linear-gradient(270deg, var(--paper) 40%, transparent) 100% 0 / 2.5rem 100% local,
    linear-gradient(90deg, var(--more), transparent) 0 0 / 1rem 100%,
    linear-gradient(270deg, var(--more), transparent) 100% 0 / 1rem 100%;
  background-repeat: no-repeat; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right; }
th { font-weight: 600; vertical-align: bottom; }
tbody th, tbody td { vertical-align: baseline; }
tbody th { font-weight: 400; }
.w { text-align: left; min-width: 5.5rem; }
th button { all: unset; cursor: pointer; }
th button:hover { text-decoration: underline; }
th button:focus-visible { outline: 2px solid var(--link); }
th[aria-sort=ascending] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
code, pre { font-size: .85rem; }
pre { overflow-x: auto; background: var(--soft); padding: .6rem; margin: .3rem 0; color: CanvasText;
  border-radius: 4px; }
.lead pre { background: var(--paper); }
details[open] > summary { margin-bottom: .4rem; }
summary { cursor: pointer; }
@media screen and (max-width: 40rem) {
  body { font-size: 15px; line-height: 1.4; }
  h1 { margin-top: .8rem; }
  .what { font-size: 1rem; }
  .lead { display: block; margin: .6rem 0; padding: .6rem; }
  .lead dd + dt { margin-top: .6rem; }
  .picture svg { width: min(100%, calc(var(--w) * 1.5px)); }
  table { font-size: .8rem; }
  th, td { padding: .2rem; }
  .w { min-width: 4.8rem; overflow-wrap: anywhere; }
}
@media screen and (prefers-color-scheme: dark) {
  .picture { filter: invert(.93) hue-rotate(180deg); }
}
@media print {
  @page { margin: 14mm; }
  :root { color-scheme: light; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav, .skip, #tip, details:not([open]) { display: none !important; }
  h2, h3, figcaption { break-after: avoid; }
  figure, tr, pre, .lead { break-inside: avoid; }
  .wide { overflow: visible; background: none; }
  table { font-size: 7.5pt; }
  .w { min-width: 0; }
  th, td { padding: .1rem .25rem; }
  pre { white-space: pre-wrap; overflow-wrap: anywhere; }
}
"""

SCRIPT = r"""
"use strict";
function compared(one, other) {  // words, but for numbers in them: L3 before L12, g0.15 before g0.2
  var parts = [one, other].map(function (text) { return text.split(/(\d+(?:\.\d+)?)/); });
  for (var i = 0; i < Math.min(parts[0].length, parts[1].length); i++) {
    var a = parts[0][i], b = parts[1][i];
    var by = i % 2 ? parseFloat(a) - parseFloat(b) : a.localeCompare(b, "en");
    if (by) return by;
  }
  return parts[0].length - parts[1].length;
}
document.querySelectorAll("th button").forEach(function (button) {
  button.addEventListener("click", function () {
    var head = button.parentNode, body = head.closest("table").tBodies[0], at = head.cellIndex;
    var up = head.getAttribute("aria-sort") !== "ascending";
    Array.from(head.parentNode.cells).forEach(function (h) { h.removeAttribute("aria-sort"); });
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    var rows = Array.from(body.rows).map(function (row) {
      var text = row.cells[at].textContent.trim().replace("\u2212", "-");
      return { row: row, text: text, number: parseFloat(text), none: text === "\u2014" };
    });
    var words = rows.some(function (r) { return !r.none && isNaN(r.number); });
    rows.sort(function (a, b) {  // what is not there comes last, whichever way
      if (a.none || b.none) return a.none - b.none;
      var by = words ? compared(a.text, b.text) : a.number - b.number;
      return up ? by : -by;
    });
    rows.forEach(function (r) { body.appendChild(r.row); });
  });
});

var tip = document.getElementById("tip");
document.querySelectorAll("figure").forEach(function (figure) {
  var picture = figure.querySelector(".picture");
  var data = figure.querySelector("script[type='application/json']");
  if (!picture || !data) return;
  var svgs = picture.querySelectorAll(".panels > svg");  // one a panel
  var points = null, ring = null, now = -1;

  function load() {
    if (points) return points;
    points = [];
    JSON.parse(data.textContent).forEach(function (panel, p) {
      panel.series.forEach(function (series, s) {
        series.x.forEach(function (x, i) {
          points.push({ panel: panel, series: series, s: p + "," + s, x: x, y: series.y[i],
            svg: svgs[panel.place], left: series.at[2 * i], top: series.at[2 * i + 1] });
        });
      });
    });
    ring = document.createElementNS("http://www.w3.org/2000/svg", "circle");
    ring.setAttribute("class", "at");
    ring.setAttribute("r", 4);
    return points;
  }
  function say(point) {
    var head = [point.panel.title, point.series.name].filter(Boolean);
    var named = function (label, value) { return (label ? label + ": " : "") + value; };
    return head.concat([named(point.panel.x, point.x), named(point.panel.y, point.y)]).join("\n");
  }
  function show(index) {
    now = index;
    var point = points[index], matrix = point.svg.getScreenCTM();
    ring.setAttribute("cx", point.left);
    ring.setAttribute("cy", point.top);
    point.svg.appendChild(ring);
    tip.textContent = say(point);
    tip.style.display = "block";
    var at = new DOMPoint(point.left, point.top).matrixTransform(matrix);
    var left = Math.min(at.x + 12, innerWidth - tip.offsetWidth - 4);
    var above = at.y - tip.offsetHeight - 12;
    tip.style.transform = "translate(" + Math.max(4, left) + "px," +
      (above > 4 ? above : at.y + 16) + "px)";
  }
  function hide() {
    now = -1;
    tip.style.display = "none";
    if (ring) ring.remove();
  }
  function nearest(event) {
    var there = Array.from(svgs, function (svg) {
      return new DOMPoint(event.clientX, event.clientY).matrixTransform(
        svg.getScreenCTM().inverse());
    });
    var best = -1, least = 20 * 20;
    load().forEach(function (point, i) {
      var at = there[point.panel.place];
      var far = (point.left - at.x) * (point.left - at.x) + (point.top - at.y) * (point.top - at.y);
      if (far < least) { best = i; least = far; }
    });
    if (best < 0) hide(); else show(best);
  }
  picture.addEventListener("pointermove", nearest);
  picture.addEventListener("pointerdown", nearest);  // a finger
  picture.addEventListener("pointerleave", function (event) {
    if (event.pointerType === "mouse") hide();
  });
  picture.addEventListener("blur", hide);
  picture.addEventListener("keydown", function (event) {
    if (event.key === "Escape") { hide(); return; }
    var step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || !load().length) return;
    var to = now < 0 ? 0 : now + step;
    if (now >= 0 && event.key.match(/Up|Down/)) {  // the next line
      while (points[to] && points[to].s === points[now].s) to += step;
    }
    if (points[to]) show(to);
    event.preventDefault();
  });
  var numbers = figure.querySelector("details");
  numbers.addEventListener("toggle", function () {
    var body = numbers.querySelector("tbody");
    if (body.rows.length) return;
    load().forEach(function (point) {
      var row = body.insertRow();
      [point.panel.title, point.series.name, point.panel.x, point.x, point.panel.y, point.y]
        .forEach(function (cell) { row.insertCell().textContent = cell; });
    });
  });
});
addEventListener("beforeprint", function () {
  document.querySelectorAll("details.printed").forEach(function (d) { d.open = true; });
});
addEventListener("scroll", function () { tip.style.display = "none"; }, true);
"""
