// Kubernetes quantities. They are shown as they came; numbers are needed only for the lengths of bars.

const UNITS = {
  n: 1e-9, u: 1e-6, m: 1e-3, "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};

/** `500m` → 0.5; null stays null: not set is not 0. NaN for what is no quantity. */
export function number(text) {
  if (text === null || text === undefined) return null;
  const found = /^([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)$/.exec(text);
  return found && found[2] in UNITS ? Number(found[1]) * UNITS[found[2]] : NaN;
}

/** A part of a whole as a CSS length, 0 % to 100 %. */
export function percent(part, whole) {
  if (!(whole > 0)) return "0%";
  return `${Math.min(100, Math.max(0, (100 * part) / whole)).toFixed(2)}%`;
}

/** What people queue for, if there is any of it: devices before cpu and memory. Else all names. */
export function devices(names) {
  const found = names.filter((name) => name.includes("/") && !name.startsWith("hugepages-"));
  return found.length ? found : names;
}

/** `nvidia.com/gpu` → `gpu`, where the whole name stands nearby. */
export function short(resource) {
  return resource.slice(resource.lastIndexOf("/") + 1);
}
