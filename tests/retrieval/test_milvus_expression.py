import os

import pytest
import torch
from engine_contract import matches
from hypothesis import given, settings
from hypothesis import strategies as st

from polyrank.errors import UsageError
from polyrank.records import Candidate
from polyrank.retrieval.filters import All, Any, Comparison, Membership, Not, parse_filter
from polyrank.retrieval.milvus.address import MilvusAddress
from polyrank.retrieval.milvus.engine import MilvusEngine
from polyrank.retrieval.milvus.expression import expression, quoted
from polyrank.retrieval.milvus.schema import MilvusIndex

pytest.importorskip("pymilvus", reason="needs the extra milvus")
pytest.importorskip("milvus_lite", reason="needs the extra milvus")

CASES = int(os.environ.get("POLYRANK_HOSTILE_CASES", "150"))
OPERATORS = ["==", "!=", "<", "<=", ">", ">="]
WORDS = [
    "",
    "a",
    "b",
    "ab",
    'q"',
    "q'",
    "back\\",
    "\\",
    "line\n",
    "\t",
    "é",
    "中",
    "😀",
    "\x00",
    "%",
    "_",
]
VALUES = {
    "word": st.sampled_from(WORDS),
    "count": st.integers(-3, 3) | st.sampled_from([2**53 - 1, -(2**53) + 1]),
    "weight": st.sampled_from([-1.5, 0.0, 0.1, 1.0, 2, 3, 1e-7, 1e16, 1e300]),
    "flag": st.booleans(),
    "größe": st.integers(0, 3),
    "wörter": st.sampled_from(WORDS),
}
LARGE = st.sampled_from([2**53 + 1, 2**62, -(2**63) + 1, 1.5])
"""Numbers in filters that need not be in metadata."""

METADATA = st.fixed_dictionaries({}, optional=VALUES)


@st.composite
def conditions(draw):
    field = draw(st.sampled_from(list(VALUES)))
    value = VALUES[field] | LARGE if field in ("count", "weight") else VALUES[field]
    if draw(st.booleans()):
        return Comparison(field, draw(st.sampled_from(OPERATORS)), draw(value))
    return Membership(field, tuple(draw(st.lists(value, max_size=4))))


FILTERS = st.recursive(
    conditions(),
    lambda parts: (
        parts.map(Not)
        | st.lists(parts, min_size=1, max_size=3).map(lambda each: All(tuple(each)))
        | st.lists(parts, min_size=1, max_size=3).map(lambda each: Any(tuple(each)))
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Engines over candidates of the given metadata, all in one file."""
    path = tmp_path_factory.mktemp("milvus") / "filters.db"
    engines = []

    def make(many):
        engine = MilvusEngine.create(
            MilvusAddress(path=path, collection=f"c{len(engines)}"),
            fingerprint="f",
            dimension=2,
            num_vectors=1,
            index=MilvusIndex(index_type="FLAT"),
        )
        engines.append(engine)
        candidates = [Candidate(str(i), "t", metadata) for i, metadata in enumerate(many)]
        engine.add(candidates, encode, replace=False)
        return engine

    yield make
    for engine in engines:
        engine.close()


def encode(texts):
    return torch.ones(len(texts), 2)


def passing(engine, filter):
    translated = expression(filter)
    if isinstance(translated, bool):
        return {candidate.id for candidate in engine} if translated else set()
    pages = engine._collection.pages(translated, ["id"], 64)
    return {row["id"] for page in pages for row in page}


@pytest.fixture(scope="module")
def candidates():
    return some_metadata()


def some_metadata():
    many = []

    @settings(max_examples=120, database=None, derandomize=True)
    @given(METADATA)
    def collect(metadata):
        many.append(metadata)

    collect()
    return many


@pytest.fixture(scope="module")
def engines(make, candidates):
    """In memory; the same written to disk; and where every candidate has every field or none."""
    fresh = make(candidates)
    written = make(candidates)
    written.compact()
    plain = make([{"word": "a"}, {}, {"word": "b", "count": 1}])
    return [
        (fresh, candidates),
        (written, candidates),
        (plain, [{"word": "a"}, {}, {"word": "b", "count": 1}]),
    ]


def test_milvus_and_python_let_the_same_candidates_pass(engines, record_property):
    @settings(max_examples=CASES, deadline=None, database=None)
    @given(filter=FILTERS)
    def each(filter):
        for engine, many in engines:
            expected = {str(i) for i, metadata in enumerate(many) if matches(filter, metadata)}
            assert passing(engine, filter) == expected

    each()
    record_property("cases", CASES)


@pytest.mark.parametrize(
    "text",
    ['" or true or "', '\\" or true or \\"', '"]) or exists id or ("', "\\", "\\\\", '\n" or true'],
)
def test_nothing_gets_out_of_quotes(engines, text):
    only_equal_words_pass(engines, text)


def test_no_text_gets_out_of_quotes(engines, record_property):
    @settings(max_examples=CASES // 5, deadline=None, database=None)
    @given(st.text(st.sampled_from("\"'\\%_*[]()$\n\t\0é or=in") | st.characters(codec="utf-8")))
    def each(text):
        only_equal_words_pass(engines, text)

    each()
    record_property("cases", CASES // 5)


def only_equal_words_pass(engines, text):
    engine, many = engines[0]
    for filter in (Comparison("word", "==", text), Membership("word", (text, text + "x"))):
        expected = {str(i) for i, metadata in enumerate(many) if matches(filter, metadata)}
        assert passing(engine, filter) == expected


def test_not_is_pushed_down_to_the_conditions():
    filter = parse_filter('not (lang == "en" or year < 2020 and not flag != true)')
    text = expression(filter)
    assert "not (" not in text.replace("(not exists", "")
    assert text == (
        '((not exists $meta["m_lang"] or ($meta["m_lang"] != "en")) and '
        '((not exists $meta["m_year"] or ($meta["m_year"] >= 2020)) or '
        '(exists $meta["m_flag"] and ($meta["m_flag"] != true))))'
    )


def test_filters_that_are_the_same_for_all_candidates_are_worked_out():
    empty = Membership("a", ())
    some = Comparison("a", "==", 1)
    assert expression(empty) is False
    assert expression(Not(empty)) is True
    assert expression(All((some, empty))) is False
    assert expression(Any((some, Not(empty)))) is True
    assert expression(Any((some, empty))) == '(($meta["m_a"] == 1))'


@pytest.mark.parametrize(
    "filter",
    [
        Comparison("a", "==", 2**63),
        Comparison("a", "<", float("inf")),
        Comparison("a", "==", "\ud800"),
        Membership("a", (1, -(2**63))),
    ],
)
def test_values_that_milvus_does_not_have_are_refused(filter):
    with pytest.raises(UsageError, match="Milvus compares with"):
        expression(filter)


def test_quoting():
    assert quoted('a"\\\n\r\t') == '"a\\"\\\\\\n\\r\\t"'
