// Elements from data. Text is only ever text: nothing here, and nothing that uses it, parses HTML.

// Characters that would reorder or hide what stands beside them; the command line writes them out the same way.
const HOSTILE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb\ud800-\udfff\u{e0000}-\u{e0fff}]/gu;

/** The text with every such character written out: `\x1b`, `\u202e`. */
export function plain(text) {
  return String(text).replace(HOSTILE, (found) => {
    const code = found.codePointAt(0);
    if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
    return code < 0x10000 ? `\\u${code.toString(16).padStart(4, "0")}` : `\\U${code.toString(16).padStart(8, "0")}`;
  });
}

/** An element. `style` is an object of CSS properties; absent attributes are null or false; children are nodes or text. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "style") for (const [property, amount] of Object.entries(value)) element.style.setProperty(property, amount);
    else element.setAttribute(name, value === true ? "" : plain(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : plain(child));
  }
  return element;
}

/** A link inside the page: `link(["gangs", namespace, name], {q: "x"})`. */
export function link(path, query = {}) {
  const found = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${found ? `?${found}` : ""}`;
}

/**
 * Make the children of `parent` like `fresh`, changing only what differs, so that focus, selection, scrolling and whatever
 * the mouse is on survive an update. Elements with a `data-key` are the same as long as the key is.
 */
export function morph(parent, fresh) {
  const focused = document.activeElement;
  children(parent, fresh.flat(Infinity).filter(Boolean));
  if (focused && focused !== document.activeElement && focused.isConnected && parent.contains(focused)) {
    focused.focus({ preventScroll: true }); // it was moved, which takes the focus away
  }
}

function children(parent, fresh) {
  const keyed = new Map();
  for (const child of parent.children) if (child.dataset.key !== undefined) keyed.set(child.dataset.key, child);
  let place = parent.firstChild;
  for (const next of fresh) {
    const key = next.dataset?.key;
    let match = null;
    if (key !== undefined) match = keyed.get(key) ?? null;
    else if (place && place.dataset?.key === undefined) match = place;
    if (match && !alike(match, next)) match = null;
    if (!match) {
      parent.insertBefore(next, place);
      continue;
    }
    keyed.delete(key);
    if (match === place) place = place.nextSibling;
    else parent.insertBefore(match, place);
    update(match, next);
  }
  while (place) {
    const gone = place;
    place = place.nextSibling;
    gone.remove();
  }
}

function alike(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName;
}

function update(old, next) {
  if (next.dataset?.same !== undefined) return; // its page knows that nothing in it has changed
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.nodeValue !== next.nodeValue) old.nodeValue = next.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) if (!next.hasAttribute(name) && name !== "tabindex") old.removeAttribute(name);
  for (const { name, value } of next.attributes) {
    if (name === "style") continue;
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  // By way of the object: the policy of the page forbids style attributes.
  if (old.style.cssText !== next.style.cssText) old.style.cssText = next.style.cssText;
  children(old, [...next.childNodes]);
}
