// The rankings side by side: scores, what moved between neighbours, and where the time went.

import { h, hidden, percent, plural, short, time, whole } from "./dom.js";

export const ARCHITECTURES = ["bi", "poly", "cross"];
export const NAMES = { bi: "Bi-encoder", poly: "Poly-encoder", cross: "Cross-encoder" };
const PARTS = [
  ["tokenise", "tokenise"],
  ["queue", "queue"],
  ["model", "model"],
  ["search", "search"],
  ["rest", "rest"],
];

/** What an architecture does, in a sentence. */
export function described(model) {
  if (model.architecture === "bi") return "One vector per text, one product per candidate.";
  if (model.architecture === "cross") return "Reads each pair of context and candidate anew.";
  return `${whole(model.num_vectors)} vectors per context, weighed by each candidate.`;
}

/** One column: its model, and what has come of it. */
export class Column {
  constructor(architecture, models, { choose, pick, hover }) {
    this.architecture = architecture;
    this.models = models;
    this.pick = pick;
    this.hover = hover;
    this.model = models[0];
    this.ranking = null; // [{key, text, score}], best first
    this.sent = {}; // the candidates that each model got from this page
    this.list = h("ol", {
      class: "hits",
      "aria-label": `Ranking of the ${NAMES[architecture].toLowerCase()}`,
    });
    this.time = h("div", { class: "times" });
    this.told = h("p", { class: "note told" });
    this.about = h("p", { class: "note about" });
    this.element = h(
      "article",
      { class: `column card ${architecture}`, "aria-label": NAMES[architecture] },
      h(
        "header",
        {},
        h("h3", {}, h("span", { class: "mark", "aria-hidden": "true" }), NAMES[architecture]),
        this.chooser(choose),
      ),
      this.about,
      this.time,
      this.told,
      this.list,
    );
    this.use(this.model.name);
  }

  chooser(choose) {
    if (this.models.length === 1) return h("span", { class: "model-name" }, this.models[0].name);
    this.select = h(
      "select",
      {
        "aria-label": `Model of the ${NAMES[this.architecture].toLowerCase()}`,
        onchange: () => {
          this.use(this.select.value);
          choose();
        },
      },
      this.models.map((model) => h("option", { value: model.name }, model.name)),
    );
    return this.select;
  }

  /** Takes another model of the architecture, if it is served. */
  use(name) {
    const model = this.models.find((each) => each.name === name);
    if (!model) return;
    this.model = model;
    if (this.select) this.select.value = name;
    this.about.textContent = described(model);
  }

  /** Whether this model gets some of the texts for the first time from this page. */
  isNewTo(texts) {
    const sent = (this.sent[this.model.name] ??= new Set());
    const isNew = texts.some((text) => !sent.has(text));
    for (const text of texts) sent.add(text);
    return isNew;
  }

  waiting(text) {
    this.ranking = null;
    this.element.setAttribute("aria-busy", "true");
    this.element.classList.remove("failed");
    this.time.replaceChildren(h("p", { class: "total" }, h("span", { class: "pulse" }, text)));
    this.told.textContent = "";
    this.list.replaceChildren();
  }

  fail(message) {
    this.ranking = null;
    this.element.removeAttribute("aria-busy");
    this.element.classList.add("failed");
    this.time.replaceChildren(h("p", { class: "error" }, message));
    this.told.textContent = "";
    this.list.replaceChildren();
  }

  stopped() {
    if (this.element.getAttribute("aria-busy") === "true") this.fail("Stopped.");
  }

  show(ranking, times, told) {
    this.ranking = ranking;
    this.ranks = new Map(ranking.map((each, place) => [each.key, place]));
    this.element.removeAttribute("aria-busy");
    this.told.textContent = told;
    this.time.replaceChildren(...timed(times));
  }

  /** Draws the best `shown`, with the moves from the column before. */
  draw(shown, before, selected) {
    if (!this.ranking) return;
    const [low, high] = [this.ranking.at(-1)?.score ?? 0, this.ranking[0]?.score ?? 0];
    const rows = this.ranking.slice(0, shown).map((each, place) =>
      this.hit(each, place, {
        share: high > low ? (each.score - low) / (high - low) : 1,
        move: before ? moved(before, each.key, place, shown) : null,
        isSelected: each.key === selected,
      }),
    );
    this.list.replaceChildren(...rows);
    if (!rows.length) this.list.append(h("li", { class: "none" }, "There are no candidates."));
    const first =
      this.list.querySelector("[aria-pressed=true]") ?? this.list.querySelector("button");
    if (first) first.tabIndex = 0;
  }

  hit(each, place, { share, move, isSelected }) {
    const button = h(
      "button",
      {
        type: "button",
        class: "hit",
        tabindex: -1,
        "aria-pressed": String(isSelected),
        "data-key": each.key,
        title: each.key === each.text ? null : each.key,
        onclick: () => this.pick(each.key, this),
        onmouseenter: () => this.hover(each.key),
        onmouseleave: () => this.hover(null),
        onfocus: () => this.hover(each.key),
        onblur: () => this.hover(null),
      },
      h("span", { class: "place" }, hidden("Place "), String(place + 1), move && move.node),
      h("span", { class: "text", dir: "auto" }, each.text || "(an empty text)"),
      h("span", { class: "score" }, hidden("Score "), short(each.score)),
      h(
        "span",
        { class: "bar", "aria-hidden": "true" },
        h("span", { class: "fill", vars: { "--share": share.toFixed(4) } }),
      ),
    );
    return h("li", {}, button);
  }

  /** The place of a candidate among all that were ranked; null if it was not. */
  placeOf(key) {
    return this.ranks?.get(key) ?? null;
  }
}

/** How far a candidate has moved from its place in the column before. */
function moved(before, key, place, shown) {
  const from = before.column.placeOf(key);
  const name = before.column.model.name;
  if (from === null)
    return {
      node: h(
        "span",
        { class: "move new" },
        hidden(", "),
        "new",
        hidden(`: not ranked by ${name}`),
      ),
    };
  const step = from - place;
  const words =
    step === 0 ? `, as in ${name}` : `, ${step > 0 ? "up" : "down"} ${Math.abs(step)} from ${name}`;
  const isNew = from >= shown;
  const sign = step === 0 ? "=" : `${step > 0 ? "▲" : "▼"}${Math.abs(step)}`;
  const kind = step === 0 ? "same" : step > 0 ? "up" : "down";
  return {
    node: h(
      "span",
      { class: `move ${kind}`, title: `${from + 1} in ${name}` },
      h("span", { "aria-hidden": "true" }, sign),
      hidden(words),
      isNew && h("span", { class: "fresh" }, hidden(", "), "new", hidden(" among those shown")),
    ),
  };
}

/** The time of a call as a number, a bar and the numbers of its parts. */
function timed({ total, parts }) {
  const known = PARTS.filter(([name]) => name !== "rest" || parts.rest >= 0.05);
  const number = (ms) => (ms >= 100 ? whole(Math.round(ms)) : ms.toFixed(1));
  const bar = h(
    "div",
    { class: "time-bar", "aria-hidden": "true" },
    known.map(([name]) =>
      h("span", {
        class: name,
        vars: { "--share": total ? (parts[name] / total).toFixed(4) : "0" },
      }),
    ),
  );
  const numbers = h(
    "dl",
    { class: "time-parts" },
    known.map(([name, label]) =>
      h(
        "div",
        { class: name },
        h("dt", {}, label),
        h("dd", { title: percent(total ? parts[name] / total : 0) }, number(parts[name])),
      ),
    ),
    h("div", { class: "unit" }, h("dt", {}, "ms")),
  );
  return [h("p", { class: "total" }, hidden("Time: "), time(total)), bar, numbers];
}

/** The arrow keys go through a ranking, and across to the same candidate. */
export function navigable(container, columns) {
  container.addEventListener("keydown", (event) => {
    const hit = event.target.closest?.(".hit");
    if (!hit || event.ctrlKey || event.metaKey || event.altKey) return;
    const list = hit.closest("ol");
    const hits = [...list.querySelectorAll(".hit")];
    const place = hits.indexOf(hit);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    let target = null;
    if (step) target = hits[place + step];
    else if (event.key === "Home") target = hits[0];
    else if (event.key === "End") target = hits.at(-1);
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      const lists = columns().map((column) => column.list);
      const next = lists[lists.indexOf(list) + (event.key === "ArrowRight" ? 1 : -1)];
      const there = next ? [...next.querySelectorAll(".hit")] : [];
      target =
        there.find((each) => each.dataset.key === hit.dataset.key) ??
        there[Math.min(place, there.length - 1)];
    } else return;
    event.preventDefault();
    target?.focus();
  });
  container.addEventListener("focusin", (event) => {
    const hit = event.target.closest?.(".hit");
    if (!hit) return;
    for (const each of hit.closest("ol").querySelectorAll(".hit"))
      each.tabIndex = each === hit ? 0 : -1;
  });
}

/** What was done with the candidates, in a sentence. */
export function toldOf({ count, searched, finder, isOwn, first }) {
  if (searched !== undefined) return `Searched ${plural(searched, "candidate")} of the index.`;
  const scored = isOwn
    ? `Scored ${plural(count, "candidate")}.`
    : `Scored the ${plural(count, "candidate")} that ${finder} found.`;
  return first === null
    ? scored
    : `${scored} The first run, which made their vectors, took ${time(first)}.`;
}
