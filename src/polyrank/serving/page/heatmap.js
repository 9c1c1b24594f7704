// The map of attention: a column for each code, a row for each token, and bars along both.
// One pixel of the canvas is one weight; CSS makes cells of them, so that any size is cheap.

import { h, percent, plural } from "./dom.js";

const ROW = 22; // pixels of a row
const WIDE = 250; // pixels left and right of the cells

export class Heatmap {
  /**
   * `codes` has a weight for each of `tokens`, `rows` the tokens that are shown, `order` the codes
   * from left to right, `weights` the candidate's for each code. `view` colours and keeps codes.
   */
  constructor({ codes, tokens, rows, order, weights, noun }, view) {
    Object.assign(this, { codes, tokens, rows, order, weights, noun, view });
    this.cursor = null;
  }

  /** The map with its bars; `width` pixels are there for it. */
  draw(width) {
    const { codes, tokens, weights } = this;
    const available = Math.max(width - WIDE, 120);
    const cell = Math.max(Math.min(Math.floor(available / codes.length), 40), 10);
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
        onclick: () => this.view.pin(this.order[this.cursor.column]),
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
            onclick: () => this.view.pin(code),
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
          "--cell": `${cell}px`,
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

  /** Colours the cells, in the colours of the theme. */
  paint() {
    const { codes } = this;
    const style = getComputedStyle(this.canvas);
    const [from, to] = ["--map-low", "--map-high"].map((name) =>
      rgb(style.getPropertyValue(name), this.grid),
    );
    const drawing = this.canvas.getContext("2d");
    const image = drawing.createImageData(codes.length, this.rows.length);
    this.order.forEach((code, column) =>
      this.rows.forEach((place, row) => {
        const strength = this.view.strength(codes[code][place]);
        const at = 4 * (row * codes.length + column);
        for (let channel = 0; channel < 3; channel++)
          image.data[at + channel] = from[channel] + strength * (to[channel] - from[channel]);
        image.data[at + 3] = 255;
      }),
    );
    drawing.putImageData(image, 0, 0);
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
      this.view.pin(this.order[column]);
      return;
    } else if (event.key === "Escape" && this.view.pinned !== null) {
      event.stopPropagation();
      this.view.pin(null);
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
    const weight = this.codes[code][place];
    const { text, kind } = this.tokens[place];
    const nothing = kind === "prompt" && !weight ? ", which is not read" : "";
    this.readout.replaceChildren(
      h("b", {}, `${this.noun} ${code + 1}`),
      ` gives ${percent(weight)} to “`,
      h("bdi", {}, text),
      `”${nothing}; this candidate gives the ${this.noun} ${percent(this.weights[code])}.`,
    );
    this.view.focusOn(this.view.pinned ?? code);
  }

  leave() {
    this.marker.hidden = true;
    this.readout.replaceChildren();
    this.view.focusOn(this.view.pinned);
  }

  /** Draws the bars of the tokens, and marks the code that is kept. */
  show(values, most) {
    this.tokenBars.forEach((bar, row) =>
      bar.style.setProperty("--share", (most ? values[this.rows[row]] / most : 0).toFixed(4)),
    );
    this.sumNote.textContent = `up to ${percent(most)}`;
    const { pinned } = this.view;
    this.kept.hidden = pinned === null;
    this.kept.style.setProperty("--x", pinned === null ? 0 : this.order.indexOf(pinned));
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
