// Two charts: windows of the last rollouts as bars, load over time as lines.

import { clock, el, millis, svg } from "./dom.js";

const WIDTH = 600;

/** Bars of the windows, the oldest first; each is a row of text for screen readers too. */
export function windows(rollouts) {
  const rows = [...rollouts].reverse();
  const most = Math.max(...rows.map((row) => row.windowMs), 1);
  const bars = rows.map((row) => {
    const bar = el("span", { class: `stick ${row.tone}` });
    bar.style.height = `${Math.max(1, (100 * row.windowMs) / most)}px`;
    const text = `rollout ${row.id} to ${row.to}: ${millis(row.windowMs)}, ${row.phase}`;
    const [over, under] = [Math.round(row.windowMs), row.id].map((word) => el("span", { class: "under" }, word));
    return el("li", { title: text, "aria-label": text }, el("span", { class: "pole" }, over, bar), under);
  });
  return el("ol", { class: "sticks" }, bars);
}

/** Lines over time; a span that is a change is shaded. ``series``: name, class, column of points. */
export function lines(points, series, change, unit) {
  const height = 120, end = Math.max(clock() / 1000, points.at(-1)[0]);
  const begin = Math.min(points[0][0], end - 60);
  const x = (at) => (WIDTH * (at - begin)) / (end - begin);
  const values = points.flatMap((point) => series.map(({ column }) => point[column] ?? 0));
  const most = nice(Math.max(...values, 1));
  const y = (value) => height - (height * value) / most;
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, preserveAspectRatio: "none",
    role: "img", "aria-label": described(points, series, unit) },
    shade(change, begin, end, x, height),
    [0.5, 1].map((part) => svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: height * (1 - part), y2: height * (1 - part) })),
    series.map(({ kind, column }) => path(points, kind, column, x, y)));
  const legend = series.map(({ name, kind, column }) =>
    el("span", { class: `key ${kind}` }, `${name} ${shown(points.at(-1)[column])}`));
  return el("figure", {},
    el("figcaption", {}, legend, el("span", { class: "quiet" }, `up to ${most} ${unit}, ${Math.round(end - begin)} s`)),
    drawing);
}

function described(points, series, unit) {
  return series.map(({ name, column }) => `${name}: now ${shown(points.at(-1)[column])} ${unit}`).join("; ");
}

function shown(value) {
  return value === null ? "–" : value < 10 ? Number(value.toFixed(1)) : Math.round(value);
}

function shade(change, begin, end, x, height) {
  if (!change || change.end < begin) return null;
  const left = x(Math.max(change.begin, begin));
  return svg("rect", { class: "change", x: left, y: 0, height,
    width: Math.max(2, x(Math.min(change.end, end)) - left) });
}

/** A gap in time is a gap in the line. */
function path(points, kind, column, x, y) {
  let d = "", before = null;
  for (const point of points) {
    if (point[column] === null) { before = null; continue; }
    const joins = before !== null && point[0] - before < 10;
    d += `${joins ? "L" : "M"}${x(point[0]).toFixed(1)} ${y(point[column]).toFixed(1)}`;
    before = point[0];
  }
  return svg("path", { class: `line ${kind}`, d });
}

function nice(value) {
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * size).find((top) => top >= value);
}
