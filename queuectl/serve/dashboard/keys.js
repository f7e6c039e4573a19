// Keyboard: one tab stop for each list, and letters for what is done often.

const PAGES = { 1: "#/queues", 2: "#/waiting", 3: "#/gangs", 4: "#/nodes" };

function items() {
  return [...document.querySelectorAll("#main [data-item]")];
}

/** After each update: only one item of a page is a tab stop, the one that was on last. */
export function rove(current = "") {
  const all = items();
  const on = all.find((item) => item === document.activeElement) ?? all.find((item) => item.dataset.item === current) ?? all[0];
  for (const item of all) {
    const wanted = item === on ? "0" : "-1";
    if (item.getAttribute("tabindex") !== wanted) item.setAttribute("tabindex", wanted);
  }
  return on;
}

export function focus(item) {
  if (!item) return;
  rove(item.dataset.item);
  item.focus();
  rove();
  item.scrollIntoView({ block: "nearest" });
}

function step(by) {
  const all = items();
  const here = all.indexOf(document.activeElement);
  if (here < 0) focus(all.find((item) => item.getAttribute("tabindex") === "0") ?? all[0]);
  else focus(all[Math.min(all.length - 1, Math.max(0, here + by))]);
}

// In a map, up and down go to the nearest node of the next row, whichever block it is in.
function jump(direction) {
  const here = document.activeElement;
  if (!here?.dataset.item) {
    step(1);
    return;
  }
  const from = here.getBoundingClientRect();
  let best = null;
  let least = Infinity;
  for (const item of items()) {
    const to = item.getBoundingClientRect();
    const down = (to.top - from.top) * direction;
    if (down < from.height / 2) continue;
    const distance = down * 10 + Math.abs(to.left - from.left); // a row nearer counts more than a column nearer
    if (distance < least) [best, least] = [item, distance];
  }
  focus(best);
}

/** `actions`: keys, theme, back, filter. */
export function listen(actions) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (document.querySelector("dialog[open]")) return; // its own Escape closes it
    const typing = event.target instanceof HTMLInputElement;
    if (event.key === "Escape") {
      if (!actions.back(typing)) return;
    } else if (typing) {
      if (event.key !== "ArrowDown") return;
      step(0);
    } else if (!act(event, actions)) {
      return;
    }
    event.preventDefault();
  });
  document.addEventListener("focusin", (event) => {
    if (event.target.dataset?.item) rove();
  });
}

function act(event, actions) {
  const grid = document.querySelector("#main [data-grid]") !== null;
  const all = items();
  const known = {
    j: () => step(1),
    k: () => step(-1),
    ArrowDown: () => (grid ? jump(1) : step(1)),
    ArrowUp: () => (grid ? jump(-1) : step(-1)),
    Home: () => focus(all[0]),
    End: () => focus(all[all.length - 1]),
    "/": actions.filter,
    "?": actions.keys,
    t: actions.theme,
    ...(grid ? { ArrowRight: () => step(1), ArrowLeft: () => step(-1) } : {}),
    ...Object.fromEntries(Object.entries(PAGES).map(([key, hash]) => [key, () => (location.hash = hash)])),
  };
  if (!Object.hasOwn(known, event.key)) return false;
  known[event.key]();
  return true;
}
