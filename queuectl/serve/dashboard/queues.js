// The queue tree: who may use how much, uses it, and waits for more.

import { h, link } from "./dom.js";
import { above, bar, code, empty, legend, name, or, plural, reason, table } from "./parts.js";
import { devices } from "./quantity.js";

const COLUMNS = [
  { title: "Queue", class: "wide tree" },
  { title: "Resource", class: "resource" },
  { title: "", class: "bars" },
  { title: "Used", class: "amount used" },
  { title: "Borrowed", class: "amount borrowed" },
  { title: "Quota", class: "amount quota" },
  { title: "Limit", class: "amount limit" },
  { title: "Waited for", class: "amount pending" },
  { title: "Waiting", class: "count waiting" },
  { title: "Starting", class: "count starting" },
  { title: "Running", class: "count running" },
];

export const queues = {
  title: () => "Queues",
  needs: () => ({ queues: "queues" }),
  draw({ queues: found }, { query }) {
    const words = (query.get("q") ?? "").toLowerCase();
    const items = found.items.filter((queue) => !words || queue.path.some((part) => part.toLowerCase().includes(words)));
    if (!found.items.length) {
      return [empty("There is no queue yet. Create one: ", code("kubectl apply -f queue.yaml"), ", as the quickstart shows.")];
    }
    if (!items.length) return [empty(`None of ${plural(found.items.length, "queue")} has “${words}” in its path.`)];
    const all = [...new Set(found.items.flatMap((queue) => queue.resources.map((resource) => resource.name)))];
    const wide = query.get("resources") === "all";
    const shown = new Set(wide ? all : devices(all));
    const rows = items.flatMap((queue) => rowsOf(queue, queue.resources.filter((resource) => shown.has(resource.name))));
    const hidden = all.length - devices(all).length;
    return [
      h("div", { class: "strip" }, totals(found.items), legend()),
      table(COLUMNS, rows, { label: "Queues" }),
      hidden > 0 && h("p", { class: "foot" }, wide
        ? h("a", { href: link(["queues"], { q: query.get("q") }) }, "Devices only")
        : h("a", { href: link(["queues"], { q: query.get("q"), resources: "all" }) }, `All ${all.length} resources`)),
    ];
  },
  filter: "queue",
};

function totals(items) {
  const top = items.filter((queue) => queue.path.length === 1);
  const sum = (stage) => top.reduce((count, queue) => count + queue.counts[stage], 0);
  const figure = (count, text, href) => h("a", { href, class: "figure" }, h("b", {}, String(count)), ` ${text}`);
  return h(
    "p",
    { class: "figures" },
    figure(sum("pending"), "waiting", link(["waiting"])),
    figure(sum("admitted"), "starting", link(["gangs"], { phase: "Admitted" })),
    figure(sum("running"), "running", link(["gangs"], { phase: "Running" })),
  );
}

function rowsOf(queue, resources) {
  const own = queue.metadata.name;
  const depth = String(queue.path.length - 1);
  const count = (number, path, phase) =>
    number ? h("a", { href: link([path], { queue: own, phase }) }, String(number)) : h("span", { class: "none" }, "0");
  const title = h(
    "div",
    { class: "queue", style: { "--depth": depth } },
    name(own, link(["gangs"], { queue: own }), { "data-item": `queue/${own}`, class: queue.leaf ? "name" : "name inner" }),
    queue.state !== "Open" && h("span", { class: `state ${queue.state.toLowerCase()}` }, queue.state),
    queue.weight !== 1 && h("span", { class: "aside" }, `weight ${queue.weight}`),
    queue.priority !== 0 && h("span", { class: "aside" }, `priority ${queue.priority}`),
    queue.blockers.map((blocker) =>
      h("p", { class: "blocked" }, reason(blocker.reason), ` ${blocker.sentence}.`, blocker.remedy && ` ${sentence(blocker.remedy)}`)),
  );
  const counts = [
    count(queue.counts.pending, "waiting"),
    count(queue.counts.admitted, "gangs", "Admitted"),
    count(queue.counts.running, "gangs", "Running"),
  ];
  if (!resources.length) {
    const nothing = h("span", { class: "none" }, "nothing listed, used or waited for");
    return [{ key: `queue/${own}`, class: "first", cells: [title, "", nothing, "", "", "", "", "", ...counts] }];
  }
  return resources.map((resource, index) => ({
    key: `queue/${own}/${resource.name}`,
    class: index ? "more" : "first",
    cells: [
      index ? "" : title,
      h("span", { title: resource.name }, resource.name),
      bar(resource),
      resource.used,
      above(resource) || h("span", { class: "none" }, resource.quota === null ? "–" : "0"),
      or(resource.quota, "no quota"),
      or(resource.limit, "no limit"),
      resource.pending,
      ...(index ? ["", "", ""] : counts),
    ],
  }));
}

function sentence(text) {
  return `To change that, ${text}.`;
}
