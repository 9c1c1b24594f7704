"""The page in a real browser, Chromium without a window, driven by Playwright."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from running import running

from conftest import CANDIDATES
from polyrank.errors import UsageError
from polyrank.models.poly_encoder import PolyEncoder
from polyrank.retrieval.index import Index
from polyrank.serving.app import create_app
from polyrank.serving.config import ServerConfig
from polyrank.serving.pipeline import Pipeline
from polyrank.serving.routes import page as page_routes

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
FILES = Path(page_routes.__file__).parents[1] / "page"
CHECKS = (Path(__file__).parent / "accessibility.js").read_text(encoding="utf-8").strip()
QUESTION = "how do i read a file"
TURNS = ["no sound", "is it on", "yes and the screen"]
OWN = ["sound and screen", "sort a list in python", "read the file", "no", "print the last line"]
INJECTED = '<img src=x onerror="document.title=1"><script>document.title=2</script>'

pytestmark = pytest.mark.skipif(
    not Path(CHROMIUM).exists(), reason="Chromium is not installed (Debian: apt install chromium)"
)


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield started
        started.close()


@pytest.fixture(scope="module")
def served(bi, poly, cross, bert, tmp_path_factory):
    """Two poly-encoders, one of each other architecture, and an index."""
    other = PolyEncoder.from_pretrained(
        bert, num_codes=3, context_vectors="last", device="cpu", dtype="float32"
    )
    names = {"bi": bi, "poly": poly, "poly-last": other, "cross": cross}
    folder = tmp_path_factory.mktemp("page") / "faq"
    texts = [*CANDIDATES, ("x", INJECTED)]
    texts += [(f"n{number}", f"{word} {number}") for number, word in enumerate(OWN * 6)]
    with Index.build(poly, texts, folder) as index:
        pipeline = Pipeline(names, index=index, reranker="cross")
        with running(create_app(pipeline, ServerConfig())) as server:
            yield server


BEGUN = ("query", "key-form", "banner")
"""What the page shows once it has heard what is served: one of these."""


@contextlib.contextmanager
def opened(browser, server, fragment="", **settings):
    """The page of a server, in a window of its own. It must ask nobody else, and log no error."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
    page = context.new_page()
    page.set_default_timeout(10_000)
    page.problems, page.asked = [], []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on(
        "console",
        lambda said: page.problems.append(said.text) if said.type in ("error", "warning") else None,
    )
    page.on("request", lambda request: page.asked.append(request))
    try:
        page.goto(f"{server.url}/{fragment}")
        page.locator(", ".join(f"#{begun}:not([hidden])" for begun in BEGUN)).first.wait_for()
        yield page
        hosts = {
            urlsplit(request.url).netloc for request in page.asked if request.url[:5] != "data:"
        }
        assert hosts == {urlsplit(server.url).netloc}
        assert page.problems == []
    except sync_api.Error as error:
        raise AssertionError(f"{error}\n{page.problems}") from error
    finally:
        context.close()


def settled(page):
    page.locator("#stop").wait_for(state="hidden")
    page.locator(".column[aria-busy]").first.wait_for(state="detached")


def ask(page, *turns, own=None):
    """Rank for a context, from the keyboard."""
    page.locator("#turns textarea").first.fill(turns[0])
    for turn in turns[1:]:
        page.click("#add-turn")
        page.keyboard.type(turn)
    if own is not None:
        if page.locator("#source").is_visible():
            page.get_by_text("My own", exact=True).click()
        page.fill("#own", "\n".join(own))
    page.keyboard.press("Control+Enter")
    page.locator(".hit").first.wait_for()
    settled(page)


def shown(page, architecture):
    """The texts and scores of a column, in their order."""
    hits = page.locator(f".column.{architecture} .hit")
    texts = hits.locator(".text").all_text_contents()
    scores = [
        float(each.removeprefix("Score ")) for each in hits.locator(".score").all_text_contents()
    ]
    return list(zip(texts, scores, strict=True))


def reranked(server, model, context, texts):
    body = {"model": model, "query": context, "documents": texts, "raw_scores": True}
    results = httpx2.post(f"{server.url}/rerank", json=body).json()["results"]
    return [(texts[each["index"]], each["relevance_score"]) for each in results]


@pytest.mark.parametrize("context", [[QUESTION], TURNS], ids=["question", "dialogue"])
def test_columns_are_what_the_server_answers(context, browser, served):
    with opened(browser, served) as page:
        ask(page, *context, own=OWN)
        places = {}
        for model in ("bi", "poly", "cross"):
            expected = reranked(served, model, context[0] if len(context) == 1 else context, OWN)
            found = shown(page, model)
            assert [text for text, _ in found] == [text for text, _ in expected]
            assert [score for _, score in found] == pytest.approx(
                [score for _, score in expected], rel=0.006, abs=6e-4
            )
            places[model] = [text for text, _ in expected]
        for before, model in (("bi", "poly"), ("poly", "cross")):
            moves = page.locator(f".column.{model} .move > [aria-hidden]").all_text_contents()
            steps = [places[before].index(text) - at for at, text in enumerate(places[model])]
            assert moves == [f"{'▲' if s > 0 else '▼'}{abs(s)}" if s else "=" for s in steps]
        assert page.locator(".column.bi .move").count() == 0
        parts = page.locator(".column.cross .time-parts dt").all_text_contents()
        assert parts[:4] == ["tokenise", "queue", "model", "search"]
        assert re.fullmatch(
            r"Time: [\d.]+ m?s", page.locator(".column.cross .total").text_content()
        )
        assert "Cross-encoder: 5 candidates in" in page.locator("#status").text_content()
        hit = page.locator(".column.bi .hit").nth(2)
        hit.hover()
        same = page.locator(".hit.same .text").all_text_contents()
        assert same == [hit.locator(".text").text_content()] * 3


def test_heatmap_of_a_clicked_candidate(browser, served):
    with opened(browser, served) as page:
        ask(page, *TURNS, own=OWN)
        page.locator(".column.cross .hit").nth(1).click()
        cells = page.locator("#attention .cells")
        cells.wait_for()
        text = page.locator(".column.cross .hit").nth(1).locator(".text").text_content()
        assert page.locator("#attention .chosen p").text_content() == text
        body = {"model": "poly", "context": TURNS, "candidates": [text]}
        answer = httpx2.post(f"{served.url}/attention", json=body).json()
        tokens = [each["text"] for each in answer["tokens"]]
        assert page.locator("#attention .tokens span").all_text_contents() == tokens
        assert page.locator("#attention .running p").count() == len(TURNS)
        size = page.locator("#attention canvas").evaluate("c => [c.width, c.height]")
        assert size == [len(answer["codes"]), len(tokens)]

        weights = answer["candidates"][0]["weights"]
        order = sorted(range(len(weights)), key=lambda code: -weights[code])
        cells.focus()
        for key in ("ArrowRight", "ArrowDown", "ArrowDown"):
            page.keyboard.press(key)
        said = page.locator("#attention .readout").text_content()
        code = order[1]
        value = answer["codes"][code][2]
        assert said.startswith(
            f"code {code + 1} gives {100 * value:.{1 if value < 0.0995 else 0}f}% to “{tokens[2]}”"
        )

        page.keyboard.press("Enter")
        assert f"code {code + 1}, which is kept" in page.locator(".running .about").text_content()
        page.get_by_text("by number").click()
        bars = page.locator("#attention .code-bars span").evaluate_all(
            "all => all.map(each => each.title)"
        )
        assert [each.split(":")[0] for each in bars] == [
            f"code {n + 1}" for n in range(len(weights))
        ]
        page.locator("#attention summary").click()
        page.locator("#attention tbody tr").first.wait_for()
        rows = page.locator("#attention tbody tr").all_text_contents()
        assert len(rows) == len(weights)
        section = page.locator("#attention").inner_text()
        assert "It does not say why a candidate ranks where it does." in section
        assert "explanation" not in page.content().lower()


def test_vectors_that_are_tokens(browser, served):
    with opened(
        browser, served, f"#turn={QUESTION}&from=own&candidate=no&candidate=yes&poly=poly-last"
    ) as page:
        page.locator(".column.cross .hit").first.click()
        page.locator("#attention .cells").wait_for()
        assert "output of one of the last tokens" in page.locator("#attention .said").text_content()
        assert page.locator("#attention canvas").get_attribute("width") == "3"
        assert page.locator("#attention-title").text_content() == "What poly-last attends to"


def test_by_keyboard_alone(browser, served):
    own = "&".join(f"candidate={text}" for text in OWN)
    with opened(browser, served, f"#from=own&{own}") as page:
        page.locator("#turns textarea").first.wait_for()
        page.keyboard.type(QUESTION)
        page.keyboard.press("Control+Enter")
        page.locator(".column.cross .hit").first.wait_for()
        settled(page)
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.classList.contains('hit')"):
                break
        focused = page.evaluate_handle("document.activeElement")
        assert page.locator(".column.bi .hit").first.evaluate("(a, b) => a === b", focused)
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        chosen = page.locator(".column.bi .hit").nth(2)
        assert chosen.evaluate("each => each === document.activeElement")
        key = chosen.get_attribute("data-key")
        page.keyboard.press("ArrowRight")
        assert page.evaluate("document.activeElement.dataset.key") == key
        assert page.evaluate("document.activeElement.closest('.column').classList.contains('poly')")
        assert page.locator(".column.poly .hit[tabindex='0']").count() == 1
        page.keyboard.press("Enter")
        page.locator("#attention .cells").wait_for()
        assert page.locator(".hit[aria-pressed=true]").count() == 3
        page.keyboard.press("Escape")
        assert page.locator("#attention").is_hidden()


def test_a_turn_is_moved_and_removed(browser, served):
    with opened(browser, served) as page:
        page.locator("#turns textarea").first.fill("first")
        page.click("#add-turn")
        page.keyboard.type("second")
        page.keyboard.press("Alt+ArrowUp")
        values = "all => all.map(each => each.value)"
        fields = page.locator("#turns textarea")
        assert fields.evaluate_all(values) == ["second", "first"]
        assert page.locator("#turns .speaker").all_text_contents() == ["B", "A"]
        page.get_by_label("Move up turn 2").click()
        assert fields.evaluate_all(values) == ["first", "second"]
        page.get_by_label("Remove turn 1").click()
        assert fields.evaluate_all(values) == ["second"]
        assert fields.first.evaluate("each => each === document.activeElement")


def test_the_slider_adds_to_the_plot(browser, served):
    with opened(browser, served) as page:
        ask(page, QUESTION, own=[f"{each} {n}" for n in range(6) for each in OWN])
        points = page.locator("#cost .series.cross > :not(.line)")
        assert points.count() == 1
        slider = page.locator("#count")
        slider.focus()
        page.keyboard.press("Home")
        assert slider.get_attribute("aria-valuetext") == "10 candidates"
        page.locator(".column.cross .told", has_text="Scored 10 candidates").wait_for()
        settled(page)
        assert points.count() == 2
        rows = page.locator("#cost tbody tr").all_text_contents()
        assert [row[: len("cross10")] for row in rows if row.startswith("cross")] == [
            "cross10",
            "cross30",
        ]


def test_a_link_restores_the_query(browser, served):
    with opened(browser, served) as page:
        ask(page, *TURNS, own=[*OWN, "안녕하세요 & more"])
        link, first = page.url, shown(page, "cross")
        assert "turn=" in link
        page.locator("#turns textarea").last.fill("another one")
        page.keyboard.press("Control+Enter")
        page.locator(".hit").first.wait_for()
        settled(page)
        assert page.url != link
        page.go_back()
        page.locator(".hit").first.wait_for()
        settled(page)
        assert shown(page, "cross") == first
    with opened(browser, served, link.partition("/#")[1][1:] + link.partition("/#")[2]) as page:
        page.locator(".column.cross .hit").first.wait_for()
        settled(page)
        assert shown(page, "cross") == first
        assert all("turn=" not in request.url.partition("#")[0] for request in page.asked)


def test_texts_are_never_markup(browser, served):
    texts = [INJECTED, "שלום עולם", "안녕하세요", "word" * 2000, "{{x}} ${x} `x` 'x' \"x\""]
    with opened(browser, served) as page:
        ask(page, INJECTED, own=texts)
        assert {text for text, _ in shown(page, "bi")} == set(texts)
        page.locator(".column.bi .hit", has_text="<img").click()
        page.locator("#attention .cells").wait_for()
        page.locator("#attention summary").click()
        assert page.title() == "polyrank"
        assert page.locator("img, main script").count() == 0
        width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1]


def test_contrast_and_names_in_light_and_dark(browser, served):
    colour = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, served, color_scheme="dark", reduced_motion="reduce") as page:
        ask(page, *TURNS, own=OWN)
        page.locator(".column.poly .hit").first.click()
        page.locator("#attention .cells").wait_for()
        dark = page.evaluate(colour)
        for _ in range(2):
            found = page.evaluate(f"{CHECKS}.contrast()")
            assert len(found) > 60
            assert [each for each in found if each["ratio"] < each["least"]] == []
            page.click("#theme-button")
        assert page.evaluate(colour) == dark
        assert page.evaluate(f"{CHECKS}.unnamed()") == []
        assert page.evaluate("document.querySelectorAll('h1').length") == 1
        page.click("#theme-button")
        light = page.evaluate(colour)
        assert light != dark
        page.reload()
        assert page.evaluate(colour) == light
        page.locator(".column.cross .hit").first.wait_for()
        settled(page)


def test_small_windows_do_not_scroll_sideways(browser, served):
    size = {"width": 360, "height": 740}
    with opened(browser, served, viewport=size, has_touch=True) as page:
        ask(page, *TURNS, own=[*OWN, "x" * 300])
        page.locator(".column.poly .hit").first.click()
        page.locator("#attention .cells").wait_for()
        page.locator("#attention summary").click()
        for tab in ("openai", "cohere"):
            page.click(f"#tab-{tab}")
        for width in (360, 640):  # a phone; a window of 1280 at 200%
            page.set_viewport_size({"width": width, "height": 450})
            found = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert found[0] <= found[1] == width
            lefts = "all => all.map(each => each.getBoundingClientRect().left)"
            assert len(set(page.locator(".column").evaluate_all(lefts))) == 1


def test_one_architecture_without_an_index(browser, bi, cross):
    with (
        running(create_app(Pipeline({"bi": bi, "cross": cross}))) as server,
        opened(browser, server) as page,
    ):
        assert page.locator("#examples button").count() == 3
        ask(page, QUESTION)
        assert page.locator(".column").count() == 2
        assert shown(page, "bi")
        page.locator(".column.bi .hit").first.click()
        assert page.locator("#attention").is_hidden()
        assert page.locator("#comparison").is_hidden()
        assert page.locator("#source").is_hidden()


def test_a_server_with_a_key(browser, bi):
    app = create_app(Pipeline({"bi": bi}), ServerConfig(api_key=("right-key",)))
    with running(app) as server, opened(browser, server) as page:
        page.fill("#key", "wrong")
        page.keyboard.press("Enter")
        page.locator("#banner").wait_for()
        page.fill("#key", "right-key")
        page.keyboard.press("Enter")
        page.locator("#query").wait_for()
        ask(page, QUESTION, own=OWN)
        assert len(shown(page, "bi")) == len(OWN)
        assert "right-key" not in page.url
        assert "right-key" not in page.locator("#call").text_content()
        assert "POLYRANK_API_KEY" in page.locator("#call").text_content()
        assert page.evaluate("[sessionStorage.length, localStorage.length, document.cookie]") == [
            1,
            0,
            "",
        ]
        page.reload()
        page.locator(".hit").first.wait_for()
        settled(page)
        page.problems[:] = [
            each for each in page.problems if "401" not in each
        ]  # as they should be


def test_errors_are_told_in_the_servers_words(browser, bi):
    app = create_app(Pipeline({"bi": bi}), ServerConfig(max_queue_tokens=40))
    with running(app) as server, opened(browser, server) as page:
        ask_for = "#turn=file&from=own" + "".join(f"&candidate=read+{n}" for n in range(30))
        page.route(
            "**/rerank",
            lambda route: route.fulfill(
                status=429,
                json={"error": {"message": "The queue is full. Try again in 2 seconds."}},
            ),
        )
        page.goto(f"{server.url}/{ask_for}")
        page.reload()
        page.locator(".column.bi .error").wait_for()
        assert (
            page.locator(".column.bi .error").text_content()
            == "The queue is full. Try again in 2 seconds."
        )
        page.unroute("**/rerank")
        page.route("**/rerank", lambda route: route.abort())
        page.click("#rank")
        page.locator(".error", has_text="cannot be reached").wait_for()
        page.unroute("**/rerank")
        page.click("#rank")
        page.locator(".hit").first.wait_for()
        page.problems[:] = [each for each in page.problems if "Failed to load" not in each]


def test_a_new_run_ends_the_one_before(browser, served):
    with opened(browser, served) as page:
        page.add_init_script("""
            window.signals = [];
            const fetch = window.fetch;
            window.fetch = (url, options) => {
              if (url.endsWith("/rerank")) signals.push(options.signal);
              return fetch(url, options);
            };
        """)
        page.reload()
        page.locator("#turns textarea").first.fill(QUESTION)
        page.get_by_text("My own", exact=True).click()
        page.route("**/rerank", lambda route: None)  # never answered
        with page.expect_request("**/rerank"):
            page.click("#rank")
        assert page.evaluate("signals.map((each) => each.aborted)") == [False]
        page.click("#rank")
        assert page.evaluate("signals[0].aborted")
        page.unroute("**/rerank")
        page.click("#rank")
        settled(page)
        assert len(shown(page, "cross")) == 3


def call_of(page, model, client):
    page.get_by_label("Model of the call").select_option(model)
    page.click(f"#tab-{client}")
    return page.locator("#call").text_content()


def printed(*command):
    environment = {**os.environ, "PYTHONUTF8": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, check=True, encoding="utf-8", env=environment
    ).stdout


STAND_IN = """
import sys, types, httpx2

class ClientV2:  # posts what Cohere's own client posts
    def __init__(self, *, base_url, api_key):
        self.url = f"{base_url}/v2/rerank"

    def rerank(self, **body):
        answer = httpx2.post(self.url, json=body).raise_for_status().json()
        results = [types.SimpleNamespace(**each) for each in answer["results"]]
        return types.SimpleNamespace(results=results)

sys.modules["cohere"] = types.SimpleNamespace(ClientV2=ClientV2)
"""


def test_snippets_run_as_they_are(browser, served):
    with opened(browser, served) as page:
        ask(page, 'what\'s "this"? $HOME `id` \\ 안녕', own=[*OWN, "it's $(id) 'x' \"y\" \\n"])
        expected = {model: [text for text, _ in shown(page, model)] for model in ("bi", "cross")}
        programs = [STAND_IN]
        for model in expected:
            ranked = json.loads(printed("bash", "-c", call_of(page, model, "curl")))
            assert ranked["model"] == model
            sent = shown(page, model)
            scores = [each["relevance_score"] for each in ranked["results"]]
            assert scores == pytest.approx([score for _, score in sent], rel=0.006, abs=6e-4)
            programs += [call_of(page, model, client) for client in ("openai", "cohere")]
        lines = printed(sys.executable, "-W", "ignore", "-c", "\n".join(programs)).splitlines()
        texts = [line.split("  ", 1)[1] for line in lines]
        assert texts == [*expected["bi"] * 2, *expected["cross"] * 2]


def test_the_index_is_searched(browser, served):
    with opened(browser, served) as page:
        page.locator("#examples button").first.click()
        page.locator(".hit").first.wait_for()
        settled(page)
        context = page.locator("#turns textarea").input_value()
        body = {"context": context, "top_k": 30, "rerank": False}
        (found,) = httpx2.post(f"{served.url}/search", json=body).json()["results"]
        texts = [hit["text"] for hit in found["hits"]]
        keys = page.locator(".column.poly .hit").evaluate_all("all => all.map(e => e.dataset.key)")
        assert keys == [hit["id"] for hit in found["hits"]][:10]
        for model in ("bi", "cross"):
            expected = reranked(served, model, context, texts)
            scores = [score for _, score in shown(page, model)]
            assert scores == pytest.approx([s for _, s in expected[:10]], rel=0.006, abs=6e-4)
        total = found["report"]["num_candidates"]
        assert page.locator(".column.poly .told").text_content().startswith(f"Searched {total} ")
        page.click("#more")
        assert page.locator(".column.bi .hit").count() == 30
        said = json.loads(printed("bash", "-c", call_of(page, "poly", "curl")))
        assert [hit["id"] for hit in said["results"][0]["hits"]][:10] == keys


def test_a_comparison_is_drawn(browser, bi, tmp_path):
    models = [
        {
            "name": name,
            "architecture": kind,
            "figures": {"recall@1": {"mean": mean, "low": mean - 0.02, "high": mean + 0.02}},
            "latency": [
                {"num_candidates": size, "milliseconds": ms * size, "extrapolated": size > 100}
                for size in (100, 1000)
            ],
        }
        for name, kind, mean, ms in (("my-bi", "bi", 0.5, 0.1), ("my-cross", "cross", 0.56, 5.0))
    ]
    result = {"metric": "recall@1", "num_queries": 300, "models": models}
    (tmp_path / "comparison.json").write_text(json.dumps(result), encoding="utf-8")
    app = create_app(Pipeline({"bi": bi}), ServerConfig(comparison=tmp_path))
    with running(app) as server, opened(browser, server) as page:
        section = page.locator("#comparison")
        section.wait_for()
        rows = section.locator("tbody tr").all_text_contents()
        assert rows == [
            "my-biBi-encoder0.5000.480 – 0.520~100 ms",
            "my-crossCross-encoder0.5600.540 – 0.580~5.0 s",
        ]
        assert section.locator(".series.hollow").count() == 2
        page.get_by_label("Number of candidates", exact=True).select_option("100")
        assert section.locator(".series.hollow").count() == 0
        assert "300 queries: R@1" in section.text_content()


def test_a_comparison_that_cannot_be_read_ends_the_start(bi, tmp_path):
    with pytest.raises(UsageError, match="polyrank compare --output"):
        create_app(Pipeline({"bi": bi}), ServerConfig(comparison=tmp_path))


def test_files_are_kept_and_asked_for_again(served):
    for name in ("", *(f"page/{each.name}" for each in FILES.iterdir())):
        first = httpx2.get(f"{served.url}/{name}")
        assert first.status_code == 200
        policy = first.headers.get("content-security-policy")
        assert name or "script-src 'self';" in policy
        assert first.headers["cache-control"] == "no-cache"
        again = httpx2.get(f"{served.url}/{name}", headers={"if-none-match": first.headers["etag"]})
        assert again.status_code == 304
        assert not again.content
    assert httpx2.get(f"{served.url}/page/..%2Fapp.py").status_code == 404
    assert httpx2.head(f"{served.url}/").status_code == 200


def test_the_page_names_nobody_else_and_has_no_inline_code():
    for file in FILES.iterdir():
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"https?://(?!www\.w3\.org)", text), file.name
        assert "innerHTML" not in text
    markup = (FILES / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|<style", markup)
