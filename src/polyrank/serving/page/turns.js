// The context as a list of turns that can be added, removed and reordered. One turn is a question.

import { byId, h } from "./dom.js";

const LONGEST = 200; // pixels a field grows to

export class Turns {
  constructor(list, note, changed) {
    this.list = list;
    this.note = note;
    this.changed = changed;
    this.set([""]);
  }

  /** The context as the server takes it: a text, or a list of turns. */
  get context() {
    const turns = this.texts.filter((text) => text.trim());
    return turns.length === 1 ? turns[0] : turns;
  }

  get texts() {
    return [...this.list.querySelectorAll("textarea")].map((field) => field.value);
  }

  set(texts) {
    this.list.replaceChildren(...(texts.length ? texts : [""]).map((text) => this.row(text)));
    this.numbered();
  }

  add() {
    const row = this.row("");
    this.list.append(row);
    this.numbered();
    row.querySelector("textarea").focus();
    this.changed();
  }

  row(text) {
    const field = h("textarea", {
      rows: 1,
      dir: "auto",
      oninput: () => {
        this.fit(field);
        this.changed();
      },
    });
    field.value = text;
    field.addEventListener("keydown", (event) => {
      if (!event.altKey || !["ArrowUp", "ArrowDown"].includes(event.key)) return;
      event.preventDefault();
      this.move(row, event.key === "ArrowUp" ? -1 : 1);
      field.focus();
    });
    const button = (label, icon, act) =>
      h(
        "button",
        { type: "button", class: "icon", "data-label": label, onclick: act },
        h("span", { "aria-hidden": "true" }, icon),
      );
    const up = button("Move up", "↑", () => {
      this.move(row, -1);
      (up.disabled ? down : up).focus();
    });
    const down = button("Move down", "↓", () => {
      this.move(row, 1);
      (down.disabled ? up : down).focus();
    });
    const remove = button("Remove", "×", () => this.remove(row));
    const row = h(
      "li",
      { class: "turn" },
      h("span", { class: "speaker", "aria-hidden": "true" }),
      field,
      h("span", { class: "turn-tools" }, up, down, remove),
    );
    return row;
  }

  move(row, step) {
    const rows = [...this.list.children];
    const target = rows[rows.indexOf(row) + step];
    if (!target) return;
    if (step < 0) target.before(row);
    else target.after(row);
    this.numbered();
    this.changed();
  }

  remove(row) {
    const rows = [...this.list.children];
    const place = rows.indexOf(row);
    row.remove();
    this.numbered();
    this.list.children[Math.min(place, rows.length - 2)]?.querySelector("textarea")?.focus();
    this.changed();
  }

  /** The last turn is what is answered; the sides alternate back from it. */
  numbered() {
    const rows = [...this.list.children];
    const several = rows.length > 1;
    this.list.classList.toggle("dialogue", several);
    this.note.textContent = several
      ? "A dialogue, oldest turn first. The sides alternate; candidates answer the last turn."
      : "A question, or a dialogue turn by turn.";
    rows.forEach((row, place) => {
      const isOther = (rows.length - 1 - place) % 2 === 0;
      row.classList.toggle("other", several && isOther);
      row.querySelector(".speaker").textContent = several ? (isOther ? "A" : "B") : "";
      const field = row.querySelector("textarea");
      field.setAttribute(
        "aria-label",
        several
          ? `Turn ${place + 1} of ${rows.length}, speaker ${isOther ? "A" : "B"}`
          : "Question",
      );
      field.placeholder = place ? "The next turn" : "Ask something";
      for (const button of row.querySelectorAll("button")) {
        button.setAttribute("aria-label", `${button.dataset.label} turn ${place + 1}`);
        button.title = button.dataset.label;
      }
      const [up, down] = row.querySelectorAll("button");
      up.disabled = place === 0;
      down.disabled = place === rows.length - 1;
      row.querySelector(".turn-tools").hidden = !several;
      this.fit(field);
    });
  }

  fit(field) {
    field.style.height = "auto";
    if (field.scrollHeight) field.style.height = `${Math.min(field.scrollHeight + 2, LONGEST)}px`;
  }
}

/** The chips of examples. */
export function showExamples(examples, choose) {
  byId("examples").replaceChildren(
    ...examples.map((example) => {
      const turns = typeof example === "string" ? [example] : example;
      const label = turns.length > 1 ? `${turns.length} turns: ${turns.at(-1)}` : turns[0];
      return h(
        "button",
        {
          type: "button",
          class: "chip",
          title: turns.join("\n"),
          dir: "auto",
          onclick: () => choose(turns),
        },
        label,
      );
    }),
  );
}
