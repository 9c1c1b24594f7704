// The poly view: which codes a candidate attends to, and which tokens each code attends to.

import { h, hidden, percent, short } from "./dom.js";
import { Heatmap } from "./heatmap.js";

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
      const weights = candidate.weights;
      const { order, rows, noun } = this;
      this.map = new Heatmap({ ...data, rows, order, weights, noun }, this);
      const drawn = this.map.draw(this.section.clientWidth || 800);
      parts.push(this.running(), this.controls(), drawn, this.map.readout, this.legend());
    } else {
      parts.push(h("p", { class: "note" }, data.note), this.bars());
    }
    parts.push(this.table());
    this.section.replaceChildren(...parts);
    if (data.codes) this.map.paint();
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
    this.map.show(values, most);
    this.about.textContent =
      code === null
        ? `all ${this.noun}s, as this candidate weighs them`
        : `${this.noun} ${code + 1}${this.pinned === code ? ", which is kept" : ""}`;
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
