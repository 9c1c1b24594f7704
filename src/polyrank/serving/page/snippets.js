// The current query as calls that can be copied: curl, and the Python clients of OpenAI and Cohere.
// What JSON.stringify writes of texts is a literal of Python, too.

import { base, key } from "./api.js";
import { byId, copied, h } from "./dom.js";

const ENVIRONMENT = "POLYRANK_API_KEY";
const TABS = { curl: "curl", openai: "openai", cohere: "cohere" };
const indented = (value) => JSON.stringify(value, null, 2);

/** The calls of a query: `{model, architecture, context, texts, search}` of one column. */
export function snippets(query) {
  return { curl: curl(query), openai: openai(query), cohere: cohere(query) };
}

function curl({ model, context, texts, search }) {
  const [path, body] = search
    ? ["search", { context, top_k: search.top_k, rerank: false }]
    : ["rerank", { model, query: context, documents: texts, raw_scores: true }];
  const authorization = key() ? ` \\\n  -H "Authorization: Bearer $${ENVIRONMENT}"` : "";
  return `curl -sS ${base()}${path} \\\n  -H 'Content-Type: application/json'${authorization} \\\n  --data-binary @- <<'JSON'\n${indented(body)}\nJSON\n`;
}

const client = (module, name, url, option) => {
  const imports = key() ? "import os\n\n" : "";
  const value = key() ? `os.environ["${ENVIRONMENT}"]` : '"none"';
  return `${imports}import ${module}\n\nclient = ${module}.${name}(${option}=${JSON.stringify(url)}, api_key=${value})\n`;
};

function openai({ model, architecture, context, texts }) {
  const start = client("openai", "OpenAI", `${base()}v1`, "base_url");
  const given = `context = ${indented(context)}\ncandidates = ${indented(texts)}\n`;
  if (architecture === "bi" && typeof context === "string") {
    return `${start}${given}
def embed(texts, input_type):
    answer = client.embeddings.create(
        model=${JSON.stringify(model)}, input=texts, extra_body={"input_type": input_type}
    )
    return [item.embedding for item in answer.data]


(query,) = embed([context], "query")
scores = [sum(a * b for a, b in zip(query, each)) for each in embed(candidates, "document")]
for score, text in sorted(zip(scores, candidates), reverse=True):
    print(f"{score:.4f}  {text}")
`;
  }
  const why =
    architecture === "cross"
      ? "A cross-encoder has no embeddings"
      : architecture === "poly"
        ? "A poly-encoder has many vectors per context"
        : "OpenAI's embeddings take single texts";
  return `${start}${given}
# ${why}, so this posts to /v1/rerank.
answer = client.post(
    "/rerank",
    body={"model": ${JSON.stringify(model)}, "query": context, "documents": candidates},
    cast_to=object,
)
for result in answer["results"]:
    print(f"{result['relevance_score']:.4f}  {candidates[result['index']]}")
`;
}

function cohere({ model, context, texts }) {
  return `${client("cohere", "ClientV2", base().replace(/\/$/, ""), "base_url")}context = ${indented(context)}
candidates = ${indented(texts)}

answer = client.rerank(model=${JSON.stringify(model)}, query=context, documents=candidates)
for result in answer.results:
    print(f"{result.relevance_score:.4f}  {candidates[result.index]}")
`;
}

/** The section with the calls: a tab for each client, and a choice of the column. */
export class Calls {
  constructor(section) {
    this.section = section;
    this.tab = "curl";
    this.code = h("code", { id: "call" });
    this.done = h("span", { class: "note", role: "status" });
    this.model = h("select", { "aria-label": "Model of the call", onchange: () => this.write() });
    this.about = h("p", { class: "note" });
    this.tabs = Object.entries(TABS).map(([name, label]) =>
      h(
        "button",
        {
          type: "button",
          role: "tab",
          id: `tab-${name}`,
          "aria-controls": "call-panel",
          onclick: () => this.choose(name),
          onkeydown: (event) => this.typed(event, name),
        },
        label,
      ),
    );
    section.replaceChildren(
      h(
        "div",
        { class: "card-head" },
        h("h2", { id: "calls-title" }, "The same by program"),
        this.model,
      ),
      h(
        "div",
        { class: "tab-row" },
        h("div", { role: "tablist", "aria-label": "Client", class: "tabs" }, this.tabs),
        h(
          "span",
          { class: "row" },
          this.done,
          h(
            "button",
            { type: "button", class: "quiet", id: "copy-call", onclick: () => this.copy() },
            "Copy",
          ),
        ),
      ),
      h("div", { id: "call-panel", role: "tabpanel", tabindex: 0 }, h("pre", {}, this.code)),
      this.about,
    );
    this.choose("curl");
  }

  show(queries) {
    this.queries = queries;
    const before = this.model.value;
    this.model.replaceChildren(
      ...queries.map((query) => h("option", { value: query.model }, query.model)),
    );
    if (queries.some((query) => query.model === before)) this.model.value = before;
    this.section.hidden = !queries.length;
    this.write();
  }

  choose(name) {
    this.tab = name;
    for (const tab of this.tabs) {
      const isChosen = tab.id === `tab-${name}`;
      tab.setAttribute("aria-selected", String(isChosen));
      tab.tabIndex = isChosen ? 0 : -1;
    }
    byId("call-panel")?.setAttribute("aria-labelledby", `tab-${name}`);
    this.write();
  }

  typed(event, name) {
    const names = Object.keys(TABS);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = names[(names.indexOf(name) + step + names.length) % names.length];
    this.choose(next);
    byId(`tab-${next}`).focus();
  }

  write() {
    const query = this.queries?.find((each) => each.model === this.model.value);
    if (!query) return;
    this.code.textContent = snippets(query)[this.tab];
    this.done.textContent = "";
    const shown = query.texts.length;
    const part =
      query.count > shown && !(this.tab === "curl" && query.search)
        ? ` It sends the ${shown} candidates that the column shows, of ${query.count}.`
        : "";
    const secret = key() ? ` It reads the key from the variable ${ENVIRONMENT}.` : "";
    const scores =
      this.tab === "curl" ||
      (this.tab === "openai" && query.architecture === "bi" && typeof query.context === "string")
        ? ""
        : " Scores come as relevance from 0 to 1.";
    this.about.textContent = `${part}${scores}${secret}`.trim();
  }

  async copy() {
    this.done.textContent = (await copied(this.code.textContent))
      ? "Copied"
      : "Select the text to copy it";
  }
}
