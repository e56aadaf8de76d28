// Makes elements. Strings only ever become text nodes: a fleet's names and messages are data.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element: attributes (a function is a listener, true an empty value), then children. */
export function el(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same for SVG. */
export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(key, value);
    else if (value !== false && value !== null && value !== undefined) {
      node.setAttribute(key, value === true ? "" : String(value));
    }
  }
  const present = children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false && c !== "");
  node.append(...present);
  return node;
}

/** A word with a coloured dot. */
export function pill(tone, text) {
  return el("span", { class: `pill ${tone}` }, text);
}

/** A section of the page with a heading. */
export function card(title, ...children) {
  return el("section", { class: "card" }, el("h2", {}, title), ...children);
}

/** A table that scrolls by itself where it does not fit; cells are strings, elements or null. */
export function table(head, rows) {
  const cells = (kind, row) => row.map((cell) => el(kind, cell?.attributes ?? {}, cell?.text ?? cell ?? "–"));
  const body = rows.map((row) => el("tr", {}, cells("td", row)));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": head.join(", ") },
    el("table", {}, el("thead", {}, el("tr", {}, cells("th", head))), el("tbody", {}, body)));
}

/** A cell with a class. */
export function cell(kind, text) {
  return { attributes: { class: kind }, text: text ?? "–" };
}

/** A text in which words between backticks are code. */
export function prose(text) {
  return text.split("`").map((part, at) => (at % 2 ? el("code", {}, part) : part));
}

/** The address of something next to the page, without a password that the page's own may have. */
export function near(path) {
  return new URL(path, location.origin + location.pathname).href;
}

// --- time ----------------------------------------------------------------------------------------

let ahead = 0;

/** Take the server's time: a browser's clock may be wrong. */
export function setClock(now) {
  ahead = now * 1000 - Date.now();
}

/** The server's time in milliseconds. */
export function clock() {
  return Date.now() + ahead;
}

/** An element that counts the time since. */
export function since(moment, suffix = " ago") {
  const node = el("time", { datetime: moment, title: moment, "data-suffix": suffix });
  count(node);
  return node;
}

function count(node) {
  const passed = (clock() - Date.parse(node.getAttribute("datetime"))) / 1000;
  node.textContent = age(passed) + node.getAttribute("data-suffix");
}

/** Count on in every such element. */
export function tick() {
  document.querySelectorAll("time").forEach(count);
}

/** A duration as kubectl writes it. */
export function age(seconds) {
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "m"]]) {
    if (seconds >= 2 * size) return `${Math.floor(seconds / size)}${unit}`;
  }
  return `${Math.max(0, Math.floor(seconds))}s`;
}

/** Milliseconds with a unit that reads well. */
export function millis(ms) {
  if (ms === null || ms === undefined) return null;
  return ms < 10000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}
