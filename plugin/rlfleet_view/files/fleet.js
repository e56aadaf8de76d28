// Draws one fleet. A part is drawn again only when its data differs: focus and scroll stay.

import { lines, windows } from "./charts.js";
import { card, cell, el, millis, pill, prose, since, table } from "./dom.js";

const PARTS = [
  ["head", (fleet) => [fleet.name, fleet.namespace, fleet.state, fleet.tone, fleet.summary], head],
  ["actions", (fleet) => [fleet.actions, fleet.rights, fleet.readOnly, fleet.key], actions],
  ["alerts", (fleet) => fleet.alerts, alerts],
  ["facts", (fleet) => fleet.facts, facts],
  ["rollout", (fleet) => fleet.rollout, rollout],
  ["workers", (fleet) => [fleet.workers, fleet.leftOut], workers],
  ["windows", (fleet) => fleet.windows, pauses],
  ["load", (fleet) => [fleet.load, fleet.rollout], load],
  ["history", (fleet) => fleet.history, history],
  ["conditions", (fleet) => fleet.conditions, conditions],
];

/** Draws fleets into an element. */
export class FleetView {
  constructor(root, act) {
    this.root = root;
    this.act = act;
    this.drawn = new Map();
  }

  show(fleet) {
    if (this.key !== fleet.key) {
      this.key = fleet.key;
      this.drawn.clear();
      this.root.replaceChildren(...PARTS.map(([name]) => el("div", { id: `part-${name}`, class: "part" })));
    }
    for (const [name, data, draw] of PARTS) {
      const text = JSON.stringify(data(fleet)) ?? "";
      if (this.drawn.get(name) === text) continue;
      this.drawn.set(name, text);
      const children = [draw(fleet, this.act)].flat(Infinity).filter(Boolean);
      document.getElementById(`part-${name}`).replaceChildren(...children);
    }
  }

  say(text) {
    this.key = undefined;
    this.root.replaceChildren(el("p", { class: "empty" }, text));
  }
}

function head(fleet) {
  return el("div", { class: "head" },
    el("h1", { class: "break" }, fleet.name), el("span", { class: "quiet" }, fleet.namespace),
    pill(fleet.tone, fleet.state), el("p", { class: "summary break" }, fleet.summary));
}

function actions(fleet, act) {
  if (fleet.readOnly) return el("p", { class: "quiet read-only" }, fleet.readOnly);
  if (!fleet.rights) return null;
  if (!fleet.rights.patch) return el("p", { class: "quiet read-only" }, fleet.rights.why);
  const denied = fleet.rights.denied, all = fleet.actions ?? [];
  const kept = all.filter((action) => action.name in denied);
  return [
    el("div", { class: "actions" }, all.filter((action) => !(action.name in denied)).map((action) =>
      el("button", { type: "button", "data-action": action.name, class: action.kind, click: () => act(fleet, action) }, action.label))),
    kept.length > 0 && el("p", { class: "quiet denied break" }, `not yours: ${kept.map((action) => action.label).join(", ")} (${denied[kept[0].name]})`)];
}

function alerts(fleet) {
  return fleet.alerts.map((alert) => el("section", { class: `alert ${alert.tone}` },
    el("h2", {}, `${alert.type}: ${alert.reason}`),
    el("p", { class: "break" }, alert.message),
    alert.todo.length > 0 && el("ul", {}, alert.todo.map((text) => el("li", { class: "break" }, prose(text))))));
}

function facts(fleet) {
  return el("dl", { class: "facts" }, fleet.facts.map((fact) =>
    el("div", {}, el("dt", {}, fact.name), el("dd", { class: "break" }, fact.value ?? "–"), el("dd", { class: "quiet" }, fact.about))));
}

function rollout({ rollout: it }) {
  if (!it) return card("Rollout", el("p", { class: "empty" }, "This fleet has had no rollout."));
  const took = it.seconds === null ? "" : `, took ${Number(it.seconds.toFixed(1))} s`;
  return card(`Rollout ${it.id}`,
    el("p", { class: "way break" }, el("strong", {}, it.from), " → ", el("strong", {}, it.to), pill(it.tone, it.phase)),
    el("p", { class: "quiet" }, `${it.strategy}, by ${it.reason}, began `, since(it.startedAt), took),
    it.bars.map(bar),
    [it.now, it.message].filter(Boolean).map((text) => el("p", { class: "break" }, text)),
    it.steps.length > 0 && el("dl", { class: "steps" }, it.steps.map(step)));
}

function step({ name, minMs, medianMs, maxMs }) {
  const spread = minMs === maxMs ? "all workers" : `${millis(minMs)} to ${millis(maxMs)}`;
  return el("div", { class: name }, el("dt", {}, name), el("dd", {}, millis(medianMs)), el("dd", { class: "quiet" }, spread));
}

function bar({ name, done, text }) {
  const inner = el("span", { class: done >= 1 ? "good" : "busy" });
  inner.style.width = `${100 * Math.min(1, Math.max(0, done))}%`;
  return el("div", { class: "progress" }, el("span", {}, name),
    el("span", { class: "track", role: "progressbar", "aria-label": name, "aria-valuenow": Math.round(100 * done), "aria-valuemin": 0, "aria-valuemax": 100 }, inner),
    el("span", { class: "quiet" }, text));
}

function workers({ workers: rows, leftOut }) {
  return card("Workers",
    rows.length === 0 && el("p", { class: "empty" }, "No worker is listed."),
    el("ul", { class: "workers" }, rows.map((row) => el("li", { class: row.tone },
      el("div", { class: "worker" },
        el("strong", { class: "break" }, row.name), pill(row.tone, row.phase),
        el("span", { class: "version break" }, row.version || "no version proved")),
      row.message && el("p", { class: "break" }, row.message),
      el("p", { class: "quiet break" },
        [row.ready ? "in traffic" : "not in traffic", row.windowMs !== null && `window ${millis(row.windowMs)}`,
          row.proof.length > 0 && `proof: ${row.proof.join(", ")}`, row.adapters.length > 0 && `adapters: ${row.adapters.join(", ")}`].filter(Boolean).join(" · "))))),
    leftOut > 0 && el("p", { class: "quiet" }, `and ${leftOut} that status leaves out`));
}

function pauses(fleet) {
  if (fleet.windows.length === 0) return card("Windows", el("p", { class: "empty" }, "No rollout with a window is recorded."));
  return card("Windows", el("p", { class: "quiet" }, "How long requests waited at a worker in each rollout: median, in ms"), windows(fleet.windows));
}

function load(fleet) {
  const title = "Tokens and waiting requests";
  if (!fleet.load) return card(title, el("p", { class: "empty" }, "Asking the engines for their metrics…"));
  const { points, note } = fleet.load;
  const change = span(fleet.rollout);
  return card(title,
    points.length === 0 ? null : [
      lines(points, [{ name: "tokens/s", kind: "tokens", column: 1 }], change, "tokens/s"),
      lines(points, [{ name: "running", kind: "running", column: 2 }, { name: "waiting", kind: "waiting", column: 3 }], change, "requests")],
    el("p", { class: "quiet" }, "From vLLM's metrics, since this page looks at them; shaded: the last rollout"),
    note && el("p", { class: "quiet break" }, note));
}

function span(it) {
  if (!it) return null;
  const begin = Date.parse(it.startedAt) / 1000;
  return { begin, end: it.underWay ? Infinity : begin + (it.seconds ?? 0) };
}

function history(fleet) {
  if (fleet.history.length === 0) return null;
  return card("History", table(["ID", "From", "To", "Result", "By", "Began", "Took", "Window", "Bytes", "Why"],
    fleet.history.map((row) => [row.id, row.from, row.to, pill(row.tone, row.phase), row.reason, since(row.startedAt),
      row.seconds === null ? null : `${row.seconds.toFixed(1)} s`, millis(row.windowMs), row.bytes, cell("why", row.message || "–")])));
}

function conditions(fleet) {
  if (fleet.conditions.length === 0) return null;
  return card("Conditions", table(["Type", "Status", "Reason", "Message"], fleet.conditions.map((row) =>
    [row.type, row.current ? row.status : `${row.status} (of an earlier spec)`, row.reason, cell("why", row.message)])));
}
