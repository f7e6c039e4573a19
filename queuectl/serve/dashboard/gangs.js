// Lists of gangs: those that wait, in their order and with the reason, and all others.

import { h, link } from "./dom.js";
import { PHASES, code, empty, gangLink, known, nodeLink, or, phase, plural, queueLink, reason, table } from "./parts.js";
import { devices, short } from "./quantity.js";
import { later, since } from "./time.js";

const LIMIT = 200; // rows; more are shown when asked for
const MOST = 5000;
const WAITING = "Pending,Deactivated";

const LISTS = {
  waiting: {
    title: "Waiting",
    phases: WAITING,
    sort: "position",
    columns: [
      { title: "#", class: "count position", sort: "position" },
      { title: "Gang", class: "gang", sort: "name" },
      { title: "Queue", class: "queue", sort: "queue" },
      { title: "Pods", class: "count pods", sort: "pods" },
      { title: "Needs", class: "need" },
      { title: "Waits for", class: "age", sort: "queued" },
      { title: "Why", class: "wide why", sort: "reason" },
    ],
  },
  gangs: {
    title: "Gangs",
    phases: "",
    sort: "name",
    columns: [
      { title: "Gang", class: "gang", sort: "name" },
      { title: "Queue", class: "queue", sort: "queue" },
      { title: "Phase", class: "phases", sort: "phase" },
      { title: "Running", class: "count running" },
      { title: "Pods", class: "count pods", sort: "pods" },
      { title: "Needs", class: "need" },
      { title: "Age", class: "age", sort: "queued" },
      { title: "Where, or why not", class: "wide why" },
    ],
  },
};

export function gangList(kind) {
  const list = LISTS[kind];
  const wanted = (query) => ({
    phase: query.get("phase") ?? list.phases,
    namespace: query.get("namespace"),
    queue: query.get("queue"),
    search: query.get("q"),
    sort: query.get("sort") ?? list.sort,
    limit: query.get("limit") ?? LIMIT,
  });
  return {
    title: () => list.title,
    filter: "gang, queue or reason",
    needs(route) {
      const asked = Object.entries(wanted(route.query)).filter(([, value]) => value);
      return { gangs: `gangs?${new URLSearchParams(asked)}` };
    },
    draw({ gangs }, { query, now }) {
      const at = (changes) => link([kind], { ...Object.fromEntries(query), ...changes });
      const rows = gangs.items.map((gang) => (kind === "waiting" ? waitingRow(gang, later(gangs.asOf, now)) : gangRow(gang, later(gangs.asOf, now))));
      const left = gangs.total - gangs.items.length;
      return [
        h("div", { class: "strip" }, chips(kind, query, gangs, at)),
        rows.length
          ? table(list.columns, rows, { label: list.title, sorted: query.get("sort") ?? list.sort, sortLink: (sort) => at({ sort }) })
          : nothing(kind, query),
        left > 0 && h("p", { class: "foot" }, `The first ${gangs.items.length} of ${gangs.total}. `,
          gangs.items.length < MOST && h("a", { href: at({ limit: MOST }) }, `Show ${Math.min(MOST, gangs.total)}`), gangs.items.length < MOST && ", or filter."),
      ];
    },
  };
}

function chips(kind, query, gangs, at) {
  const chosen = [];
  for (const key of ["queue", "namespace"]) {
    const value = query.get(key);
    if (value) chosen.push(h("a", { class: "chip on", href: at({ [key]: "" }), title: "show all" }, `${key} `, h("bdi", {}, value), h("span", { "aria-hidden": "true" }, " ×")));
  }
  const search = query.get("q") ?? "";
  if (kind === "waiting") {
    const reasons = Object.entries(gangs.reasons);
    const all = h("span", { class: "total" }, h("b", {}, String(gangs.total)), gangs.total === 1 ? " waits" : " wait");
    return [all, chosen, reasons.map(([text, count]) =>
      h("a", { class: `chip${search === text ? " on" : ""}`, href: at({ q: search === text ? "" : text }) }, text, " ", h("b", {}, String(count))))];
  }
  const phases = ["", ...PHASES].map((one) =>
    h("a", { class: `chip${(query.get("phase") ?? "") === one ? " on" : ""}`, href: at({ phase: one }), "aria-current": (query.get("phase") ?? "") === one ? "true" : null }, one || "All"));
  return [h("span", { class: "total" }, h("b", {}, String(gangs.total)), gangs.total === 1 ? " gang" : " gangs"), chosen, phases];
}

function nothing(kind, query) {
  if (query.get("q") || query.get("queue") || query.get("namespace") || query.get("phase")) {
    return empty("No gang fits. ", h("a", { href: link([kind]) }, "Show all"));
  }
  if (kind === "waiting") return empty("Nothing waits. ", h("a", { href: link(["gangs"]) }, "All gangs"));
  return empty("There is no gang yet. A Job with the label ", code("queuectl.io/queue"), " makes one.");
}

function title(gang) {
  const meta = gang.metadata;
  const kind = gang.owner ? gang.owner.kind : gang.single ? "Pod" : "PodGroup";
  const key = `gang/${meta.namespace}/${meta.name}`;
  return h("div", { class: "title" }, gangLink(meta.namespace, meta.name, known(gang), { "data-item": key }),
    h("span", { class: "aside" }, h("bdi", {}, meta.namespace), ` · ${kind}`));
}

/** `32 gpu`: devices, all of them together; the whole list is in the title. */
export function need(gang) {
  if (!gang.need) return or(null, "not known yet");
  const all = Object.entries(gang.need);
  const shown = devices(all.map(([resource]) => resource)).slice(0, 2);
  return h("span", { title: all.map(([resource, amount]) => `${amount} ${resource}`).join(", ") },
    shown.map((resource) => `${gang.need[resource]} ${short(resource)}`).join(", "));
}

function key(gang) {
  return gang.metadata.uid || `${gang.metadata.namespace}/${gang.metadata.name}`;
}

function waitingRow(gang, now) {
  return {
    key: key(gang),
    cells: [
      or(gang.position, "–"),
      title(gang),
      queueLink(gang.queue),
      String(gang.minMember),
      need(gang),
      since(gang.queuedAt, now) || or(null, "–"),
      h("div", { class: "cause" }, reason(gang.reason) ?? h("span", { class: "none" }, "not decided yet"), h("span", { class: "message" }, gang.message)),
    ],
  };
}

function gangRow(gang, now) {
  const where = gang.nodes.slice(0, 3).map((node, index) => [index ? ", " : "", nodeLink(node.name), node.pods > 1 ? ` ×${node.pods}` : ""]);
  const more = gang.nodes.length > 3 ? ` and ${gang.nodes.length - 3} more` : "";
  return {
    key: key(gang),
    cells: [
      title(gang),
      queueLink(gang.queue),
      phase(gang.phase),
      `${gang.counts.running}/${gang.minMember}`,
      gang.maxMember > gang.minMember ? `${gang.minMember}–${gang.maxMember}` : String(gang.minMember),
      need(gang),
      since(gang.queuedAt ?? gang.createdAt, now) || or(null, "–"),
      h("div", { class: "cause" }, gang.nodes.length ? h("span", { class: "where" }, where, more) : null,
        gang.reason ? [reason(gang.reason), h("span", { class: "message" }, gang.message)] : null),
    ],
  };
}
