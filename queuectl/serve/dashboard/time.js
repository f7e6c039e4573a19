// Times as the controller tells them. The browser's own clock plays no part: the controller's may run elsewhere and faster.

/** Milliseconds of an RFC 3339 time; null for none. */
export function at(text) {
  const found = text ? Date.parse(text) : NaN;
  return Number.isNaN(found) ? null : found;
}

/** A duration as kubectl writes it: `45s`, `3m10s`, `12m`, `5h2m`, `26h`, `3d4h`, `30d`. */
export function ago(milliseconds) {
  const seconds = Math.floor(Math.max(0, milliseconds) / 1000);
  const minutes = Math.floor(seconds / 60);
  const hours = Math.floor(seconds / 3600);
  const days = Math.floor(seconds / 86400);
  const two = (first, unit, second, part) => (second ? `${first}${unit}${second}${part}` : `${first}${unit}`);
  if (seconds < 120) return `${seconds}s`;
  if (minutes < 10) return two(minutes, "m", seconds % 60, "s");
  if (minutes < 180) return `${minutes}m`;
  if (hours < 8) return two(hours, "h", minutes % 60, "m");
  if (hours < 48) return `${hours}h`;
  if (days < 8) return two(days, "d", hours % 24, "h");
  if (days < 730) return `${days}d`;
  return days < 8 * 365 ? two(Math.floor(days / 365), "y", days % 365, "d") : `${Math.floor(days / 365)}y`;
}

/** Time from one RFC 3339 time to another, as text; "" where either is missing. */
export function since(from, to) {
  const [begin, end] = [at(from), at(to)];
  return begin === null || end === null ? "" : ago(end - begin);
}

/** The later of two RFC 3339 times. */
export function later(one, other) {
  return (at(one) ?? -Infinity) >= (at(other) ?? -Infinity) ? one : other;
}

/** `2026-11-30 10:00:00Z` */
export function stamp(text) {
  return text ? `${text.slice(0, 10)} ${text.slice(11, 19)}Z` : "…";
}
