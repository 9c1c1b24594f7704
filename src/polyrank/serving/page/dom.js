// Elements without markup: texts are always text.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

function filled(node, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.setAttribute("class", value);
    else if (name === "vars")
      for (const [key, each] of Object.entries(value)) node.style.setProperty(key, each);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(
    ...children
      .flat(Infinity)
      .filter((each) => each !== null && each !== undefined && each !== false),
  );
  return node;
}

/** An element of HTML: `h("p", {class: "note"}, "text", child)`. */
export const h = (tag, properties, ...children) =>
  filled(document.createElement(tag), properties, children);

/** An element of SVG. */
export const s = (tag, properties, ...children) =>
  filled(document.createElementNS(SVG, tag), properties, children);

export const hidden = (text) => h("span", { class: "visually-hidden" }, text);

export const whole = (number) => number.toLocaleString("en");

/** Milliseconds as people read them. */
export function time(ms) {
  if (ms >= 10000) return `${(ms / 1000).toFixed(0)} s`;
  if (ms >= 1000) return `${(ms / 1000).toFixed(1)} s`;
  return ms >= 10 ? `${ms.toFixed(0)} ms` : `${ms.toFixed(1)} ms`;
}

/** A number with about three digits. */
export function short(value) {
  const size = Math.abs(value);
  if (size >= 100) return value.toFixed(0);
  return size >= 10
    ? value.toFixed(1)
    : size >= 0.001 || size === 0
      ? value.toFixed(3)
      : value.toExponential(0);
}

export const percent = (share) =>
  share >= 0.0995 ? `${(100 * share).toFixed(0)}%` : `${(100 * share).toFixed(1)}%`;

export function plural(count, noun) {
  return `${whole(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** Copies a text; whether it could. */
export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // no secure context, or not allowed
    const field = h("textarea", { class: "visually-hidden", "aria-hidden": "true" });
    const focused = document.activeElement;
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    focused?.focus();
    return done;
  }
}
