// The page: what is asked, the runs of the columns, the link that restores a query.

import { AttentionView } from "./attention.js";
import { call, key, setKey } from "./api.js";
import { comparisonChart, costChart } from "./charts.js";
import { ARCHITECTURES, Column, NAMES, navigable, toldOf } from "./columns.js";
import { byId, copied, h, plural, time, whole } from "./dom.js";
import { Pool } from "./pool.js";
import { Calls } from "./snippets.js";
import { showExamples, Turns } from "./turns.js";

const FIRST_SHOWN = 10,
  MORE_SHOWN = 20,
  WAIT = 350,
  MOST_RUNS = 400,
  LOADING = 2000;
const MUCH = 2; // a run that took this many times longer than the same again is told of
const NARROW = matchMedia("(max-width: 56rem)"); // rankings are one below the other

let about = null; // what /page.json says
let columns = []; // those whose architecture is served
let turns, pool, attention, calls;
let running = null; // what ends the run
let shown = FIRST_SHOWN;
let selected = null; // the key of the chosen candidate
let query = null; // what the columns show: {context, source, count, searched}
let runs = []; // every measured call, for the plot of costs
let timer = null;
const known = new Map(); // attention that was asked for already

// The link

function fragment() {
  const fields = new URLSearchParams();
  for (const text of turns.texts) fields.append("turn", text);
  fields.set("from", pool.source);
  if (pool.source === "own") for (const text of pool.own) fields.append("candidate", text);
  fields.set("n", pool.count);
  for (const column of columns)
    if (column.models.length > 1) fields.set(column.architecture, column.model.name);
  return `#${fields}`;
}

/** Fills the fields from the link; whether there was something to ask. */
function restore() {
  const fields = new URLSearchParams(location.hash.slice(1));
  const texts = fields.getAll("turn");
  turns.set(texts);
  pool.restore(fields.get("from"), fields.getAll("candidate"), Number(fields.get("n")));
  for (const column of columns)
    column.use(fields.get(column.architecture) ?? column.models[0].name);
  return texts.some((text) => text.trim()) && pool.available > 0;
}

// The run

function stop() {
  clearTimeout(timer);
  running?.abort();
  running = null;
  byId("stop").hidden = true;
  for (const column of columns) column.stopped();
}

async function run({ remember = true } = {}) {
  stop();
  const context = turns.context;
  if (!context.length)
    return complain("Write a question first.", turns.list.querySelector("textarea"));
  if (pool.source === "own" && !pool.own.length)
    return complain("Write at least one candidate, one per line.", byId("own"));
  complain("");
  if (remember && location.hash !== fragment()) history.pushState(null, "", fragment());
  const control = new AbortController();
  running = control;
  shown = NARROW.matches ? FIRST_SHOWN / 2 : FIRST_SHOWN;
  query = { context, source: pool.source, count: pool.count, searched: null };
  selected = null;
  known.clear();
  attention.hide();
  byId("results").hidden = false;
  byId("stop").hidden = false;
  byId("more").hidden = true;
  byId("calls").hidden = true;
  for (const column of columns) column.waiting("waiting");
  say("Ranking…");
  try {
    const found = await retrieve(control.signal);
    // one after the other, so that no column's time includes another's
    for (const column of columns) if (!column.ranking) await rankBy(column, found, control.signal);
    if (control.signal.aborted) return;
    say(
      columns
        .map(
          (column) =>
            `${NAMES[column.architecture]}: ${column.ranking ? `${plural(column.ranking.length, "candidate")} in ${time(column.ms)}` : "failed"}.`,
        )
        .join(" "),
    );
  } catch (error) {
    if (error.name === "AbortError") return;
    for (const column of columns) if (!column.ranking) column.fail(error.message);
    say(error.message);
    if (error.status === 401) askForKey(error.message);
  }
  if (running === control) {
    running = null;
    byId("stop").hidden = true;
  }
}

/** The candidates that every column ranks: own ones, or what the index finds. */
async function retrieve(signal) {
  if (query.source === "own")
    return pool.own.slice(0, query.count).map((text) => ({ key: text, text }));
  const finder = columns.find((column) => column.model.name === about.index.model);
  finder?.waiting("searching");
  const { answer, times } = await call(
    "search",
    { context: query.context, top_k: query.count, rerank: false },
    signal,
  );
  const [{ hits, report }] = answer.results;
  query.searched = report.num_candidates;
  const found = hits.map((hit) => ({ key: hit.id, text: hit.text, score: hit.score }));
  if (finder) finished(finder, found, times, toldOf({ searched: report.num_candidates }));
  return found;
}

async function rankBy(column, found, signal) {
  column.waiting("ranking");
  if (!found.length) return finished(column, [], { total: 0, parts: {} }, "");
  const texts = found.map((each) => each.text);
  const body = {
    model: column.model.name,
    query: query.context,
    documents: texts,
    raw_scores: true,
  };
  try {
    let { answer, times } = await call("rerank", body, signal);
    let before = null;
    if (column.architecture !== "cross" && about.keeps_vectors && column.isNewTo(texts)) {
      before = times.total; // it may have encoded candidates: what a query costs from now on is measured again
      ({ answer, times } = await call("rerank", body, signal));
      if (before < MUCH * times.total) before = null;
    }
    const ranking = answer.results.map((result) => ({
      ...found[result.index],
      score: result.relevance_score,
    }));
    finished(
      column,
      ranking,
      times,
      toldOf({
        count: found.length,
        finder: about.index?.model,
        isOwn: query.source === "own",
        first: before,
      }),
    );
  } catch (error) {
    if (error.name === "AbortError" || error.status === 401 || error.status === 0) throw error;
    column.fail(error.message);
  }
}

function finished(column, ranking, times, told) {
  column.ms = times.total;
  column.show(ranking, times, told);
  if (ranking.length) {
    runs = [
      ...runs,
      {
        model: column.model.name,
        architecture: column.architecture,
        count: ranking.length,
        ms: times.total,
      },
    ].slice(-MOST_RUNS);
  }
  drawCost();
  drawColumns();
}

// What is shown

function drawColumns() {
  let before = null;
  for (const column of columns) {
    column.draw(shown, before && { column: before }, selected);
    if (column.ranking) before = column;
  }
  const most = Math.max(0, ...columns.map((column) => column.ranking?.length ?? 0));
  byId("more").hidden = most <= shown;
  byId("more").textContent = `Show ${Math.min(MORE_SHOWN, most - shown)} more`;
  calls.show(
    columns
      .filter((column) => column.ranking?.length)
      .map((column) => ({
        model: column.model.name,
        architecture: column.architecture,
        context: query.context,
        texts: column.ranking.slice(0, shown).map((each) => each.text),
        count: column.ranking.length,
        search:
          query.source === "index" && column.model.name === about.index.model
            ? { top_k: query.count }
            : null,
      })),
  );
}

function highlight(candidate) {
  for (const hit of byId("columns").querySelectorAll(".hit"))
    hit.classList.toggle("same", candidate !== null && hit.dataset.key === candidate);
}

function pick(candidate, column) {
  selected = selected === candidate ? null : candidate;
  byId("to-attention")?.remove();
  const hit = [...(column?.list.querySelectorAll(".hit") ?? [])].find(
    (each) => each.dataset.key === selected,
  );
  if (hit && columns.some((each) => each.architecture === "poly")) {
    hit.after(
      h(
        "button",
        {
          type: "button",
          id: "to-attention",
          class: "quiet small",
          onclick: () => {
            byId("attention").scrollIntoView();
            byId("attention").focus();
          },
        },
        "See the attention ↓",
      ),
    );
  }
  for (const hit of byId("columns").querySelectorAll(".hit"))
    hit.setAttribute("aria-pressed", String(hit.dataset.key === selected));
  if (selected === null) attention.hide();
  else showAttention();
}

async function showAttention() {
  const column = columns.find((each) => each.architecture === "poly");
  const text = columns
    .flatMap((each) => each.ranking ?? [])
    .find((each) => each.key === selected)?.text;
  if (!column || text === undefined) return;
  const model = column.model.name,
    asked = selected;
  const name = JSON.stringify([model, text]);
  attention.waiting(model);
  try {
    if (!known.has(name))
      known.set(
        name,
        (await call("attention", { model, context: query.context, candidates: [text] })).answer,
      );
    if (selected === asked) attention.show(known.get(name));
  } catch (error) {
    if (selected === asked) attention.fail(model, error.message);
  }
}

function drawCost() {
  const width = Math.max(byId("cost").clientWidth, 260);
  costChart(byId("cost"), runs, pool.count, width);
  byId("clear-cost").hidden = !runs.length;
}

function drawComparison() {
  const section = byId("comparison"),
    comparison = about.comparison;
  section.hidden = !comparison;
  if (!comparison) return;
  const all = [
    ...new Set(
      comparison.models.flatMap((model) => model.latency.map((each) => each.num_candidates)),
    ),
  ].sort((a, b) => a - b);
  const chart = h("div", { class: "comparison-chart" });
  const draw = (size) =>
    comparisonChart(
      chart,
      comparison,
      size,
      Math.min(Math.max(section.clientWidth - 48, 280), 700),
    );
  const select = h(
    "select",
    { "aria-label": "Number of candidates", onchange: () => draw(Number(select.value)) },
    all.map((size) => h("option", { value: size }, `${whole(size)} candidates`)),
  );
  select.value = all.includes(1000) ? 1000 : all.at(-1);
  section.replaceChildren(
    h(
      "div",
      { class: "card-head" },
      h("h2", { id: "comparison-title" }, "Quality against latency"),
      all.length > 1 && select,
    ),
    h(
      "p",
      { class: "note" },
      `Measured by polyrank compare on ${whole(comparison.num ?? 0)} ${comparison.unit}: ${comparison.metric} with 95% intervals. Hollow: extrapolated from fewer candidates.`,
    ),
    chart,
  );
  draw(Number(select.value));
}

function say(text) {
  byId("status").textContent = text;
}

function complain(text, field) {
  byId("banner").textContent = text;
  byId("banner").hidden = !text;
  field?.focus();
}

// The start

function askForKey(message) {
  byId("key-form").hidden = false;
  byId("query").hidden = true;
  byId("results").hidden = true;
  byId("calls").hidden = true;
  byId("comparison").hidden = true;
  attention?.hide();
  complain(key() ? message : "");
  byId("key").value = "";
  byId("key").focus();
}

async function begin() {
  try {
    about = (await call("page.json")).answer;
  } catch (error) {
    if (error.status === 401) return askForKey(error.message);
    complain(error.message);
    if (error.status === 503) return void setTimeout(begin, LOADING); // it loads its models
    byId("banner").append(
      " ",
      h(
        "button",
        {
          type: "button",
          class: "quiet",
          onclick: () => {
            complain("");
            begin();
          },
        },
        "Try again",
      ),
    );
    return;
  }
  complain("");
  byId("key-form").hidden = true;
  byId("key-button").hidden = !key();
  byId("query").hidden = false;
  build();
}

function build() {
  const served = about.models.filter((model) => model.ranks);
  columns = ARCHITECTURES.flatMap((architecture) => {
    const models = served.filter((model) => model.architecture === architecture);
    const preferred = (model) => model.name === about.index?.model || model.name === about.reranker;
    models.sort((a, b) => preferred(b) - preferred(a));
    return models.length
      ? [new Column(architecture, models, { choose: () => query && run(), pick, hover: highlight })]
      : [];
  });
  byId("columns").replaceChildren(...columns.map((column) => column.element));
  byId("columns").style.setProperty("--columns", columns.length);
  byId("served").textContent = [
    plural(about.models.length, "model"),
    about.index?.num_candidates &&
      `${plural(about.index.num_candidates, "candidate")} in the index`,
  ]
    .filter(Boolean)
    .join(", ");
  byId("version").textContent = `polyrank ${about.version}`;
  pool.serve(about);
  showExamples(about.examples, (texts) => {
    turns.set(texts);
    run();
  });
  drawComparison();
  if (restore()) run({ remember: false });
  else turns.list.querySelector("textarea").focus({ preventScroll: true });
}

turns = new Turns(byId("turns"), byId("context-note"), () => {});
pool = new Pool(drawCost, () => {
  clearTimeout(timer);
  if (!query) return;
  timer = setTimeout(() => {
    history.replaceState(null, "", fragment());
    run({ remember: false });
  }, WAIT);
});
attention = new AttentionView(byId("attention"));
calls = new Calls(byId("calls"));
navigable(byId("columns"), () => columns);

byId("add-turn").addEventListener("click", () => turns.add());
byId("query").addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});
byId("stop").addEventListener("click", () => {
  stop();
  say("Stopped.");
  byId("rank").focus();
});
byId("more").addEventListener("click", () => {
  shown += MORE_SHOWN;
  drawColumns();
});
byId("clear-cost").addEventListener("click", () => {
  runs = [];
  drawCost();
  byId("count").focus();
});
byId("link").addEventListener("click", async () => {
  history.replaceState(null, "", fragment());
  byId("link-done").textContent = (await copied(location.href))
    ? "Copied"
    : "It is in the address bar";
});
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setKey(byId("key").value.trim());
  begin();
});
byId("key-button").addEventListener("click", () => {
  stop();
  setKey("");
  query = null;
  askForKey("");
});
byId("help-button").addEventListener("click", () => byId("help").showModal());
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && about && !byId("query").hidden) {
    event.preventDefault();
    run();
  } else if (event.key === "Escape" && selected !== null && !byId("help").open) {
    const hits = [...byId("columns").querySelectorAll("[aria-pressed=true]")];
    if (!byId("columns").contains(document.activeElement)) hits[0]?.focus();
    pick(selected);
  }
});
window.addEventListener("popstate", () => {
  if (about) {
    stop();
    if (restore()) run({ remember: false });
  }
});
let resizing = null;
window.addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(() => {
    if (about) {
      drawCost();
      drawComparison();
      if (attention.data) attention.draw();
    }
  }, 150);
});

// The theme

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function showTheme() {
  byId("theme-button").setAttribute("aria-pressed", String(isDark()));
  if (attention.data?.codes) attention.map.paint();
}

byId("theme-button").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  try {
    localStorage.setItem("polyrank-theme", document.documentElement.dataset.theme);
  } catch {
    /* storage is switched off: the choice lasts as long as the page */
  }
  showTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
showTheme();
begin();
