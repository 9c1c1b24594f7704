// Two plots: milliseconds against the number of candidates, and quality against latency.

import { h, s, time, whole } from "./dom.js";
import { NAMES } from "./columns.js";

const MARKS = {
  bi: (x, y, r) => s("circle", { cx: x, cy: y, r }),
  poly: (x, y, r) => s("rect", { x: x - r * 0.9, y: y - r * 0.9, width: r * 1.8, height: r * 1.8 }),
  cross: (x, y, r) =>
    s("path", {
      d: `M${x} ${y - r * 1.25}L${x + r * 1.25} ${y}L${x} ${y + r * 1.25}L${x - r * 1.25} ${y}Z`,
    }),
};
const mark = (architecture, x, y, r) =>
  (
    MARKS[architecture] ??
    ((x, y, r) => s("path", { d: `M${x} ${y - r}L${x + r} ${y + r}L${x - r} ${y + r}Z` }))
  )(x, y, r);

/** A logarithmic scale over some values, and its ticks at powers of ten. */
function logarithmic(values, from, to, least = 1) {
  let low = Math.log10(Math.min(...values)),
    high = Math.log10(Math.max(...values));
  const missing = Math.max(least - (high - low), 0);
  low -= missing / 2 + 0.12;
  high += missing / 2 + 0.12;
  const scale = (value) => from + ((Math.log10(value) - low) / (high - low)) * (to - from);
  const digits = high - low > 3 ? [1] : high - low > 1.2 ? [1, 3] : [1, 2, 5];
  const ticks = [];
  for (let power = Math.floor(low); power <= high; power++)
    for (const digit of digits) {
      const value = digit * 10 ** power;
      if (Math.log10(value) >= low && Math.log10(value) <= high) ticks.push(value);
    }
  return { scale, ticks };
}

function linear(low, high, from, to) {
  const padding = (high - low || 0.1) * 0.12;
  low -= padding;
  high += padding;
  const rough = (high - low) / 5,
    size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * size).find((each) => each >= rough);
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) ticks.push(tick);
  return {
    scale: (value) => from + ((value - low) / (high - low)) * (to - from),
    ticks,
    decimals: Math.max(0, -Math.floor(Math.log10(step))),
  };
}

function table(caption, head, rows) {
  return h(
    "table",
    {},
    h("caption", {}, caption),
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        head.map((cell) => h("th", { scope: "col" }, cell)),
      ),
    ),
    h(
      "tbody",
      {},
      rows.map(([first, ...cells]) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, first),
          cells.map((cell) => h("td", {}, cell)),
        ),
      ),
    ),
  );
}

/** Places for labels, moved apart where two would overlap; y by y, the lowest last. */
function apart(labels, height) {
  const sorted = [...labels].sort((a, b) => a.y - b.y);
  for (let i = 1; i < sorted.length; i++)
    sorted[i].y = Math.max(sorted[i].y, sorted[i - 1].y + height);
  return labels;
}

/** The measured runs: one point each, and a line through the medians of each model. */
export function costChart(target, runs, count, width) {
  const height = 180,
    left = 54,
    right = 84,
    top = 10,
    bottom = 26;
  if (!runs.length) {
    target.replaceChildren(
      h(
        "p",
        { class: "note empty" },
        "Each run adds a point. Move the slider to see the cross-encoder's cost grow.",
      ),
    );
    return;
  }
  const x = logarithmic([...runs.map((run) => run.count), count], left, width - right);
  const y = logarithmic(
    runs.map((run) => run.ms),
    height - bottom,
    top,
  );
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });
  for (const tick of y.ticks)
    svg.append(
      s("path", { class: "grid", d: `M${left} ${y.scale(tick)}H${width - right}` }),
      s("text", { x: left - 8, y: y.scale(tick) + 4, class: "tick end" }, ticked(tick)),
    );
  for (const tick of x.ticks)
    svg.append(
      s("path", { class: "grid", d: `M${x.scale(tick)} ${top}V${height - bottom}` }),
      s("text", { x: x.scale(tick), y: height - 8, class: "tick middle" }, whole(tick)),
    );
  svg.append(s("path", { class: "now", d: `M${x.scale(count)} ${top}V${height - bottom}` }));
  const labels = [];
  const rows = [];
  for (const [name, own] of grouped(runs, (run) => run.model)) {
    const architecture = own[0].architecture;
    const medians = [...grouped(own, (run) => run.count)]
      .map(([size, each]) => [size, median(each.map((run) => run.ms)), each.length])
      .sort((a, b) => a[0] - b[0]);
    const path = medians
      .map(
        ([size, ms], place) =>
          `${place ? "L" : "M"}${x.scale(size).toFixed(1)} ${y.scale(ms).toFixed(1)}`,
      )
      .join("");
    const group = s(
      "g",
      { class: `series ${architecture}` },
      s("path", { class: "line", d: path }),
    );
    for (const run of own)
      group.append(mark(architecture, x.scale(run.count), y.scale(run.ms), 3.6));
    svg.append(group);
    const [size, ms] = medians.at(-1);
    labels.push({ name, architecture, x: x.scale(size) + 9, y: y.scale(ms) + 4 });
    for (const [size, ms, times] of medians)
      rows.push([name, whole(size), time(ms), String(times)]);
  }
  for (const label of apart(labels, 13))
    svg.append(
      s(
        "text",
        {
          class: `label ${label.architecture}`,
          x: Math.min(label.x, width - right + 9),
          y: label.y,
        },
        clipped(label.name, 11),
      ),
    );
  target.replaceChildren(
    svg,
    h(
      "div",
      { class: "visually-hidden" },
      table(
        "Time of each model by the number of candidates, medians of the measured runs",
        ["model", "candidates", "time", "runs"],
        rows,
      ),
    ),
  );
}

const ticked = (ms) => (ms >= 1000 ? `${whole(ms / 1000)} s` : `${ms} ms`);
const clipped = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

function grouped(items, keyOf) {
  const groups = new Map();
  for (const item of items) groups.set(keyOf(item), [...(groups.get(keyOf(item)) ?? []), item]);
  return groups;
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b),
    middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** What `polyrank compare` measured: a point per model with its interval, and a table. */
export function comparisonChart(target, comparison, size, width) {
  const timed = comparison.models.flatMap((model) => {
    const latency = model.latency.find((each) => each.num_candidates === size);
    return latency ? [{ ...model, ...latency }] : [];
  });
  if (!timed.length) {
    target.replaceChildren(h("p", { class: "note" }, "No model was timed."));
    return;
  }
  const height = 320,
    left = 52,
    right = 90,
    top = 14,
    bottom = 42;
  const x = logarithmic(
    timed.map((model) => model.milliseconds),
    left,
    width - right,
  );
  const y = linear(
    Math.min(...timed.map((model) => model.low)),
    Math.max(...timed.map((model) => model.high)),
    height - bottom,
    top,
  );
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });
  for (const tick of y.ticks)
    svg.append(
      s("path", { class: "grid", d: `M${left} ${y.scale(tick)}H${width - right + 40}` }),
      s("text", { x: left - 8, y: y.scale(tick) + 4, class: "tick end" }, tick.toFixed(y.decimals)),
    );
  for (const tick of x.ticks)
    svg.append(
      s("path", { class: "grid", d: `M${x.scale(tick)} ${top}V${height - bottom}` }),
      s("text", { x: x.scale(tick), y: height - bottom + 16, class: "tick middle" }, ticked(tick)),
    );
  const unit = comparison.unit === "pairs" ? "pair" : `query against ${whole(size)} candidates`;
  svg.append(
    s("text", { x: width / 2, y: height - 6, class: "axis middle" }, `time of one ${unit}`),
  );
  const labels = [];
  for (const model of timed) {
    const [cx, cy] = [x.scale(model.milliseconds), y.scale(model.mean)];
    const whisker = `M${cx} ${y.scale(model.low)}V${y.scale(model.high)}M${cx - 4} ${y.scale(model.low)}h8M${cx - 4} ${y.scale(model.high)}h8`;
    svg.append(
      s(
        "g",
        { class: `series ${model.architecture}${model.extrapolated ? " hollow" : ""}` },
        s("path", { class: "whisker", d: whisker }),
        mark(model.architecture, cx, cy, 5.5),
      ),
    );
    labels.push({ name: model.name, architecture: model.architecture, x: cx + 11, y: cy + 4 });
  }
  for (const label of apart(labels, 15))
    svg.append(
      s(
        "text",
        { class: `label ${label.architecture}`, x: label.x, y: label.y },
        clipped(label.name, 22),
      ),
    );
  const rows = timed.map((model) => [
    model.name,
    NAMES[model.architecture] ?? model.architecture,
    model.mean.toFixed(3),
    `${model.low.toFixed(3)} – ${model.high.toFixed(3)}`,
    `${model.extrapolated ? "~" : ""}${time(model.milliseconds)}`,
  ]);
  const caption = `${comparison.metric} and the time of one ${unit}`;
  target.replaceChildren(
    svg,
    h(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": "The comparison as a table" },
      table(caption, ["model", "architecture", comparison.metric, "95% interval", "time"], rows),
    ),
  );
}
