// The poly view: which codes a candidate attends to, and which tokens each code attends to.
// One pixel of the canvas is one weight; CSS makes cells of them, so that any size is cheap.

import { h, hidden, percent, plural, short } from "./dom.js";

const ROW = 22; // pixels of a row of the map
const WIDE = 190; // pixels left and right of the map
const SAID = {
  learnt: [
    "code",
    "Attention: the weights that this model computes with. Each code takes its content from the tokens that it attends to, and the candidate weighs the codes. It does not say why a candidate ranks where it does.",
  ],
  first: [
    "vector",
    "Attention: the weights that this model computes with. Each vector is the output of one of the first tokens, and the candidate weighs the vectors. It does not say why a candidate ranks where it does.",
  ],
  last: [
    "vector",
    "Attention: the weights that this model computes with. Each vector is the output of one of the last tokens, and the candidate weighs the vectors. It does not say why a candidate ranks where it does.",
  ],
  last_and_first: [
    "vector",
    "Attention: the weights that this model computes with. Each vector is the output of one of the last tokens or of the first, and the candidate weighs the vectors. It does not say why a candidate ranks where it does.",
  ],
};

export class AttentionView {
  constructor(section) {
    this.section = section;
    this.byWeight = true;
    this.pinned = null; // the number of a code that is kept
    this.data = null;
  }

  hide() {
    this.section.hidden = true;
    this.data = null;
  }

  waiting(model) {
    this.section.hidden = false;
    this.section.setAttribute("aria-busy", "true");
    if (!this.data)
      this.section.replaceChildren(
        this.title(model),
        h("p", { class: "note pulse" }, "Reading the attention…"),
      );
  }

  fail(model, message) {
    this.data = null;
    this.section.hidden = false;
    this.section.removeAttribute("aria-busy");
    this.section.replaceChildren(this.title(model), h("p", { class: "error" }, message));
  }

  title(model) {
    return h("h2", { id: "attention-title" }, `What ${model} attends to`);
  }

  show(data) {
    const same =
      this.data &&
      this.data.model === data.model &&
      JSON.stringify(this.data.tokens) === JSON.stringify(data.tokens);
    if (!same) this.pinned = null;
    this.data = data;
    this.section.hidden = false;
    this.section.removeAttribute("aria-busy");
    this.candidate = data.candidates[0];
    const weights = this.candidate.weights;
    [this.noun, this.sentence] = SAID[data.context_vectors];
    this.numbers = weights.map((_, number) => number);
    this.byRank = [...this.numbers].sort((a, b) => weights[b] - weights[a] || a - b);
    this.draw();
  }

  get order() {
    return this.byWeight ? this.byRank : this.numbers;
  }

  draw() {
    const { data, candidate } = this;
    const parts = [
      this.title(data.model),
      h("p", { class: "note said" }, this.sentence),
      h(
        "blockquote",
        { class: "chosen" },
        h("p", { dir: "auto" }, candidate.text || "(an empty text)"),
        h("footer", {}, `score ${short(candidate.score)}`),
      ),
    ];
    if (data.codes) {
      this.prepare();
      parts.push(this.running(), this.controls(), this.map(), this.readout, this.legend());
    } else {
      parts.push(h("p", { class: "note" }, data.note), this.bars());
    }
    parts.push(this.table());
    this.section.replaceChildren(...parts);
    if (data.codes) this.paint();
    this.focusOn(this.pinned);
  }

  prepare() {
    const { codes, tokens } = this.data;
    const weights = this.candidate.weights;
    this.read = tokens
      .map((token, place) => place)
      .filter((place) => codes.some((row) => row[place] > 0));
    const shown = codes.flatMap((row) => this.read.map((place) => row[place]));
    this.rows =
      this.data.context_vectors === "learnt" ? tokens.map((_, place) => place) : this.read;
    this.most = shown.reduce((a, b) => Math.max(a, b), 0);
    this.floor =
      this.data.even_share > 0 && this.read.length ? this.data.even_share / this.read.length : 0;
    this.totals = tokens.map((_, place) =>
      codes.reduce((sum, row, code) => sum + weights[code] * row[place], 0),
    );
    this.peak = this.totals.reduce((a, b) => Math.max(a, b), 0);
    this.cursor = null;
  }

  /** From 0 to 1: how strongly a weight is coloured. */
  strength(weight, most = this.most) {
    const range = most - this.floor;
    return range > 0 ? Math.sqrt(Math.max(weight - this.floor, 0) / range) : 0;
  }

  /** The context as running text, shaded by attention, a line for each turn. */
  running() {
    const { tokens } = this.data;
    this.spans = tokens.map((token) =>
      h("span", { class: `token ${token.kind}${token.joined ? " joined" : ""}` }, token.text),
    );
    const lines = [];
    tokens.forEach((token, place) => {
      const starts =
        !lines.length || (token.kind === "separator" && tokens[place - 1]?.kind !== "separator");
      if (starts) lines.push(h("p", { dir: "auto" }));
      if (starts || !token.joined) lines.at(-1).append(h("span", { class: "word" }));
      lines.at(-1).lastChild.append(this.spans[place]);
    });
    this.about = h("span", { class: "about" });
    return h(
      "figure",
      { class: "running" },
      h("figcaption", {}, "The context as the model reads it, shaded by ", this.about),
      ...lines,
    );
  }

  controls() {
    const radio = (value, label) => {
      const input = h("input", {
        type: "radio",
        name: "order",
        value: String(value),
        onchange: () => {
          this.byWeight = value;
          this.draw();
          this.section.querySelector(`[name=order][value=${value}]`).focus();
        },
      });
      input.checked = this.byWeight === value;
      return h("label", {}, input, h("span", {}, label));
    };
    return h(
      "div",
      { class: "row wrap map-controls" },
      h(
        "div",
        { class: "segments", role: "radiogroup", "aria-label": `Order of the ${this.noun}s` },
        radio(true, "by weight"),
        radio(false, "by number"),
      ),
    );
  }

  map() {
    const { codes, tokens } = this.data;
    const available = Math.max((this.section.clientWidth || 800) - WIDE - 60, 120);
    this.cell = Math.max(Math.min(Math.floor(available / codes.length), 40), 10);
    const weights = this.candidate.weights;
    const top = Math.max(...weights);
    this.canvas = h("canvas", {
      width: codes.length,
      height: this.rows.length,
      "aria-hidden": "true",
    });
    this.marker = h("div", { class: "marker", hidden: true });
    this.kept = h("div", { class: "kept", hidden: true });
    this.grid = h(
      "div",
      {
        class: "cells",
        tabindex: 0,
        role: "application",
        "aria-roledescription": "heatmap",
        "aria-label": `Attention of ${plural(codes.length, this.noun)} over ${plural(this.rows.length, "token")}. Arrow keys move, Enter keeps a ${this.noun}. A table follows.`,
        onmousemove: (event) => this.moveTo(this.cellAt(event)),
        onmousedown: (event) => {
          this.cursor = this.cellAt(event);
        },
        onmouseleave: () =>
          document.activeElement === this.grid ? this.moveTo(this.cursor) : this.leave(),
        onclick: () => this.pin(this.order[this.cursor.column]),
        onkeydown: (event) => this.typed(event),
        onfocus: () => this.moveTo((this.cursor ??= { row: 0, column: 0 })),
        onblur: () => this.leave(),
      },
      this.canvas,
      this.kept,
      this.marker,
    );
    this.readout = h("p", { class: "readout", role: "status", "aria-live": "polite" });
    const bars = h(
      "div",
      { class: "code-bars", "aria-hidden": "true" },
      this.order.map((code) =>
        h(
          "span",
          {
            title: `${this.noun} ${code + 1}: ${percent(weights[code])}`,
            onclick: () => this.pin(code),
          },
          h("i", { vars: { "--share": (top ? weights[code] / top : 0).toFixed(4) } }),
        ),
      ),
    );
    const names = h(
      "div",
      { class: "tokens", "aria-hidden": "true" },
      this.rows
        .map((place) => tokens[place])
        .map((token) =>
          h(
            "span",
            {
              class: `${token.kind}${token.joined ? " joined" : ""}`,
              dir: "auto",
              title: token.text,
            },
            token.text,
          ),
        ),
    );
    this.sumNote = h("span");
    this.tokenBars = this.rows.map(() => h("i"));
    const totals = h(
      "div",
      { class: "totals", "aria-hidden": "true" },
      this.tokenBars.map((bar) => h("span", {}, bar)),
    );
    return h(
      "div",
      {
        class: "map",
        vars: {
          "--cell": `${this.cell}px`,
          "--row": `${ROW}px`,
          "--columns": codes.length,
          "--rows": this.rows.length,
        },
      },
      h(
        "div",
        { class: "corner" },
        h("span", {}, `weight of each ${this.noun}, up to ${percent(top)}`),
      ),
      bars,
      h("div", { class: "corner end" }, this.sumNote),
      names,
      this.grid,
      totals,
    );
  }

  /** Without the codes' attention: the candidate's alone. */
  bars() {
    const weights = this.candidate.weights;
    return h(
      "ol",
      { class: "only-bars" },
      this.byRank
        .slice(0, 24)
        .map((code) =>
          h(
            "li",
            {},
            h("span", {}, `${this.noun} ${code + 1}`),
            h("i", { vars: { "--share": (weights[code] / Math.max(...weights)).toFixed(4) } }),
            h("span", {}, percent(weights[code])),
          ),
        ),
    );
  }

  paint() {
    const { codes } = this.data;
    const style = getComputedStyle(this.section);
    const [from, to] = ["--map-low", "--map-high"].map((name) =>
      rgb(style.getPropertyValue(name), this.section),
    );
    const drawing = this.canvas.getContext("2d");
    const image = drawing.createImageData(codes.length, this.rows.length);
    this.order.forEach((code, column) =>
      this.rows.forEach((place, row) => {
        const strength = this.strength(codes[code][place]);
        const at = 4 * (row * codes.length + column);
        for (let channel = 0; channel < 3; channel++)
          image.data[at + channel] = from[channel] + strength * (to[channel] - from[channel]);
        image.data[at + 3] = 255;
      }),
    );
    drawing.putImageData(image, 0, 0);
  }

  legend() {
    const even =
      this.data.even_share > 0
        ? ` This model spreads ${percent(this.data.even_share)} of every code evenly over the tokens, ${percent(this.floor)} each; colours begin above that.`
        : "";
    return h(
      "p",
      { class: "note legend" },
      percent(this.floor),
      h("span", { class: "ramp", "aria-hidden": "true" }),
      percent(this.most),
      hidden(" of a code’s attention"),
      h("span", {}, ` Colours follow the square root of a weight.${even}`),
    );
  }

  cellAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const within = (share, count) => Math.min(Math.max(Math.floor(share * count), 0), count - 1);
    return {
      column: within((event.clientX - box.left) / box.width, this.order.length),
      row: within((event.clientY - box.top) / box.height, this.rows.length),
    };
  }

  typed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.cursor;
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    let [row, column] = [at.row, at.column];
    if (steps[event.key]) [row, column] = [row + steps[event.key][0], column + steps[event.key][1]];
    else if (event.key === "Home") column = 0;
    else if (event.key === "End") column = this.order.length - 1;
    else if (event.key === "PageUp") row -= 10;
    else if (event.key === "PageDown") row += 10;
    else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.pin(this.order[column]);
      return;
    } else if (event.key === "Escape" && this.pinned !== null) {
      event.stopPropagation();
      this.pin(null);
      return;
    } else return;
    event.preventDefault();
    const limit = (value, count) => Math.min(Math.max(value, 0), count - 1);
    this.cursor = { row: limit(row, this.rows.length), column: limit(column, this.order.length) };
    this.moveTo(this.cursor);
    this.marker.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  moveTo({ row, column }) {
    const place = this.rows[row];
    const code = this.order[column];
    this.marker.hidden = false;
    this.marker.style.setProperty("--x", column);
    this.marker.style.setProperty("--y", row);
    const weight = this.data.codes[code][place];
    const { text, kind } = this.data.tokens[place];
    const nothing = kind === "prompt" && !weight ? ", which is not read" : "";
    this.readout.replaceChildren(
      h("b", {}, `${this.noun} ${code + 1}`),
      ` gives ${percent(weight)} to “`,
      h("bdi", {}, text),
      `”${nothing}; this candidate gives the ${this.noun} ${percent(this.candidate.weights[code])}.`,
    );
    this.focusOn(this.pinned ?? code);
  }

  leave() {
    this.marker.hidden = true;
    this.readout.replaceChildren();
    this.focusOn(this.pinned);
  }

  pin(code) {
    this.pinned = this.pinned === code ? null : code;
    this.focusOn(this.pinned ?? code);
  }

  /** Shades the text by one code, or by all of them as this candidate weighs them. */
  focusOn(code) {
    if (!this.data?.codes) return;
    const values = code === null ? this.totals : this.data.codes[code];
    const most =
      code === null ? this.peak : this.data.codes[code].reduce((a, b) => Math.max(a, b), 0);
    this.spans.forEach((span, place) =>
      span.style.setProperty("--strength", this.strength(values[place], most).toFixed(3)),
    );
    this.tokenBars.forEach((bar, row) =>
      bar.style.setProperty("--share", (most ? values[this.rows[row]] / most : 0).toFixed(4)),
    );
    this.sumNote.textContent = `up to ${percent(most)}`;
    this.about.textContent =
      code === null
        ? `all ${this.noun}s, as this candidate weighs them`
        : `${this.noun} ${code + 1}${this.pinned === code ? ", which is kept" : ""}`;
    const column = this.pinned === null ? -1 : this.order.indexOf(this.pinned);
    this.kept.hidden = column < 0;
    this.kept.style.setProperty("--x", Math.max(column, 0));
  }

  table() {
    const details = h("details", {}, h("summary", {}, "As a table"));
    details.addEventListener("toggle", () => {
      if (details.open && details.children.length === 1)
        details.append(
          h(
            "div",
            { class: "scroll", tabindex: 0, role: "region", "aria-label": "Attention as a table" },
            this.tableRows(),
          ),
        );
    });
    return details;
  }

  tableRows() {
    const { codes, tokens, model } = this.data;
    const strongest = (code) =>
      tokens
        .map((token, place) => [token.text, codes[code][place]])
        .filter(([, weight]) => weight > 0)
        .sort((a, b) => b[1] - a[1])
        .slice(0, 3);
    return h(
      "table",
      {},
      h(
        "caption",
        {},
        `What ${model} attends to: the weight of each ${this.noun} for the candidate, and the ${this.noun}’s strongest tokens`,
      ),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          [this.noun, "candidate’s weight", ...(codes ? ["strongest tokens"] : [])].map((cell) =>
            h("th", { scope: "col" }, cell),
          ),
        ),
      ),
      h(
        "tbody",
        {},
        this.order.map((code) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, String(code + 1)),
            h("td", {}, percent(this.candidate.weights[code])),
            codes &&
              h(
                "td",
                {},
                strongest(code).flatMap(([text, weight], place) => [
                  place ? ", " : "",
                  h("bdi", {}, text),
                  ` ${percent(weight)}`,
                ]),
              ),
          ),
        ),
      ),
    );
  }
}

/** A colour of CSS as three numbers. */
function rgb(colour, near) {
  const probe = h("i", { hidden: true });
  probe.style.color = colour.trim();
  near.append(probe);
  const found = getComputedStyle(probe)
    .color.match(/[\d.]+/g)
    .slice(0, 3)
    .map(Number);
  probe.remove();
  return found;
}
