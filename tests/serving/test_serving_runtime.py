"""What the runtime answers equals what the models and the index answer."""

import asyncio
import gc
import importlib
import inspect
import pkgutil
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyrank.retrieval.rerank import RetrieveRerank
from polyrank.serving import items, routes
from polyrank.serving.config import ServerConfig
from polyrank.serving.dependencies import runtime_of
from polyrank.serving.pipeline import Pipeline
from polyrank.serving.runtime import Runtime
from polyrank.serving.scheduling.flow import Flow
from tiny_encoders import LONG, TEXTS, load_variant

DIALOGUE = ("hello", "my wifi is off", "which driver do you have?")
CONTEXTS = [*TEXTS, DIALOGUE, LONG]
MANY = [" ".join(TEXTS[place % 9 : place % 9 + 1 + place % 4]) for place in range(150)]


@pytest.fixture
def runtime(pipeline):
    runtime = Runtime(pipeline, ServerConfig())
    yield runtime
    runtime.close()


def flow():
    return Flow.lasting(60)


def near(vectors, expected):
    np.testing.assert_allclose(vectors, expected, atol=2e-5)


def test_vectors_of_all_kinds_at_once(runtime):
    models = runtime.pipeline.models
    bi, poly = models["bi"], models["poly"]
    several = [MANY[:1], MANY, TEXTS[::-1], [LONG], MANY[7:90]]

    async def ask():
        asked = [
            runtime.embed(served, texts, "candidate", flow())
            for served in (bi, poly)
            for texts in several
        ]
        asked.append(runtime.embed(bi, CONTEXTS, "context", flow()))
        return await asyncio.gather(*asked)

    *candidates, contexts = asyncio.run(ask())
    expected = [(served.model, texts) for served in (bi, poly) for texts in several]
    for embedded, (model, texts) in zip(candidates, expected, strict=True):
        near(embedded.vectors, model.encode_candidates(texts, convert_to_numpy=True))
        assert embedded.num_tokens == sum(map(len, model.candidate_ids(texts)))
    near(contexts.vectors, bi.model.encode_contexts(CONTEXTS, convert_to_numpy=True))


@pytest.mark.parametrize("name", ["bi", "poly", "cross"])
def test_scores_of_each_architecture(runtime, name):
    served = runtime.pipeline.models[name]
    pairs = [(context, text) for context in CONTEXTS for text in TEXTS[:4]]

    async def ask():
        return await asyncio.gather(
            runtime.score(served, DIALOGUE, MANY, flow()),
            runtime.score_pairs(served, [*pairs, *pairs[:3]], flow()),
            runtime.score(served, TEXTS[0], [], flow()),
        )

    ranked, scored, empty = asyncio.run(ask())
    near(ranked.scores, served.model.score([DIALOGUE], MANY)[0])
    near(scored.scores, served.model.score_pairs([*pairs, *pairs[:3]]))
    assert scored.scores[-3:] == scored.scores[:3]
    assert empty.scores == []
    assert scored.num_tokens > 0


@pytest.fixture(scope="module")
def once(bert):
    """By whether the context sees its candidates: a cross-encoder that reads once."""
    return {
        sees: load_variant("cross-interaction", bert, reading="once", context_sees_candidates=sees)
        for sees in (False, True)
    }


@pytest.mark.parametrize("sees", [False, True])
def test_a_context_is_read_once_for_blocks_of_its_candidates(sees, once, monkeypatch):
    model = once[sees]
    monkeypatch.setattr(items, "BLOCK_TOKENS", 60)
    lengths = []
    plain = model.read_groups

    def counted(grouped):
        lengths.append((len(grouped.contexts), len(grouped.candidates)))
        return plain(grouped)

    monkeypatch.setattr(model, "read_groups", counted)
    pairs = [(context, text) for context in CONTEXTS for text in TEXTS[:4]]
    runtime = Runtime(Pipeline({"once": model}), ServerConfig())
    served = runtime.pipeline.models["once"]

    many = flow()

    async def ask():
        return await asyncio.gather(
            runtime.score(served, DIALOGUE, MANY, many),
            runtime.score_pairs(served, [*pairs, *pairs[:3]], flow()),
            runtime.score(served, "hello", ["yes"], flow()),
        )

    try:
        ranked, scored, single = asyncio.run(ask())
        assert many.num_items == len(set(MANY)), "pairs, not blocks"
        assert sum(candidates for _, candidates in lengths) == len(set(MANY)) + len(pairs) + 1
        assert sum(contexts for contexts, _ in lengths) < 60
        lengths.clear()
        runtime.warm(runtime.pipeline)
        assert lengths
    finally:
        runtime.close()
    near(ranked.scores, model.score([DIALOGUE], list(dict.fromkeys(MANY)))[0][places_of(MANY)])
    near(scored.scores[: len(pairs)], model.score(CONTEXTS, TEXTS[:4]).ravel())
    assert scored.scores[-3:] == scored.scores[:3]
    near(single.scores, model.score("hello", ["yes"]))
    contexts, texts = model.context_ids(CONTEXTS), model.candidate_ids(TEXTS[:4])
    read = sum(map(len, contexts)) + len(contexts) * sum(map(len, texts))
    assert scored.num_tokens == read, "each context was in one block"


def places_of(texts):
    """The place of each text among the different ones."""
    different = list(dict.fromkeys(texts))
    return [different.index(text) for text in texts]


def test_blocks_end_at_their_tokens_unless_the_context_sees_all(once, monkeypatch):
    monkeypatch.setattr(items, "BLOCK_TOKENS", 10)
    pairs = [("a", "x" * 12), ("b", "y" * 12), ("a", "z" * 12), ("a", "w" * 400)]
    assert items.blocks_of(once[False], pairs) == [[0, 2], [3], [1]]
    assert items.blocks_of(once[True], pairs) == [[0, 2, 3], [1]]


def test_a_large_request_of_one_context_lets_others_pass(once, monkeypatch):
    """A short request that comes later is answered before the last blocks of a long one."""
    monkeypatch.setattr(items, "BLOCK_TOKENS", 60)
    model = once[False]
    runtime = Runtime(Pipeline({"once": model}), ServerConfig())
    served = runtime.pipeline.models["once"]
    monkeypatch.setattr(model, "batch_tokens", 64)
    ended = []

    async def ask(name, texts):
        await runtime.score(served, "hello", texts, flow())
        ended.append(name)

    async def both():
        long = asyncio.create_task(ask("long", [f"{text} {n}" for n in range(9) for text in MANY]))
        await asyncio.sleep(0.05)
        await asyncio.gather(long, ask("short", ["yes"]))

    try:
        asyncio.run(both())
    finally:
        runtime.close()
    assert ended == ["short", "long"]


def test_searches_with_and_without_a_reranker(runtime):
    index, cross = runtime.pipeline.index, runtime.pipeline.models["cross"]
    both = RetrieveRerank(index, cross.model, num_candidates=4)

    async def ask():
        return await asyncio.gather(
            runtime.search(CONTEXTS, flow(), top_k=3),
            runtime.search(CONTEXTS, flow(), top_k=50, exact=True, filter='topic == "boot"'),
            runtime.search(CONTEXTS, flow(), top_k=2, reranker=cross, num_candidates=4),
        )

    plain, filtered, reranked = asyncio.run(ask())
    same(plain, index.search(CONTEXTS, 3))
    same(filtered, index.search(CONTEXTS, 50, exact=True, filter='topic == "boot"'))
    same(reranked, both.search(CONTEXTS, 2))


def same(found, expected):
    for each, hits in zip(found, expected, strict=True):
        assert [hit.id for hit in each.hits] == [hit.id for hit in hits]
        near([hit.score for hit in each.hits], [hit.score for hit in hits])
        assert each.report == hits.report


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_concurrent_requests_get_their_own_answers(bi, poly, data):
    requests = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from(["bi", "poly"]),
                st.lists(st.sampled_from(MANY), min_size=1, max_size=12),
            ),
            min_size=1,
            max_size=12,
        )
    )
    runtime = Runtime(Pipeline({"bi": bi, "poly": poly}), ServerConfig())

    async def ask():
        return await asyncio.gather(
            *(
                runtime.embed(runtime.pipeline.models[name], texts, "candidate", flow())
                for name, texts in requests
            )
        )

    try:
        for (name, texts), embedded in zip(requests, asyncio.run(ask()), strict=True):
            model = runtime.pipeline.models[name].model
            near(embedded.vectors, model.encode_candidates(texts, convert_to_numpy=True))
    finally:
        runtime.close()


def test_times_say_where_a_request_spent_its_time(runtime):
    served, asked = runtime.pipeline.index_model, flow()
    asyncio.run(runtime.search(["disk"], asked))
    times = asked.times
    assert min(times.tokenise, times.model, times.search, times.queue) > 0
    assert served is runtime.pipeline.models["poly"] or served.model is runtime.pipeline.index.model


def test_no_thread_is_left_after_close(pipeline):
    before = set(threading.enumerate())
    runtime = Runtime(pipeline, ServerConfig())
    asyncio.run(runtime.start())
    asyncio.run(runtime.embed(pipeline.models["bi"], ["a"], "candidate", flow()))
    assert {thread.name for thread in set(threading.enumerate()) - before} == {
        "compute",
        "tokenise",
    }
    runtime.close()
    assert set(threading.enumerate()) <= before


def test_nothing_of_a_request_runs_in_a_pool_of_threads():
    """FastAPI runs functions that are not coroutines there, at several times the cost."""

    def calls(dependant):
        yield dependant.call
        for each in dependant.dependencies:
            yield from calls(each)

    seen = []
    for module in pkgutil.iter_modules(routes.__path__, f"{routes.__name__}."):
        for route in importlib.import_module(module.name).router.routes:
            seen += [call for call in calls(route.dependant) if call is not None]
    assert runtime_of in seen
    assert [call for call in seen if not inspect.iscoroutinefunction(call)] == []


def test_lanes_live_as_long_as_their_models_are_served_or_waited_for(bi):
    runtime = Runtime(Pipeline({"old": bi}), ServerConfig())

    async def ask():
        waiting = asyncio.create_task(
            runtime.embed(runtime.pipeline.models["old"], MANY, "candidate", flow())
        )
        await asyncio.sleep(0)
        runtime.pipeline = Pipeline({"new": bi})
        return await waiting

    embedded = asyncio.run(ask())
    near(embedded.vectors, bi.encode_candidates(MANY, convert_to_numpy=True))
    runtime.close()
    gc.collect()
    assert len(runtime._lanes) == 0
    assert not runtime.scheduler._queue
