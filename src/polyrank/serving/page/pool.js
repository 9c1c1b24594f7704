// Which candidates are ranked, and how many: those that the index finds or own ones, and the slider.

import { byId, h, plural, whole } from "./dom.js";

const SIZES = [10, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000];
const USUAL = 50;

export class Pool {
  /** `changed` hears that the number may be another, `moved` that the slider was moved. */
  constructor(changed, moved) {
    this.changed = changed;
    this.wanted = USUAL; // how many are to be ranked, if there are as many
    byId("own").addEventListener("input", () => this.fit());
    byId("count").addEventListener("input", () => {
      this.wanted = this.count;
      this.show();
      moved();
    });
  }

  /** Offers what a server has. */
  serve({ index, candidates, max_items }) {
    this.index = index;
    this.most = max_items;
    const sources = [index && ["index", "From the index"], ["own", "My own"]].filter(Boolean);
    byId("source").hidden = !index;
    byId("source").replaceChildren(
      ...sources.map(([value, label], place) => {
        const input = h("input", {
          type: "radio",
          name: "source",
          value,
          onchange: () => this.fit(),
        });
        input.checked = place === 0;
        return h("label", {}, input, h("span", {}, label));
      }),
    );
    byId("own").value ||= candidates.join("\n");
  }

  /** `index` or `own`. */
  get source() {
    return document.querySelector("[name=source]:checked")?.value ?? "own";
  }

  /** The lines of the field, each once. */
  get own() {
    const lines = byId("own")
      .value.split(/\r?\n/)
      .map((line) => line.trim());
    return [...new Set(lines.filter(Boolean))];
  }

  get available() {
    return this.source === "own" ? this.own.length : (this.index.num_candidates ?? SIZES.at(-1));
  }

  get sizes() {
    const most = Math.min(Math.max(this.available, 1), this.most, SIZES.at(-1));
    return [...SIZES.filter((size) => size < most), most];
  }

  get count() {
    const { sizes } = this;
    return sizes[Math.min(Number(byId("count").value), sizes.length - 1)];
  }

  /** Takes what a link says. */
  restore(source, own, wanted) {
    if (own.length) byId("own").value = own.join("\n");
    const radio = document.querySelector(
      `[name=source][value="${source === "index" ? "index" : "own"}"]`,
    );
    if (source && radio) radio.checked = true;
    this.wanted = wanted || USUAL;
    this.fit();
  }

  /** Fits the slider to what there is. */
  fit() {
    byId("own-field").hidden = this.source !== "own";
    const { sizes } = this;
    const place = sizes.findIndex((size) => size >= this.wanted);
    byId("count").max = sizes.length - 1;
    byId("count").value = place < 0 ? sizes.length - 1 : place;
    byId("count").disabled = sizes.length < 2;
    this.show();
  }

  show() {
    byId("count-value").textContent = whole(this.count);
    byId("count").setAttribute("aria-valuetext", plural(this.count, "candidate"));
    this.changed();
  }
}
