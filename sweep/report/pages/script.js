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
