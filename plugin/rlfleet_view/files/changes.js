// Changes of a fleet's spec: shows what would be patched, as the server checked it, then does it.

import { el, near } from "./dom.js";

const dialog = document.getElementById("dialog");

/** Open the dialog of an action; it patches only on a second click. */
export function begin(fleet, action) {
  const form = el("form", { method: "dialog" });
  const fields = action.fields.map((field) => input(field));
  const shown = el("div", { class: "shown" });
  const ok = el("button", { type: "submit", class: "primary" }, fields.length ? "Check" : "Checking…");
  // What was checked and is shown, and nothing else, is applied. An edit makes an answer a late one.
  const state = { checked: null, edits: 0 };
  form.append(
    el("h2", { id: "dialog-title", class: "break" }, `${action.label}: ${fleet.name}`),
    el("p", { class: "quiet" }, action.about), ...fields.map(({ label }) => label), shown,
    el("div", { class: "actions end" }, el("button", { type: "button", click: () => dialog.close() }, "Cancel"), ok));
  const body = () => ({ key: fleet.key, action: action.name, fields: Object.fromEntries(fields.map(({ name, node }) => [name, node.value.trim()])) });
  const reset = () => { state.checked = null; state.edits += 1; ok.textContent = "Check"; shown.replaceChildren(); };
  fields.forEach(({ node }) => node.addEventListener("input", reset));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (state.checked === null) check(body(), state, shown, ok);
    else apply(state.checked, state, shown, ok);
  });
  dialog.replaceChildren(form);
  dialog.showModal();
  if (fields.length === 0) check(body(), state, shown, ok);
}

function input({ name, label, value }) {
  const node = el("input", { name, value: value ?? "", autocomplete: "off", spellcheck: "false" });
  return { name, node, label: el("label", {}, el("span", {}, label), node) };
}

async function check(body, state, shown, ok) {
  ok.disabled = true;
  const edits = state.edits;
  const answer = await post({ ...body, dryRun: true });
  ok.disabled = false;
  if (edits !== state.edits) return;
  if (answer.error) {
    ok.textContent = "Check";
    shown.replaceChildren(el("p", { class: "refused break" }, answer.error));
    return;
  }
  state.checked = { ...body, generation: answer.generation };
  ok.textContent = "Apply";
  shown.replaceChildren(
    el("pre", { class: "break" }, answer.lines.join("\n")),
    ...answer.notes.map((note) => el("p", { class: "break" }, note)));
  ok.focus();
}

async function apply(body, state, shown, ok) {
  ok.disabled = true;
  const answer = await post({ ...body, dryRun: false });
  ok.disabled = false;
  if (!answer.error) {
    dialog.close();
    return;
  }
  state.checked = null;
  ok.textContent = "Check";
  shown.replaceChildren(el("p", { class: "refused break" }, answer.error));
}

async function post(body) {
  try {
    const answer = await fetch(near("change"), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
    return await answer.json();
  } catch {
    return { error: "the dashboard does not answer; is kubectl rlf dashboard still running?" };
  }
}
