// The map: racks and their nodes, and on every node who holds which of its devices.

import { h, link, morph } from "./dom.js";
import { empty, gangLink, plural, queueLink } from "./parts.js";
import { devices, number, percent, short } from "./quantity.js";

const TILES = 16; // devices of a node that are drawn one by one; more, or parts of one, are drawn as a strip
const DENSE = 600; // nodes, above which a node is one small square
const COLOURS = 8;
const PATTERNS = 6;
const collator = new Intl.Collator("en", { numeric: true });

let looked = ""; // the node that the mouse or the focus is on, or was on last
let drawn = null; // what the panel needs to be drawn again: {nodes, legend, resource, chosen}
const printed = new Map(); // block → what it was drawn from

export const nodes = {
  title: () => "Nodes",
  filter: "node, rack, queue or gang",
  needs: ({ query }) => ({
    map: query.get("resource") ? `occupancy?${new URLSearchParams({ resource: query.get("resource") })}` : "occupancy",
    queues: "queues",
  }),
  draw({ map, queues }, { query }) {
    const legend = marks(queues.items, map);
    const words = (query.get("q") ?? "").toLowerCase();
    const blocks = chosen(map.blocks, words);
    const found = blocks.flatMap((block) => block.nodes);
    const all = map.blocks.reduce((count, block) => count + block.nodes.length, 0);
    const before = drawn?.chosen;
    drawn = { nodes: new Map(), legend, resource: map.resource, chosen: query.get("node") ?? "" };
    if (drawn.chosen && drawn.chosen !== before) looked = drawn.chosen;
    for (const block of map.blocks) for (const node of block.nodes) drawn.nodes.set(node.name, { node, block });
    if (!all) return [empty("There is no node yet.")];
    const dense = found.length > DENSE;
    const live = new Set([...document.querySelectorAll("#main .block")].map((element) => element.dataset.key));
    return [
      h("div", { class: "strip" }, figures(map, all), resources(map, query)),
      keys(map, legend),
      h("div", { class: "split" },
        found.length
          ? h("div", { class: `map${dense ? " dense" : ""}`, "data-grid": true }, blocks.map((block) => remembered(block, { legend, dense, resource: map.resource, chosen: drawn.chosen }, live)))
          : empty(`None of ${plural(all, "node")} fits. `, h("a", { href: link(["nodes"], { resource: query.get("resource") }) }, "Show all")),
        h("aside", { class: "panel", id: "panel", "aria-label": "Node" }, panel())),
    ];
  },
  /** The mouse or the focus came to a node. */
  look(name) {
    if (!drawn || looked === name) return;
    looked = name;
    const aside = document.getElementById("panel");
    if (aside) morph(aside, panel());
  },
};

/** Every queue's colour, pattern and letters. They depend on the queues' names alone, so they stay as gangs come and go. */
function marks(queues, map) {
  const leaves = new Set(queues.filter((queue) => queue.leaf).map((queue) => queue.metadata.name));
  for (const block of map.blocks) for (const node of block.nodes) for (const part of node.parts) leaves.add(part.queue);
  const taken = new Set();
  return new Map([...leaves].sort().map((queue, index) => [queue, { colour: index % COLOURS, pattern: index % PATTERNS, letters: letters(queue, taken) }]));
}

// Two letters of its name where they are free, else its first and any other, else a number.
function letters(queue, taken) {
  const plain = queue.toLowerCase().replace(/[^a-z0-9]/g, "") || "x";
  const seconds = [...plain.slice(1), ..."0123456789abcdefghijklmnopqrstuvwxyz"];
  const found = seconds.map((second) => plain[0].toUpperCase() + second).find((one) => !taken.has(one)) ?? String(taken.size);
  taken.add(found);
  return found;
}

function chosen(blocks, words) {
  const fits = (text) => text.toLowerCase().includes(words);
  return blocks
    .map((block) => {
      const whole = !words || block.domains.some((domain) => fits(domain.name));
      const kept = whole ? block.nodes : block.nodes.filter((node) => fits(node.name) || node.parts.some((part) => fits(part.queue) || fits(part.label) || fits(part.name)));
      return { ...block, nodes: [...kept].sort((one, other) => collator.compare(one.name, other.name)) };
    })
    .filter((block) => block.nodes.length)
    .sort((one, other) => (!one.domains.length) - (!other.domains.length) || collator.compare(label(one), label(other)));
}

function label(block) {
  return block.domains.map((domain) => domain.name).join(" / ");
}

function figures(map, all) {
  const figure = (value, text) => h("span", { class: "figure" }, h("b", {}, value), ` ${text}`);
  const name = map.resource || "resource";
  return h("p", { class: "figures" }, figure(`${map.used} of ${map.allocatable}`, `${name} in use`), figure(map.free, "free"),
    number(map.unusable) > 0 && figure(map.unusable, "free on nodes that cannot be used"), figure(String(all), all === 1 ? "node" : "nodes"));
}

function resources(map, query) {
  if (map.resources.length < 2) return null;
  const first = devices(map.resources);
  const offered = [...new Set([...first, ...map.resources.filter((name) => name === "cpu" || name === "memory"), map.resource])];
  return h("span", { class: "chips" }, offered.map((name) =>
    h("a", { class: `chip${name === map.resource ? " on" : ""}`, href: link(["nodes"], { q: query.get("q"), resource: name }), "aria-current": name === map.resource ? "true" : null }, name)));
}

function keys(map, legend) {
  const held = new Map();
  for (const block of map.blocks) for (const node of block.nodes) for (const part of node.parts) held.set(part.queue, (held.get(part.queue) ?? 0) + number(part.amount));
  const shown = [...legend].filter(([queue]) => held.has(queue));
  return h("p", { class: "legend" },
    shown.map(([queue, mark]) => h("span", { class: "entry", "data-key": `mark/${queue}` }, h("span", { class: `tile ${style(mark)}`, "aria-hidden": "true" }, mark.letters), queueLink(queue))),
    h("span", { class: "entry" }, h("span", { class: "tile free", "aria-hidden": "true" }), "free"),
    h("span", { class: "entry" }, h("span", { class: "tile other", "aria-hidden": "true" }), "other pods"),
    h("span", { class: "entry" }, h("span", { class: "tile out", "aria-hidden": "true" }), "cannot be used"));
}

function style(mark) {
  return `c${mark.colour} p${mark.pattern}`;
}

/** A block, or word that the one on the page is right as it is: so it is with most of thousands of nodes. */
function remembered(block, look, live) {
  const key = label(block) || "(none)";
  const print = JSON.stringify([block, look.dense, look.resource, look.chosen, [...look.legend].map(([queue, mark]) => [queue, style(mark)])]);
  const before = printed.get(key);
  printed.set(key, print);
  return before === print && live.has(key) ? h("section", { "data-key": key, "data-same": true }) : drawBlock(block, key, look);
}

function drawBlock(block, key, look) {
  const [fine, ...coarse] = [...block.domains].reverse();
  const title = fine
    ? [h("span", { class: "level" }, `${fine.level} `), h("bdi", {}, fine.name), coarse.reverse().map((domain) => h("span", { class: "aside" }, ` ${domain.level} ${domain.name}`))]
    : h("span", { class: "level" }, "in no rack or other level");
  return h(
    "section",
    { class: "block", "data-key": key, "aria-label": key },
    h("h3", {}, title, h("span", { class: "room" }, `${block.free} free of ${block.allocatable}`)),
    h("div", { class: "nodes" }, block.nodes.map((node) => drawNode(node, look))),
  );
}

function drawNode(node, look) {
  const attributes = {
    type: "button",
    class: `node${node.usable ? "" : " unusable"}${node.name === look.chosen ? " chosen" : ""}`,
    "data-key": `node/${node.name}`,
    "data-item": `node/${node.name}`,
    "data-node": node.name,
    "aria-label": told(node, look.resource),
  };
  if (look.dense) {
    const most = [...node.parts].sort((one, other) => number(other.amount) - number(one.amount))[0];
    const mark = most ? style(look.legend.get(most.queue)) : "other";
    return h("button", attributes, h("span", { class: `fill ${mark}`, style: { height: percent(number(node.used), number(node.allocatable)) } }));
  }
  return h("button", attributes, h("span", { class: "node-name" }, node.name), tiles(node, look.legend));
}

function told(node, resource) {
  const parts = node.parts.map((part) => `${part.queue}: ${part.label} ${part.amount}`);
  if (number(node.other) > 0) parts.push(`other pods ${node.other}`);
  return `${node.name}${node.usable ? "" : `, ${node.status}`}, ${node.free} of ${node.allocatable} ${short(resource)} free${parts.length ? `; ${parts.join("; ")}` : ""}`;
}

function tiles(node, legend) {
  const has = number(node.allocatable);
  const held = [...node.parts.map((part) => [number(part.amount), style(legend.get(part.queue)), legend.get(part.queue).letters]), [number(node.other), "other", ""]];
  const whole = Number.isInteger(has) && has <= TILES && held.every(([amount]) => Number.isInteger(amount));
  const rest = node.usable ? "free" : "out";
  if (!has) return h("span", { class: "tiles" }, h("span", { class: "none" }, "none"));
  if (whole) {
    const found = held.flatMap(([amount, kind, text]) => Array.from({ length: amount }, () => [kind, text])).slice(0, has);
    while (found.length < has) found.push([rest, ""]);
    return h("span", { class: "tiles", "aria-hidden": "true" }, found.map(([kind, text]) => h("span", { class: `tile ${kind}` }, text)));
  }
  return h("span", { class: `tiles strip-of ${rest}`, "aria-hidden": "true" }, held.filter(([amount]) => amount > 0)
    .map(([amount, kind]) => h("span", { class: `tile ${kind}`, style: { width: percent(amount, has) } })));
}

function panel() {
  const found = drawn.nodes.get(looked) ?? drawn.nodes.get(drawn.chosen);
  if (!found) return [h("p", { class: "none" }, "Point at a node, or move to it with the arrow keys, to see whose pods it holds.")];
  const { node, block } = found;
  return [
    h("h2", {}, h("bdi", {}, node.name)),
    h("p", { class: "aside" }, block.domains.map((domain) => `${domain.level} ${domain.name}`).join(" · ") || "in no rack or other level"),
    !node.usable && h("p", {}, node.status.split(",").map((cause) => [h("span", { class: `state ${cause === "Cordoned" ? "held" : "inactive"}` }, cause), " "]), "It takes nobody new."),
    h("dl", { class: "pairs" }, [["Resource", drawn.resource], ["Has", node.allocatable], ["In use", node.used], ["Free", node.free]].map(([title, value]) => h("div", {}, h("dt", {}, title), h("dd", {}, value)))),
    h("ul", { class: "parts" }, node.parts.map((part) => h("li", { "data-key": `${part.namespace}/${part.name}` },
      h("span", { class: `tile ${style(drawn.legend.get(part.queue))}`, "aria-hidden": "true" }, drawn.legend.get(part.queue).letters),
      h("span", { class: "title" }, gangLink(part.namespace, part.name, part.label), h("span", { class: "aside" }, h("bdi", {}, part.namespace), " · ", h("bdi", {}, part.queue))),
      h("span", { class: "amount" }, `${part.amount}`, h("span", { class: "aside" }, ` ${plural(part.pods, "pod")}`)))),
      number(node.other) > 0 && h("li", { "data-key": "other" }, h("span", { class: "tile other", "aria-hidden": "true" }), h("span", { class: "title" }, "pods of no queue"), h("span", { class: "amount" }, node.other))),
    !node.parts.length && !(number(node.other) > 0) && h("p", { class: "none" }, "Nothing runs here."),
  ];
}
