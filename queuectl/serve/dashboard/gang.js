// One gang: why it waits and what would free it, or where it runs; its members and how far they have come.

import { h, link } from "./dom.js";
import { bar, code, empty, known, name, nodeLink, or, phase, plural, queueLink, reason, table } from "./parts.js";
import { devices, number, percent } from "./quantity.js";
import { later, since, stamp } from "./time.js";

const SHOWN = 500; // members
const STAGES = ["Gated", "Released", "Bound", "Running", "Succeeded", "Failed"];

export const gang = {
  title: (route) => route.path[2],
  needs(route) {
    const path = `namespaces/${encodeURIComponent(route.path[1])}/gangs/${encodeURIComponent(route.path[2])}`;
    return { gang: path, why: `explain/${path}` };
  },
  heading: ({ gang: found }) => [h("bdi", {}, known(found)), " ", phase(found.phase)],
  draw({ gang: found, why }, { now: told }) {
    const now = later(later(found.asOf, why.asOf), told);
    return [
      h("p", { class: "summary" }, sentence(found, why), " ", history(why, now)),
      why.blockers.length ? blockers(why.blockers, why.phase) : undecided(why),
      progress(found),
      h("div", { class: "columns" }, h("div", {}, path(why.path), places(found)), details(found, now)),
      members(found),
      h("p", { class: "foot" }, "The same in a terminal: ",
        code(`queuectl explain gang ${known(found)} -n ${found.metadata.namespace}`)),
    ];
  },
};

function sentence(found, why) {
  const kind = found.owner ? `${found.owner.kind} ` : found.single ? "Pod " : "PodGroup ";
  return [kind, h("b", {}, h("bdi", {}, known(found))), " in namespace ", h("bdi", {}, found.metadata.namespace), " ", why.summary, "."];
}

function history(why, now) {
  if (why.phase === "Pending" || why.phase === "Deactivated") {
    const waited = since(why.queuedAt, now);
    const others = why.position ? `; ${why.waiting === 1 ? "1 waits" : `${why.waiting} wait`} in its queue` : "";
    return waited ? `Queued ${waited} ago${others}.` : "";
  }
  const ran = since(why.admittedAt, now);
  return ran ? `Admitted ${ran} ago.` : "";
}

function undecided(why) {
  return why.phase === "Pending"
    ? empty("Nothing is known against it: the controller has not come to it yet.")
    : null;
}

function blockers(found, phaseOf) {
  const waits = phaseOf === "Pending" || phaseOf === "Deactivated";
  return h(
    "section",
    { "aria-labelledby": "why" },
    h("h2", { id: "why" }, waits ? "Why it waits" : "What is wrong", found.length > 1 && h("span", { class: "aside" }, ` ${found.length} reasons, the one that must go first on top`)),
    h("ol", { class: "blockers" }, found.map((blocker, index) => card(blocker, index))),
  );
}

function card(blocker, index) {
  const fields = [];
  const field = (title, value, kind = "") => fields.push(h("div", { class: kind }, h("dt", {}, title), h("dd", {}, value)));
  const of = blocker.of ? ` ${blocker.of}` : "";
  const amount = (text) => (text === "1" ? `1${of.replace(/s$/, "")}` : `${text}${of}`); // 1 pod, 2 pods
  const there = blocker.where.type === "queue" || blocker.of === "nodes" ? "Left" : blocker.of === "pods" ? "Room for" : "Has";
  if (blocker.need !== null) field("Needs", amount(blocker.need));
  if (blocker.have !== null) field(there, amount(blocker.have));
  field("Where", where(blocker));
  if (blocker.limit !== undefined) field("Limit", `${blocker.limit}${of}, ${blocker.used} in use`);
  if (blocker.short !== undefined) field("Short of", `${blocker.short.resource}: ${blocker.short.perPod} a pod, ${blocker.short.free} free there`);
  if (blocker.ever !== undefined && blocker.reason === "NeverFits") field("Room when empty", amount(blocker.ever));
  const [need, have] = [number(blocker.need), number(blocker.have)];
  const gauge = need !== null && have !== null && need > 0 &&
    h("div", { class: "gauge", role: "img", "aria-label": `${blocker.have} of ${blocker.need}${of}` },
      h("span", { style: { width: percent(have, need) } }));
  return h(
    "li",
    { class: index ? "blocker" : "blocker first", "data-key": `${blocker.reason}/${blocker.where.type}/${blocker.where.level ?? ""}/${blocker.where.name}/${blocker.of ?? ""}`, "data-item": `blocker/${index}`, "data-reason": blocker.reason },
    h("div", { class: "what" }, reason(blocker.reason), h("span", { class: "sentence" }, `${upper(blocker.sentence)}.`)),
    gauge,
    h("dl", { class: "fields" }, fields),
    h("p", { class: "remedy" }, h("b", {}, "What would free it "),
      blocker.remedy ? `${upper(blocker.remedy)}.` : h("span", { class: "none" }, "Only waiting helps.")),
  );
}

function where({ where: place }) {
  if (place.type === "queue") return ["queue ", queueLink(place.name)];
  if (place.type === "domain") return [`${place.level} `, name(place.name, link(["nodes"], { q: place.name }))];
  if (place.type === "nodes") return h("a", { href: link(["nodes"]) }, "the nodes");
  if (place.type === "cluster") return h("a", { href: link(["nodes"]) }, "the whole cluster");
  return "the gang itself";
}

function upper(text) {
  return /^[a-z]/.test(text) && !/^[a-z]+[A-Z./-]/.test(text) ? text[0].toUpperCase() + text.slice(1) : text;
}

function progress(found) {
  const counts = found.counts;
  const steps = [["members", "exist"], ["released", "released"], ["bound", "bound"], ["running", "run"], ["succeeded", "succeeded"]];
  return h(
    "section",
    { "aria-label": "How far it is" },
    h("ol", { class: "steps" }, steps.map(([stage, text]) =>
      h("li", { "data-key": stage, class: counts[stage] >= found.minMember && found.minMember > 0 ? "done" : counts[stage] ? "part" : "" },
        h("b", {}, String(counts[stage])), h("span", {}, `of ${found.minMember} `), text))),
  );
}

function path(queues) {
  if (!queues.length) return null;
  const names = [...new Set(queues.flatMap((queue) => queue.resources.map((resource) => resource.name)))];
  const shown = new Set(devices(names));
  const rows = queues.flatMap((queue) =>
    queue.resources.filter((resource) => shown.has(resource.name)).map((resource) => ({
      key: `${queue.metadata.name}/${resource.name}`,
      cells: [
        [queueLink(queue.metadata.name), queue.state !== "Open" && h("span", { class: `state ${queue.state.toLowerCase()}` }, queue.state)],
        bar(resource), resource.used, or(resource.quota, "no quota"), or(resource.limit, "no limit"), resource.pending,
      ],
    })));
  const columns = [
    { title: "Queue", class: "queue" }, { title: [...shown].join(", "), class: "bars" }, { title: "Used", class: "amount" },
    { title: "Quota", class: "amount" }, { title: "Limit", class: "amount" }, { title: "Waited for", class: "amount" },
  ];
  return h("section", {}, h("h2", {}, "Its queue, and those above it"), rows.length
    ? table(columns, rows, { label: "Its queue, and those above it" })
    : empty("They list no resource, and nothing is used."));
}

function places(found) {
  if (!found.nodes.length) return null;
  const columns = [{ title: "Node", class: "wide" }, { title: "Pods", class: "count" }];
  const rows = found.nodes.map((node) => ({ key: node.name, cells: [nodeLink(node.name), String(node.pods)] }));
  return h("section", {}, h("h2", {}, `Its places: ${plural(found.nodes.length, "node")}`), table(columns, rows, { label: "Nodes" }));
}

function topology(found) {
  const parts = [found.required && `one ${found.required} required`, found.preferred && `one ${found.preferred} preferred`].filter(Boolean);
  return parts.length ? parts.join(", ") : null;
}

function details(found, now) {
  const time = (text) => (text ? h("span", { title: `${since(text, now)} ago` }, stamp(text)) : null);
  const size = found.maxMember > found.minMember ? `${found.minMember} together, up to ${found.maxMember}` : `${found.minMember} together`;
  const each = found.roles.map((role) => [
    found.roles.length > 1 && h("b", {}, `${role.name || "member"}: ${role.minMember} × `),
    role.requests ? Object.entries(role.requests).filter(([resource]) => resource !== "pods").map(([resource, amount]) => `${amount} ${resource}`).join(", ") : "not known yet",
    topology(role) && ` (${topology(role)})`,
  ]);
  const pairs = [
    ["Queue", queueLink(found.queue)],
    ["Pods", size],
    ["Each asks for", each.length ? each.map((text) => h("div", {}, text)) : null],
    ["Topology", topology(found)],
    ["Position", found.position],
    ["Priority", String(found.priority)],
    ["Created", time(found.createdAt)],
    ["Queued", time(found.queuedAt)],
    ["Admitted", time(found.admittedAt)],
    ["Round", found.round ? String(found.round) : null],
    ["Given back", found.requeues ? `${found.requeues} times` : null],
    ["PodGroup", found.single ? null : h("bdi", {}, found.metadata.name)],
  ];
  return h("section", { class: "details" }, h("h2", {}, "Details"),
    h("dl", { class: "pairs" }, pairs.map(([title, value]) => h("div", { "data-key": title }, h("dt", {}, title), h("dd", {}, or(value, "none"))))));
}

function members(found) {
  const pods = found.pods ?? [];
  const heading = h("h2", {}, "Members");
  if (!pods.length) {
    return h("section", {}, heading, empty(found.owner ? "It waits without pods: they are made when it is admitted." : "None of its pods exists yet."));
  }
  const roles = pods.some((pod) => pod.role);
  const extra = pods.some((pod) => pod.gates.length || pod.trouble);
  const columns = [
    { title: "Rank", class: "count" }, ...(roles ? [{ title: "Role" }] : []), { title: "Pod", class: "wide" },
    { title: "Stage", class: "stage" }, { title: "Node" }, ...(extra ? [{ title: "Other gates, trouble", class: "wide" }] : []),
  ];
  const rows = pods.slice(0, SHOWN).map((pod) => ({
    key: pod.name,
    cells: [
      or(pod.rank, "–"), ...(roles ? [or(pod.role, "–")] : []), h("span", { class: "name", title: pod.name }, h("bdi", {}, pod.name)),
      stage(pod.stage), pod.node ? nodeLink(pod.node) : or(null, "none yet"),
      ...(extra ? [[pod.gates.map((gate) => h("span", { class: "reason" }, gate)), pod.trouble]] : []),
    ],
  }));
  return h("section", {}, heading, table(columns, rows, { label: "Members" }),
    pods.length > SHOWN && h("p", { class: "foot" }, `The first ${SHOWN} of ${pods.length}.`));
}

function stage(text) {
  const far = STAGES.indexOf(text);
  return h("span", { class: `stage ${text.toLowerCase()}` }, far >= 0 && far < 4 ? h("span", { class: "dots", "aria-hidden": "true" }, "●".repeat(far + 1), h("i", {}, "●".repeat(3 - far))) : null, text);
}
