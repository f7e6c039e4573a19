// What several pages show: names that lead to their objects, phases, bars.

import { h, link } from "./dom.js";
import { number, percent } from "./quantity.js";

export const PHASES = ["Pending", "Admitted", "Running", "Evicting", "Finished", "Deactivated"];

/** Names that are longer than their column are cut by the style sheet; the whole is in the title. */
export function name(text, href, attributes = {}) {
  return h("a", { href, class: "name", title: text, ...attributes }, h("bdi", {}, text));
}

/** The name that people know a gang by: its owner's, else its own. */
export function known(gang) {
  return gang.owner ? gang.owner.name : gang.metadata.name;
}

export function gangLink(namespace, own, label = own, attributes = {}) {
  return name(label, link(["gangs", namespace, own]), attributes);
}

export function queueLink(queue) {
  return queue ? name(queue, link(["gangs"], { queue })) : h("span", { class: "none" }, "no queue");
}

export function nodeLink(node) {
  return name(node, link(["nodes"], { node }));
}

export function phase(text) {
  return h("span", { class: `phase ${text.toLowerCase()}` }, text);
}

export function reason(text, attributes = {}) {
  return text ? h("span", { class: "reason", ...attributes }, text) : null;
}

/** A value, or a word for its absence: not set is not 0. */
export function or(value, absent) {
  return value === null || value === undefined || value === "" ? h("span", { class: "none" }, absent) : value;
}

export function plural(count, one, many = `${one}s`) {
  return `${count} ${count === 1 ? one : many}`;
}

/**
 * One resource of a queue as a bar: in use within the quota, borrowed above it, and waited for; a tick at the quota, and a
 * wall at the limit. Without a limit the bar has an open end, and is at most twice as long as what is used or entitled to,
 * however much is waited for. Without a quota nothing counts as borrowed.
 */
export function bar(resource) {
  const used = number(resource.used);
  const quota = number(resource.quota);
  const limit = number(resource.limit);
  const pending = number(resource.pending);
  const known = Math.max(quota ?? 0, used);
  const whole = limit ?? Math.max(known, known > 0 ? Math.min(used + pending, 2 * known) : pending);
  const own = quota === null ? used : Math.min(used, quota);
  const over = used + pending > whole;
  const segment = (kind, from, length) =>
    length > 0 && h("span", { class: `segment ${kind}`, style: { left: percent(from, whole), width: percent(Math.min(length, whole - from), whole) } });
  return h(
    "div",
    { class: `bar${limit === null ? " open" : ""}`, role: "img", "aria-label": told(resource) },
    segment("own", 0, own),
    segment("borrowed", own, used - own),
    segment("pending", used, pending),
    quota !== null && whole > 0 && h("span", { class: "quota", style: { left: percent(quota, whole) } }),
    over && h("span", { class: "more", title: limit === null ? "more is waited for than is drawn" : "more is waited for than the limit allows" }),
  );
}

function told(resource) {
  const parts = [`${resource.name}: ${resource.used} used`];
  const borrowed = above(resource);
  if (borrowed) parts.push(`${borrowed} of it borrowed`);
  parts.push(resource.quota === null ? "no quota" : `quota ${resource.quota}`);
  parts.push(resource.limit === null ? "no limit" : `limit ${resource.limit}`);
  parts.push(`${resource.pending} waited for`);
  return parts.join(", ");
}

/** What a queue uses above its quota, as text; "" where that is nothing, or cannot be written as a plain number. */
export function above(resource) {
  const [used, quota] = [number(resource.used), number(resource.quota)];
  if (quota === null || !(used > quota)) return "";
  const plainly = (text) => /^[0-9]+$/.test(text);
  if (plainly(resource.used) && plainly(resource.quota)) return String(used - quota);
  const milli = (value) => Math.round(value * 1000);
  return used < 1e9 ? `${milli(used) - milli(quota)}m` : "";
}

export function legend() {
  const entry = (kind, text) => h("span", { class: "entry" }, h("span", { class: `swatch ${kind}` }), text);
  return h(
    "p",
    { class: "legend" },
    entry("own", "in use"),
    entry("borrowed", "borrowed: in use above the quota"),
    entry("pending", "waited for"),
    entry("tick", "quota"),
    entry("wall", "limit"),
  );
}

/** A table: `columns` are {key, title, class, sort}; `rows` are arrays of cells, or {key, cells, class}. */
export function table(columns, rows, { label, sorted = "", sortLink = null } = {}) {
  const head = columns.map((column) => {
    const ascending = sorted === column.sort;
    const descending = sorted === `-${column.sort}`;
    const order = !column.sort ? null : ascending ? "ascending" : descending ? "descending" : "none";
    const title = column.sort && sortLink
      ? h("a", { href: sortLink(ascending ? `-${column.sort}` : column.sort), class: "sort" }, column.title,
          h("span", { "aria-hidden": "true", class: "arrow" }, ascending ? " ↑" : descending ? " ↓" : ""))
      : column.title;
    return h("th", { scope: "col", class: column.class, "aria-sort": order }, title);
  });
  const body = rows.map(({ key, cells, class: kind }) =>
    h("tr", { "data-key": key, class: kind }, cells.map((cell, index) => h("td", { class: columns[index].class, "data-title": columns[index].title || null }, cell))),
  );
  return h("div", { class: "scroll" }, h("table", { "aria-label": label }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

/** What is said where there is nothing to show. */
export function empty(...text) {
  return h("p", { class: "empty" }, text);
}

export function code(text) {
  return h("code", { class: "command" }, text);
}
