// The page: one stream of events, the list of fleets, the fleet that is chosen.

import { begin } from "./changes.js";
import { el, near, pill, setClock, tick } from "./dom.js";
import { FleetView } from "./fleet.js";

const LOAD_MS = 2000, RETRY_MS = [1000, 2000, 5000, 10000], RIGHTS_MS = 60000;
const fleets = new Map(), loads = new Map(), rights = new Map();
const view = new FleetView(document.getElementById("fleet"), begin);
let hello = {}, source = null, failures = 0, retry = null;

// --- the stream ----------------------------------------------------------------------------------

function connect() {
  clearTimeout(retry);
  source?.close();
  source = new EventSource(near("events"));
  source.addEventListener("hello", (event) => {
    hello = JSON.parse(event.data);
    setClock(hello.now);
    fleets.clear();
    hello.fleets.forEach((fleet) => fleets.set(fleet.key, fleet));
    failures = 0;
    link("live", "good");
    draw();
  });
  source.addEventListener("fleet", (event) => {
    const fleet = JSON.parse(event.data);
    fleets.set(fleet.key, fleet);
    draw();
  });
  source.addEventListener("gone", (event) => {
    fleets.delete(JSON.parse(event.data).key);
    draw();
  });
  source.addEventListener("problem", (event) => notice(JSON.parse(event.data).message));
  source.onerror = () => {
    // A browser retries some failures by itself and gives up on others: one way for all.
    source.close();
    link("reconnecting", "bad");
    retry = setTimeout(connect, RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)]);
  };
}

function link(text, tone) {
  const node = document.getElementById("link");
  node.className = `link ${tone}`;
  node.textContent = text;
}

function notice(text) {
  const node = document.getElementById("notice");
  node.hidden = !text;
  node.textContent = text;
}

// --- what is chosen ------------------------------------------------------------------------------

function chosen() {
  const named = decodeURIComponent(location.hash.slice(1));
  if (named) return fleets.get(named) ?? null;
  return fleets.values().next().value ?? null;
}

function draw() {
  document.getElementById("where").textContent = hello.where ?? "";
  drawList();
  const fleet = chosen();
  document.title = fleet ? `${fleet.name} · ${fleet.state} · rlfleet` : "rlfleet";
  if (!fleet) {
    view.say(location.hash ? "This fleet does not exist, or is deleted." : "No fleets here. Other namespaces: kubectl rlf dashboard -A");
    return;
  }
  view.show({ ...fleet, load: loads.get(fleet.key), rights: rights.get(fleet.key)?.said, readOnly: hello.readOnly });
  askRights(fleet);
}

function drawList() {
  const nav = document.getElementById("fleets"), at = chosen()?.key;
  document.body.classList.toggle("single", fleets.size < 2);
  const rows = [...fleets.values()].sort((one, other) => one.key.localeCompare(other.key));
  const text = JSON.stringify(rows.map((row) => [row.key, row.state, row.summary, row.key === at]));
  if (nav.dataset.drawn === text) return;
  nav.dataset.drawn = text;
  nav.replaceChildren(...rows.map((row) => el("a",
    { href: `#${encodeURIComponent(row.key)}`, class: "entry", "aria-current": row.key === at ? "page" : null },
    el("span", { class: "line" }, el("strong", { class: "break" }, row.name), pill(row.tone, row.state)),
    el("span", { class: "quiet break" }, row.namespace), el("span", { class: "break" }, row.summary))));
}

// --- what is asked for, only while somebody looks -----------------------------------------------

function query(fleet) {
  return new URLSearchParams({ namespace: fleet.namespace, name: fleet.name });
}

/** What the server says; null if it does not: the stream shows that it is gone. */
async function ask(path, fleet) {
  try {
    const answer = await fetch(near(`${path}?${query(fleet)}`));
    return answer.ok ? await answer.json() : null;
  } catch {
    return null;
  }
}

async function askRights(fleet) {
  const known = rights.get(fleet.key);
  if (hello.readOnly || (known && Date.now() - known.at < RIGHTS_MS)) return;
  rights.set(fleet.key, { at: Date.now(), said: known?.said });
  const said = await ask("rights", fleet);
  if (said === null) {
    rights.delete(fleet.key);
    return;
  }
  rights.set(fleet.key, { at: Date.now(), said });
  draw();
}

async function askLoad() {
  const fleet = document.hidden ? null : chosen();
  const said = fleet && failures === 0 ? await ask("load", fleet) : null;
  if (said !== null) {
    loads.set(fleet.key, said);
    draw();
  }
  setTimeout(askLoad, fleet ? LOAD_MS : LOAD_MS / 10);
}

addEventListener("hashchange", draw);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    clearTimeout(retry);
    source?.close();
    link("asleep", "busy");
  } else connect();
});
setInterval(tick, 1000);
connect();
askLoad();
