import contextlib
import tempfile
from pathlib import Path

import numpy as np
import pytest
from engine_contract import matches
from hypothesis import given, settings
from hypothesis import strategies as st

from hash_model import HashModel, pairs, unflushed
from polyrank.errors import UsageError
from polyrank.records import Candidate
from polyrank.retrieval.filters import (
    All,
    Any,
    Comparison,
    Membership,
    Not,
    parse_filter,
    require_fields,
)
from polyrank.retrieval.index import Index
from polyrank.retrieval.store.manifest import ShardLayout

FIELDS = {
    "lang": st.sampled_from(["", "de", "en", "ü"]),
    "year": st.integers(-3, 3),
    "size": st.one_of(st.integers(-2, 2), st.floats(allow_nan=False, allow_infinity=False)),
    "open": st.booleans(),
}
NUMBERS = st.one_of(st.integers(-3, 3), st.sampled_from([0.5, -1.5, 10**400, -(10**400), 2**53]))
VALUES = {**FIELDS, "lang": st.one_of(FIELDS["lang"], st.text(max_size=2)), "year": NUMBERS}
VALUES["size"] = st.one_of(NUMBERS, FIELDS["size"])
OPERATORS = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
NAMES = st.sampled_from(sorted(FIELDS))

CONDITIONS = NAMES.flatmap(
    lambda name: st.one_of(
        st.builds(Comparison, st.just(name), OPERATORS, VALUES[name]),
        st.builds(Membership, st.just(name), st.lists(VALUES[name], min_size=1).map(tuple)),
    )
)
FILTERS = st.recursive(
    CONDITIONS,
    lambda inner: st.one_of(
        st.builds(All, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(Any, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(Not, inner),
    ),
    max_leaves=6,
)
METADATA = st.fixed_dictionaries({}, optional=FIELDS)


def written(filter):
    """A filter as one would type it."""
    if isinstance(filter, (All, Any)):
        word = " and " if isinstance(filter, All) else " or "
        return "(" + word.join(map(written, filter.parts)) + ")"
    if isinstance(filter, Not):
        return f"not {written(filter.part)}"
    if isinstance(filter, Membership):
        return f"{filter.field} in {list(filter.values)!r}"
    return f"{filter.field} {filter.operator} {filter.value!r}"


@given(FILTERS, METADATA)
def test_what_is_written_is_what_is_read(filter, metadata):
    again = parse_filter(written(filter))
    assert matches(again, metadata) == matches(filter, metadata)


@settings(max_examples=60, deadline=None)
@given(
    metadata=st.lists(METADATA, min_size=1, max_size=25),
    wheres=st.lists(FILTERS, min_size=1, max_size=5),
    gone=st.sets(st.integers(0, 24)),
    top_k=st.integers(1, 25),
)
def test_filtered_search_is_a_search_of_those_that_pass(metadata, wheres, gone, top_k):
    every = {"lang": "en", "year": 0, "size": 0.5, "open": True}
    candidates = [Candidate(str(i), f"text {i}", each) for i, each in enumerate(metadata)]
    candidates.append(Candidate("every", "every field", every))
    with tempfile.TemporaryDirectory() as folder, unflushed():
        layout = ShardLayout(block_rows=4, shard_rows=8)
        index = Index.build(HashModel(4), candidates, Path(folder, "i"), layout=layout)
        index.delete([each.id for each in candidates if each.id in set(map(str, gone))])
        live = list(index)
        top_k = min(top_k, len(live))
        for filter in wheres:
            passing = {each.id for each in live if matches(filter, each.metadata)}
            expected = [hit for hit in index.search(["a"], len(live))[0] if hit.id in passing]
            found = index.search(["a"], top_k, filter=filter)
            assert pairs(found[0]) == pairs(expected[:top_k])
            assert found.reports[0].num_candidates == len(passing)
            np.testing.assert_allclose(
                [hit.score for hit in found[0]],
                [hit.score for hit in expected[:top_k]],
                rtol=1e-5,
                atol=1e-6,
            )


@pytest.mark.parametrize(
    ("text", "metadata", "passes"),
    [
        ('lang == "en" and year >= 2020', {"lang": "en", "year": 2020}, True),
        ("2018 <= year < 2020", {"year": 2019}, True),
        ("2018 <= year < 2020", {"year": 2020}, False),
        ("2020 == year", {"year": 2020}, True),
        ('topic in ["disk", "boot"]', {"topic": "boot"}, True),
        ('topic not in ["disk", "boot"]', {"topic": "net"}, True),
        ('topic not in ["disk", "boot"]', {}, False),
        ('not topic in ["disk", "boot"]', {}, True),
        ("archived == true or year < -1.5", {"archived": True}, True),
        ("archived != true", {"archived": False}, True),
        ("archived != true", {}, False),
        ("not archived == true", {}, True),
        ('lang == "en" or lang == "de" and year > 1', {"lang": "en"}, True),
    ],
)
def test_filters_mean_what_python_means(text, metadata, passes):
    assert matches(parse_filter(text), metadata) is passes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read"),
        ("lang = 5", "cannot be read at character"),
        ("lang == en", "has 'en' where a value belongs"),
        ("archived", "names the field 'archived' without comparing"),
        ("year is 5", "uses `is`"),
        ("year in []", "has an empty list"),
        ("year in 5", "The part '5'"),
        ("year + 1 == 2", r"The part 'year \+ 1'"),
        ("len(lang) == 2", r"The part 'len\(lang\)'"),
        ("lang == None", "The part 'None'"),
        ('lang == b"x"', "The part"),
        ('-lang == "x"', "The part '-lang'"),
        ("5 == 5", "The part '5'"),
        ("lang == 'x'; year == 1", "cannot be read"),
        ("__import__('os').system('x') == 1", "The part"),
        ("(" * 300 + "a == 1" + ")" * 300, "cannot be read|nested too deeply"),
        ("a == '\0'", "cannot be read"),
    ],
)
def test_what_is_no_filter_is_a_usage_error(text, message):
    with pytest.raises(UsageError, match=message):
        parse_filter(text)


@given(st.text(max_size=30))
def test_any_text_is_a_filter_or_a_usage_error(text):
    with contextlib.suppress(UsageError):
        parse_filter(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("laang == 'en'", "no field 'laang'. Did you mean 'lang'"),
        ("lang == 5", "'lang' is of the kind string and cannot be compared with 5"),
        ("year == '2020'", "'year' is of the kind integer and cannot be compared with '2020'"),
        ("year == true", "'year' is of the kind integer and cannot be compared with True"),
        ("open == 1", "'open' is of the kind boolean and cannot be compared with 1"),
        ("size in [1, 'x']", "'size' is of the kind number and cannot be compared with 'x'"),
    ],
)
def test_fields_are_there_and_of_their_kind(text, message):
    kinds = {"lang": "string", "year": "integer", "size": "number", "open": "boolean"}
    with pytest.raises(UsageError, match=message):
        require_fields(parse_filter(text), kinds)


def test_an_index_without_metadata_says_how_to_give_it(tmp_path):
    index = Index.build(HashModel(), ["a"], tmp_path / "index")
    with pytest.raises(UsageError, match=r"no field 'lang'. It has none: index JSONL"):
        index.search(["x"], 1, filter="lang == 'en'")
