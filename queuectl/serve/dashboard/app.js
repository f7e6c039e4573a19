// The page: which part is shown (the hash), what it needs (the API), and when it is asked for again (live.js).

import { Failure, Reader } from "./api.js";
import { h, link, morph, plain } from "./dom.js";
import { gang } from "./gang.js";
import { gangList } from "./gangs.js";
import * as keys from "./keys.js";
import { Live } from "./live.js";
import { nodes } from "./nodes.js";
import { empty } from "./parts.js";
import { queues } from "./queues.js";
import { later, stamp } from "./time.js";

const REST = 300; // ms between two readings, so that a busy cluster does not keep the browser busy
const AGAIN = 3000; // ms after which a reading that failed is tried again
const TYPED = 200; // ms after the last key before a filter takes effect
const QUIET = 4000; // ms without a word from the controller before it is said so

const LISTS = { waiting: gangList("waiting"), gangs: gangList("gangs"), queues, nodes };
const THEMES = ["system", "light", "dark"];
const element = (id) => document.getElementById(id);

const reader = new Reader();
const left = new Map(); // page → the item that was left last, to come back to
let route = read();
let state = null; // the controller, as told last
let shown = null; // what is on the page: {paths, data, asOf, revision, leading}
let failure = null;
let reading = false;
let again = false;
let timer = 0;
let come = true; // the page was come to, and the focus is to be put
let live = null; // the line to the controller
let typing = 0;

function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  let parts;
  try {
    parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  } catch {
    parts = ["?"];
  }
  if (!parts.length) parts = ["queues"];
  return { path: parts, query: new URLSearchParams(query), key: parts.join("/") };
}

function page() {
  if (route.path.length === 1 && Object.hasOwn(LISTS, route.path[0])) return LISTS[route.path[0]];
  return route.path.length === 3 && route.path[0] === "gangs" ? gang : null;
}

// ---- reading

async function load() {
  clearTimeout(timer);
  if (document.hidden) return; // what is missed is asked for when somebody looks again
  if (reading) {
    again = true;
    return;
  }
  reading = true;
  do {
    again = false;
    const before = route;
    await once();
    if (again && before === route) await new Promise((resolve) => setTimeout(resolve, REST));
  } while (again && !document.hidden);
  reading = false;
}

async function once() {
  const [asked, current, told] = [route, page(), state];
  if (!current) return draw();
  const needs = current.needs(asked);
  const paths = Object.values(needs);
  reader.keep(paths);
  try {
    const answers = await Promise.all(paths.map((path) => reader.get(path)));
    if (asked !== route) return undefined;
    const data = Object.fromEntries(Object.keys(needs).map((name, index) => [name, answers[index]]));
    failure = null;
    shown = { key: asked.key, data, asOf: answers[0].asOf, revision: told?.revision, leading: told?.leading };
    if (told) shown.asOf = later(shown.asOf, told.asOf);
  } catch (problem) {
    if (asked !== route) return undefined;
    if (!(problem instanceof Failure)) throw problem;
    failure = problem;
    timer = setTimeout(load, AGAIN);
  }
  return draw();
}

// ---- drawing

function draw() {
  const main = element("main");
  const current = page();
  const valid = shown && shown.key === route.key;
  const now = valid ? shown.asOf : state?.asOf;
  document.title = `${plain(current ? current.title(route) : "Not found")} · queuectl`;
  for (const anchor of document.querySelectorAll("[data-nav]")) {
    const on = anchor.dataset.nav === route.path[0];
    if (on) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  let body;
  if (!current) body = [empty("There is no such page. ", h("a", { href: link(["queues"]) }, "Queues"))];
  else if (failure && (!valid || failure.status === 404)) body = failed(failure);
  else if (!valid) body = [h("p", { class: "loading" }, "Reading…")];
  else body = current.draw(shown.data, { query: route.query, now });
  const heading = valid && current?.heading ? current.heading(shown.data) : current ? current.title(route) : "Not found";
  morph(main, [
    h("div", { class: "head", "data-key": `head/${route.key}` }, h("h1", { tabindex: "-1", id: "heading" }, heading), current?.filter && field(current)),
    h("div", { class: "body", "data-key": `body/${route.key}`, "aria-busy": valid ? null : "true" }, body),
  ]);
  const asked = route.query.get("node") ? `node/${route.query.get("node")}` : left.get(route.key);
  const on = keys.rove(asked);
  if (come && (valid || failure || !current)) {
    come = false;
    if (asked && on?.dataset.item === asked) keys.focus(on);
    else if (document.activeElement === document.body || !document.activeElement?.isConnected) element("heading").focus({ preventScroll: true });
  }
  status();
}

function field(current) {
  return h("form", { class: "filter", role: "search" },
    h("label", { class: "hidden", for: "filter" }, `Filter by ${current.filter}`),
    h("input", { id: "filter", type: "search", placeholder: `Filter: ${current.filter}`, autocomplete: "off", spellcheck: "false", value: route.query.get("q") ?? "" }),
    h("kbd", { "aria-hidden": "true" }, "/"));
}

function failed(problem) {
  if (problem.status === 404) {
    const near = problem.nearest.map((name) => h("a", { class: "chip", href: link(["gangs", route.path[1], name]) }, h("bdi", {}, name)));
    return [
      h("p", { class: "empty" }, `${problem.message}. It may have ended and been deleted. `, h("a", { href: link(["gangs"], { q: route.path[2] }) }, "Look for it")),
      near.length > 0 && h("p", { class: "foot chips near" }, "Names like it: ", near),
    ];
  }
  return [h("p", { class: "error", role: "alert" }, h("b", {}, "This cannot be shown now. "), `${problem.message}. Trying again.`)];
}

/** The clock, the line to the controller, and what keeps the page from being the truth of this moment. */
function status() {
  const told = element("link");
  const silent = live?.silent ?? 0;
  const lost = silent > 0;
  const [kind, text] = lost ? ["lost", "reconnecting"] : !state ? ["wait", "connecting"] : [state.leading ? "good" : "wait", `${state.role}${live?.streaming ? "" : ", asking now and then"}`];
  told.className = `link ${kind}`;
  told.textContent = text;
  const asOf = shown && shown.key === route.key ? shown.asOf : state?.asOf;
  const clock = element("asof");
  if (asOf) clock.setAttribute("datetime", asOf);
  const [date, time = ""] = stamp(asOf).split(" ");
  morph(clock, [h("span", { class: "date" }, `${date} `), h("span", {}, time)]);
  const words = [];
  if (silent > QUIET) words.push(["error", `The controller has not answered for ${Math.round(silent / 1000)} s. This is how it was ${asOf ? `at ${stamp(asOf)}` : "before"}; trying again.`]);
  else if (failure && failure.status !== 404 && shown?.key === route.key) words.push(["error", `The last reading failed: ${failure.message}. This is how it was at ${stamp(asOf)}; trying again.`]);
  if (!lost && state) {
    if (state.behind > 2) words.push(["warn", `The controller has heard nothing from the API server for ${state.behind} s: what it shows may be old.`]);
    if (state.role === "standing by") words.push(["warn", `This controller stands by; ${state.leader} leads. Positions and reasons may be old or missing here.`]);
    else if (!state.ready) words.push(["warn", `Not ready (${state.role}): ${state.missing.join("; ")}.`]);
  }
  morph(element("banner"), words.map(([level, sentence]) => h("p", { class: level }, sentence)));
  element("main").classList.toggle("stale", silent > QUIET || (!lost && state !== null && state.behind > 2));
}

// ---- what happens

function moved() {
  const before = route;
  route = read();
  failure = null;
  if (before.key !== route.key) {
    come = true;
    shown = null;
  }
  const current = page();
  const same = shown && current && JSON.stringify(current.needs(before)) === JSON.stringify(current.needs(route));
  draw();
  if (!same) load();
}

function heard(told) {
  const news = !shown || shown.revision !== told.revision || shown.leading !== told.leading;
  state = told;
  if (failure || news) {
    status();
    load();
  } else {
    shown.asOf = later(shown.asOf, told.asOf);
    draw(); // the ages
  }
}

function theme() {
  const root = document.documentElement;
  const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? "system") + 1) % THEMES.length];
  if (next === "system") delete root.dataset.theme;
  else root.dataset.theme = next;
  try {
    localStorage.setItem("queuectl-theme", next);
  } catch {
    // It holds until the page is left.
  }
  label();
}

function label() {
  element("theme").textContent = `Theme: ${document.documentElement.dataset.theme ?? "system"}`;
}

function search(words) {
  const query = new URLSearchParams(route.query);
  if (words) query.set("q", words);
  else query.delete("q");
  history.replaceState(history.state, "", link(route.path, Object.fromEntries(query)));
  moved();
}

function back(typing) {
  if (typing) {
    element("heading").focus({ preventScroll: true });
    return true;
  }
  if (route.path.length > 1) {
    if (history.state?.inside) history.back();
    else location.hash = link(["waiting"]);
    return true;
  }
  if (route.query.get("q") || route.query.get("node")) {
    const rest = Object.fromEntries([...route.query].filter(([name]) => name !== "q" && name !== "node"));
    const input = element("filter");
    if (input) input.value = "";
    history.replaceState(history.state, "", link(route.path, rest));
    moved();
    return true;
  }
  return false;
}

const actions = {
  keys: () => element("keys").showModal(),
  theme,
  back,
  filter: () => element("filter")?.focus(),
  skip: () => element("main").focus(),
};

document.addEventListener("click", (event) => {
  const action = event.target.closest("[data-action]");
  if (action) {
    event.preventDefault();
    actions[action.dataset.action]();
    return;
  }
  const node = event.target.closest("[data-node]");
  if (node) {
    const query = { ...Object.fromEntries(route.query), node: node.dataset.node === route.query.get("node") ? "" : node.dataset.node };
    history.replaceState(history.state, "", link(route.path, query));
    moved();
    return;
  }
  const item = event.target.closest("[data-item]");
  if (item) left.set(route.key, item.dataset.item);
});
document.addEventListener("submit", (event) => {
  if (event.target.method !== "dialog") event.preventDefault();
});
for (const kind of ["pointerover", "focusin"]) {
  document.addEventListener(kind, (event) => {
    const node = event.target.closest?.("[data-node]");
    if (node) nodes.look(node.dataset.node);
  });
}
document.addEventListener("input", (event) => {
  if (event.target.id !== "filter") return;
  clearTimeout(typing);
  typing = setTimeout(() => search(event.target.value), TYPED);
});
window.addEventListener("hashchange", () => {
  if (!history.state) history.replaceState({ inside: true }, "");
  moved();
});
keys.listen(actions);
if (!history.state) history.replaceState({ inside: false }, "");
label();
draw();
load();
live = new Live(heard, status);
